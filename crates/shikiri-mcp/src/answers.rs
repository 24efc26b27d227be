//! What a client of the older era sends besides requests: answers to ours, and cancellations.

use serde_json::Value;
use shikiri_app::AppError;
use shikiri_model::connection::Connection;
use shikiri_model::event::Seq;
use shikiri_model::ids::RunId;
use shikiri_model::run::AnswerAction;

use crate::call::CallSpec;
use crate::fault::Fault;
use crate::question::{answer_of, parse_request_id, refusal};
use crate::server::Mcp;

impl Mcp {
    /// Takes the answer to a question that a run asked on this connection. It is in the store when
    /// this returns, whichever node asked.
    pub(crate) async fn take_answer(
        &self,
        connection: &Connection,
        id: &Value,
        outcome: &Result<Value, Value>,
    ) -> Result<(), Fault> {
        let nobody = || Fault::request("nobody asked this, or it was answered already");
        let named = id.as_str().and_then(parse_request_id);
        let (run, question) = named.ok_or_else(nobody)?;
        let view = match self.app.run(&connection.tenant, &run).await {
            Ok(view) => view,
            Err(AppError::NotFound { .. }) => return Err(nobody()),
            Err(error) => return Err(error.into()),
        };
        let is_asked_here = is_begun_on(&view.run.origin, connection)
            || self.find_call(connection, |spec| spec.run_id == run).await?.is_some();
        if !is_asked_here {
            return Err(nobody());
        }
        let asked = view.run.questions.iter().find(|q| q.id == question).ok_or_else(nobody)?;
        let answer = answer_of(asked.kind, outcome);
        let tenant = &connection.tenant;
        let taken = match self.app.answer_run(tenant, &run, &question, answer).await {
            // A yes that does not fit the question is not a yes, and nobody will be asked again.
            Err(AppError::Invalid { reason, .. }) => {
                let answer = refusal(AnswerAction::Cancel, format!("the answer {reason}"));
                self.app.answer_run(tenant, &run, &question, answer).await
            }
            taken => taken,
        };
        match taken {
            Ok(_) => Ok(()),
            Err(AppError::NotFound { .. } | AppError::NotNow(_)) => Err(nobody()),
            Err(error) => Err(error.into()),
        }
    }

    /// Stops the run of a call that its caller gave up. What has no run has ended already.
    pub(crate) async fn cancel_call(
        &self,
        connection: &Connection,
        id: &Value,
    ) -> Result<(), AppError> {
        let called = self.find_call(connection, |spec| spec.id == *id).await?;
        let Some((number, run)) = called else { return Ok(()) };
        // It was answered that the run goes on, and so it does.
        if self.app.handover(connection, number).await?.is_some() {
            return Ok(());
        }
        match self.app.cancel_run(&connection.tenant, &run).await {
            Ok(_) | Err(AppError::NotNow(_) | AppError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The newest call of this kind, and its run.
    async fn find_call(
        &self,
        connection: &Connection,
        wanted: impl Fn(&CallSpec) -> bool + Send + Sync,
    ) -> Result<Option<(Seq, RunId)>, AppError> {
        let mut found = None;
        self.app
            .read_connection(connection, |event| {
                if event.kind == "call"
                    && let Ok(spec) = serde_json::from_str::<CallSpec>(event.data)
                    && wanted(&spec)
                    && spec.shape != crate::call::Shape::Wait
                {
                    found = Some((event.seq, spec.run_id));
                }
            })
            .await?;
        Ok(found)
    }
}

/// A call that is sent once more comes on another connection than the one that began its run.
fn is_begun_on(origin: &Option<Value>, connection: &Connection) -> bool {
    let called = origin.as_ref().and_then(|origin| origin["connection"].as_str());
    called == Some(connection.id.as_str())
}
