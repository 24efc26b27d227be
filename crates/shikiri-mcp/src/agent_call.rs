//! Calls of agents: each starts a run, or continues the one that asked for input.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde_json::{Value, json};
use shikiri_model::connection::CallContinuation;
use shikiri_model::event::Seq;
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::key::SecretToken;
use shikiri_model::run::{QuestionAnswer, QuestionKind, Run, RunStatus};
use shikiri_runtime::AppError;
use shikiri_runtime::run::{CallerWaitPolicy, DurableAgent, NewRun, RunView};

use crate::catalogue::CALL_KEY;
use crate::mcp_caller::{McpCaller, ProtocolEra};
use crate::request_digest::{digest, digest_of, digest_of_value};
use crate::rpc_error::RpcError;
use crate::run_follower::{AnswerShape, CallTemplate, TicketUse, WaitingCaller, input_required};
use crate::run_questions::{capability, clear_answer};
use crate::run_view::tool_error;
use crate::server::{McpService, RequestAnswer, finish_result};
use crate::tasks;
use crate::tools::RunToolErrorCode;
use crate::tools_call::ToolCallRequest;

const MAX_CALL_KEY: usize = 200;

impl ToolCallRequest<'_> {
    pub(crate) async fn call_agent(
        &self,
        agent: &dyn DurableAgent,
        input: Value,
        wait: bool,
        shape: AnswerShape,
    ) -> Result<RequestAnswer, RpcError> {
        self.check_capabilities(agent)?;
        let attendance = agent.caller_wait_policy();
        let can_leave = self.caller.has_tasks() && shape == AnswerShape::Tool && !wait;
        if self.caller.era == ProtocolEra::Modern
            && self.request.params.contains_key("requestState")
        {
            let leaves = can_leave && attendance != CallerWaitPolicy::Stays;
            return self.continue_call(shape, wait, leaves).await;
        }
        let prepared_answers = self.responses()?;
        let app = &self.mcp.app;
        let now = app.runtime.store().now().await.map_err(AppError::from)?;
        let until = (!wait).then(|| now + self.mcp.options.patience);
        let key = self.call_key()?;
        // Who names a call comes back for it.
        let is_waited_for = self.caller.era == ProtocolEra::Modern && key.is_none();
        let new = NewRun {
            agent: agent.name().to_owned(),
            input,
            idempotency_key: key,
            origin: Some(self.origin()),
        };
        let started = self.start(new, self.template(shape, until), is_waited_for).await;
        let (view, number, waiting) = match started {
            Ok(started) => started,
            Err(AppError::Invalid { field: "input", reason }) => {
                let refused = tool_error(RunToolErrorCode::InvalidArgument.as_str(), &reason);
                return self.answer_immediately(Ok(refused)).await;
            }
            Err(error) => return Err(error.into()),
        };
        if can_leave && matches!(attendance, CallerWaitPolicy::MayLeave | CallerWaitPolicy::Leaves)
        {
            return Ok(self.task(&view, waiting));
        }
        let spec = self.template(shape, until).call_of(&view.run.id, 0);
        let call = self.follow(number, spec, 0, waiting).await?;
        Ok(RequestAnswer::Follow(Box::new(call.with_answers(prepared_answers))))
    }

    /// Starts the run of a call. It is done to its end even if the caller leaves meanwhile, so that
    /// there is no run which nobody knows of.
    async fn start(
        &self,
        new: NewRun,
        template: CallTemplate,
        is_waited_for: bool,
    ) -> Result<(RunView, Seq, Option<WaitingCaller>), AppError> {
        let app = self.mcp.app.clone();
        let connection = Arc::clone(&self.caller.connection);
        let draining = self.caller.cancel_token.clone();
        let starting = tokio::spawn(async move {
            let call = |run: &RunId| template.call_of(run, 0).event();
            let (view, number) = app.tenancy.start_called_run(&connection, new, call).await?;
            let waiting = is_waited_for
                .then(|| WaitingCaller::of(&app, &connection.tenant, &view.run.id, &draining));
            Ok((view, number, waiting))
        });
        starting.await.map_err(|error| AppError::Broken(error.to_string()))?
    }

    /// The answer of a call that goes on as a task.
    fn task(&self, view: &RunView, waiting: Option<WaitingCaller>) -> RequestAnswer {
        if let Some(waiting) = waiting {
            waiting.answered();
        }
        let task = tasks::created(view, &self.mcp.app);
        RequestAnswer::Now(Ok(finish_result(self.caller, task)))
    }

    /// The key that the caller gave this call. It holds for this caller and this request alone.
    fn call_key(&self) -> Result<Option<String>, RpcError> {
        let key = match self.request.meta_value(CALL_KEY) {
            None => return Ok(None),
            Some(Value::String(key)) if (1..=MAX_CALL_KEY).contains(&key.len()) => key,
            Some(_) => {
                let reason =
                    format!("_meta.{CALL_KEY}: must be a text of 1 to {MAX_CALL_KEY} bytes");
                return Err(RpcError::params(reason));
            }
        };
        let parts = [&self.caller.connection.principal, key, &digest(self.request)];
        Ok(Some(format!("call:{}", digest_of(&parts.map(String::as_str).join("\0")))))
    }

    /// Refuses a caller without a capability that the agent requires, before there is a run.
    fn check_capabilities(&self, agent: &dyn DurableAgent) -> Result<(), RpcError> {
        let mut missing = JsonObject::new();
        for kind in agent.required_questions() {
            if !self.caller.can_answer(*kind) {
                missing.insert(capability(*kind).to_owned(), json!({}));
            }
        }
        // In the older era a call that lasts is answered with the run, to come back for.
        let must_leave = agent.caller_wait_policy() == CallerWaitPolicy::Leaves;
        if must_leave && self.caller.era == ProtocolEra::Modern && !self.caller.has_tasks() {
            missing.extend(crate::catalogue::object(tasks::required()));
        }
        if missing.is_empty() { Ok(()) } else { Err(RpcError::capability(&Value::Object(missing))) }
    }

    /// Answers that came with the request.
    fn responses(&self) -> Result<JsonObject, RpcError> {
        match self.request.params.get("inputResponses") {
            _ if self.caller.era == ProtocolEra::Legacy => Ok(JsonObject::new()),
            None => Ok(JsonObject::new()),
            Some(Value::Object(responses)) => Ok(responses.clone()),
            Some(_) => Err(RpcError::params("inputResponses: must be an object")),
        }
    }

    /// Continues a call whose earlier answer asked for input. A caller that leaves gets a task once
    /// there is nothing more to ask.
    async fn continue_call(
        &self,
        shape: AnswerShape,
        wait: bool,
        leaves: bool,
    ) -> Result<RequestAnswer, RpcError> {
        let refused = || {
            RpcError::params(
                "requestState: is unknown, used, too old, or of another request: call again \
                 without it",
            )
        };
        let Some(Value::String(ticket)) = self.request.params.get("requestState") else {
            return Err(refused());
        };
        let responses = self.responses()?;
        let (app, connection) = (&self.mcp.app, &self.caller.connection);
        let (tenant, principal) = (&connection.tenant, &connection.principal);
        let digest = digest(self.request);
        let secret = SecretToken::from_caller(ticket);
        let responses_digest = digest_of_value(&Value::Object(responses.clone()));
        let (used, waiting, answered) = loop {
            let ticket = app.tenancy.ticket(tenant, principal, &secret, &digest).await?;
            let ticket = ticket.ok_or_else(refused)?;
            let used = ticket.value.used_with(&responses_digest).ok_or_else(refused)?;
            let run = app.runtime.load_run(tenant, &used.run).await?.value;
            let asked = used.asked.iter();
            let answers = asked.filter_map(|(key, question)| Some((question, responses.get(key)?)));
            let answers = clear_answers(&run, answers);
            let waiting = self.waiting_with(&used)?;
            match app.runtime.answer_run_with(&used, ticket.version, &answers).await {
                Ok(Some(answered)) => break (used, waiting, answered),
                // The same request came twice at once.
                Ok(None) => waiting.into_iter().for_each(WaitingCaller::answered),
                Err(error) => {
                    waiting.into_iter().for_each(WaitingCaller::answered);
                    return Err(error.into());
                }
            }
        };
        let view = app.runtime.run(tenant, &used.run).await?;
        let still_asks = view.run.questions.iter().any(|q| used.asked.values().any(|a| *a == q.id));
        if view.run.status == RunStatus::Waiting && still_asks && answered == 0 {
            waiting.into_iter().for_each(WaitingCaller::answered);
            let again = input_required(app, self.caller, &view.run, &digest, used.after).await?;
            return Ok(RequestAnswer::Now(Ok(finish_result(self.caller, again))));
        }
        if leaves && view.run.questions.is_empty() {
            return Ok(self.task(&view, waiting));
        }
        let now = app.runtime.store().now().await.map_err(AppError::from)?;
        let until = (!wait).then(|| now + self.mcp.options.patience);
        let spec = self.template(shape, until).call_of(&view.run.id, used.after);
        let call = self.follow(0, spec, used.after, waiting).await?;
        Ok(RequestAnswer::Follow(Box::new(call)))
    }

    /// The wait of a caller that goes on by a ticket; none for a call with a key.
    fn waiting_with(&self, used: &CallContinuation) -> Result<Option<WaitingCaller>, RpcError> {
        if self.call_key()?.is_some() {
            return Ok(None);
        }
        let McpCaller { connection, cancel_token, .. } = self.caller;
        let ticket = TicketUse {
            id: used.id.clone(),
            number: used.uses,
            repeat_time: self.mcp.options.repeat_time,
        };
        let waiting = WaitingCaller::of(&self.mcp.app, &connection.tenant, &used.run, cancel_token);
        Ok(Some(waiting.with_ticket(ticket)))
    }

    fn origin(&self) -> Value {
        let McpCaller { connection, .. } = self.caller;
        let kinds = QuestionKind::ALL.into_iter();
        let cannot_answer: Vec<_> = kinds.filter(|kind| !self.caller.can_answer(*kind)).collect();
        let own = self.caller.session.as_ref().map(|own| own.session.id.to_string());
        json!({
            "door": "mcp",
            "principal": connection.principal,
            "connection": connection.id,
            "who": self.who,
            "lane": self.caller.identity,
            "session": own.as_ref().or(self.who.hook_session.as_ref()),
            "cannot_answer": cannot_answer,
        })
    }
}

impl McpService {
    /// Answers those questions that are open and whose response is an answer; returns how many.
    pub(crate) async fn answer_questions<'a>(
        &self,
        run: &Run,
        responses: impl Iterator<Item = (&'a QuestionId, &'a Value)>,
    ) -> Result<usize, RpcError> {
        let mut answered = 0;
        for (question, answer) in clear_answers(run, responses) {
            match self.app.runtime.answer_run(&run.tenant, &run.id, &question, answer).await {
                Ok(_) => answered += 1,
                // Answered elsewhere meanwhile, or an answer that does not fit: asked again.
                Err(AppError::NotFound { .. } | AppError::NotNow(_) | AppError::Invalid { .. }) => {
                }
                Err(other) => return Err(other.into()),
            }
        }
        Ok(answered)
    }
}

/// The responses that are answers to open questions.
fn clear_answers<'a>(
    run: &Run,
    responses: impl Iterator<Item = (&'a QuestionId, &'a Value)>,
) -> Vec<(QuestionId, QuestionAnswer)> {
    let answers = responses.filter_map(|(id, response)| {
        let question = run.questions.iter().find(|open| open.id == *id)?;
        Some((id.clone(), clear_answer(question.kind, response)?))
    });
    answers.collect()
}
