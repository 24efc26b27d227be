//! What a client of the older era sends besides requests: answers to ours, and cancellations.

use serde_json::Value;
use shikiri_model::connection::McpConnection;
use shikiri_model::event::Seq;
use shikiri_model::ids::RunId;
use shikiri_model::run::AnswerAction;
use shikiri_runtime::AppError;

use crate::rpc_error::RpcError;
use crate::run_follower::CallSpec;
use crate::run_questions::{answer_of, parse_request_id, refusal};
use crate::server::McpService;

impl McpService {
    /// Takes the answer to a question that a run asked on this connection. It is in the store when
    /// this returns, whichever node asked.
    pub(crate) async fn take_answer(
        &self,
        connection: &McpConnection,
        id: &Value,
        outcome: &Result<Value, Value>,
    ) -> Result<(), RpcError> {
        let not_asked = || RpcError::request("nobody asked this, or it was answered already");
        let named = id.as_str().and_then(parse_request_id);
        let (run, question) = named.ok_or_else(not_asked)?;
        let view = match self.app.runtime.run(&connection.tenant, &run).await {
            Ok(view) => view,
            Err(AppError::NotFound { .. }) => return Err(not_asked()),
            Err(error) => return Err(error.into()),
        };
        let is_asked_here = is_begun_on(&view.run.origin, connection)
            || self.find_call(connection, |spec| spec.run_id == run).await?.is_some();
        if !is_asked_here {
            return Err(not_asked());
        }
        let asked = view.run.questions.iter().find(|q| q.id == question).ok_or_else(not_asked)?;
        let answer = answer_of(asked.kind, outcome);
        let tenant = &connection.tenant;
        let taken = match self.app.runtime.answer_run(tenant, &run, &question, answer).await {
            // A yes that does not fit the question is not a yes. The question is not asked again.
            Err(AppError::Invalid { reason, .. }) => {
                let answer = refusal(AnswerAction::Cancel, format!("the answer {reason}"));
                self.app.runtime.answer_run(tenant, &run, &question, answer).await
            }
            taken => taken,
        };
        match taken {
            Ok(_) => Ok(()),
            Err(AppError::NotFound { .. } | AppError::NotNow(_)) => Err(not_asked()),
            Err(error) => Err(error.into()),
        }
    }

    /// Stops the run of a call that its caller cancelled. A call without a run has ended already.
    pub(crate) async fn cancel_call(
        &self,
        connection: &McpConnection,
        id: &Value,
    ) -> Result<(), AppError> {
        let called = self.find_call(connection, |spec| spec.id == *id).await?;
        let Some((number, run)) = called else { return Ok(()) };
        // It was answered that the run goes on, and so it does.
        if self.app.tenancy.handover(connection, number).await?.is_some() {
            return Ok(());
        }
        match self.app.runtime.cancel_run(&connection.tenant, &run).await {
            Ok(_) | Err(AppError::NotNow(_) | AppError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The newest call of this kind, and its run.
    async fn find_call(
        &self,
        connection: &McpConnection,
        wanted: impl Fn(&CallSpec) -> bool + Send + Sync,
    ) -> Result<Option<(Seq, RunId)>, AppError> {
        let mut found = None;
        self.app
            .tenancy
            .read_connection(connection, |event| {
                if event.kind == "call"
                    && let Ok(spec) = serde_json::from_str::<CallSpec>(event.data)
                    && wanted(&spec)
                    && spec.shape != crate::run_follower::AnswerShape::Wait
                {
                    found = Some((event.seq, spec.run_id));
                }
            })
            .await?;
        Ok(found)
    }
}

/// A call that is sent once more comes on another connection than the one that began its run.
fn is_begun_on(origin: &Option<Value>, connection: &McpConnection) -> bool {
    let called = origin.as_ref().and_then(|origin| origin["connection"].as_str());
    called == Some(connection.id.as_str())
}
