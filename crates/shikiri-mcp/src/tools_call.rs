//! `tools/call` and `prompts/get`: answered at once, or by following a run.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde::Serialize;
use serde_json::{Value, json};
use shikiri_model::event::{NewEvent, Seq};
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::key::SecretToken;
use shikiri_model::run::{QuestionAnswer, QuestionKind, Run, RunStatus, run_stream};
use shikiri_model::team::{RefusalCode, TeamRefusal, ToolPermission};
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;
use shikiri_runtime::run::{CallerWaitPolicy, DurableAgent, NewRun};

use crate::catalogue::{CALL_KEY, RunWaitRequest, ToolBackend};
use crate::mcp_caller::{McpCaller, ProtocolEra};
use crate::message::{self, RpcRequest};
use crate::request_digest::{digest, digest_of};
use crate::rpc_error::RpcError;
use crate::run_follower::{AnswerShape, CallAttribution, CallSpec, RunFollower, input_required};
use crate::run_questions::{capability, clear_answer};
use crate::run_view::tool_error;
use crate::server::{McpService, RequestAnswer, finish_result};
use crate::tasks;
use crate::tools::RunToolErrorCode;

/// How Claude Code marks a call, on every connection that its subagents share.
const TOOL_USE_ID: &str = "claudecode/toolUseId";
const MAX_CALL_KEY: usize = 200;

pub(crate) async fn call_tool(
    mcp: &Arc<McpService>,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<RequestAnswer, RpcError> {
    let name = request.text("name")?;
    let arguments = arguments(request)?;
    let tool = mcp.catalogue.tools.get(name);
    let tool = tool.ok_or_else(|| RpcError::params(format!("there is no tool {name:?}")))?;
    let who = find_attribution(mcp, caller, request).await;
    let identity = caller.identity.clone().for_subagent(who.agent_id.as_deref());
    let caller = &McpCaller { identity, ..caller.clone() };
    let call = ToolCallRequest { mcp, caller, request, name, who };
    if let Err(refusal) = check_session(caller, name, tool.permission) {
        let refused = tool_error(refusal.code.as_str(), &refusal.message);
        return call.answer_immediately(Ok(refused)).await;
    }
    match &tool.backend {
        ToolBackend::Server(tool) => match tool.follows(&arguments) {
            Some(following) => call.wait_for_run(following).await,
            None => call.answer_immediately(tool.call(caller, &arguments).await).await,
        },
        ToolBackend::Agent(agent) => {
            let (wait, input) = match without_wait(arguments) {
                Ok(split) => split,
                Err(refused) => return call.answer_immediately(Ok(refused)).await,
            };
            call.call_agent(agent.as_ref(), input, wait, AnswerShape::Tool).await
        }
    }
}

/// A session opens nothing but team tools. What a team tool requires is checked when it is called:
/// its arguments may name another session.
fn check_session(
    caller: &McpCaller,
    tool: &str,
    permission: Option<ToolPermission>,
) -> Result<(), TeamRefusal> {
    if caller.session.is_none() || permission.is_some() {
        return Ok(());
    }
    let message = format!("{tool} is not a tool for sessions: `help` lists those that are");
    Err(RefusalCode::ToolNotAllowed.because(message))
}

pub(crate) async fn get_prompt(
    mcp: &Arc<McpService>,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<RequestAnswer, RpcError> {
    let name = request.text("name")?;
    let arguments = arguments(request)?;
    let found = mcp.catalogue.prompt(caller, name);
    let prompt = found.ok_or_else(|| RpcError::params(format!("there is no prompt {name:?}")))?;
    match prompt.agent() {
        Some(agent) => {
            let agent = mcp.app.runtime.agent(agent);
            let agent = agent.ok_or_else(|| RpcError::internal("nobody here makes this prompt"))?;
            let who = find_attribution(mcp, caller, request).await;
            let call = ToolCallRequest { mcp, caller, request, name, who };
            let input = Value::Object(arguments);
            call.call_agent(agent.as_ref(), input, true, AnswerShape::Prompt).await
        }
        None => {
            let result = prompt.get(caller, &arguments).await?;
            Ok(RequestAnswer::Now(Ok(finish_result(caller.era, result))))
        }
    }
}

fn arguments(request: &RpcRequest) -> Result<JsonObject, RpcError> {
    match request.params.get("arguments") {
        None | Some(Value::Null) => Ok(JsonObject::new()),
        Some(Value::Object(arguments)) => Ok(arguments.clone()),
        Some(_) => Err(RpcError::params("arguments: must be an object")),
    }
}

/// Splits off `wait`, which says whether the caller stays to the end, from the agent's arguments.
fn without_wait(mut arguments: JsonObject) -> Result<(bool, Value), Value> {
    let wait = match arguments.remove("wait") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(wait)) => wait,
        Some(_) => {
            return Err(tool_error(
                RunToolErrorCode::InvalidArgument.as_str(),
                "wait: must be true or false",
            ));
        }
    };
    Ok((wait, Value::Object(arguments)))
}

/// A request for a tool or a prompt.
struct ToolCallRequest<'a> {
    mcp: &'a Arc<McpService>,
    caller: &'a McpCaller,
    request: &'a RpcRequest,
    name: &'a str,
    who: CallAttribution,
}

/// Finds the subagent that makes a request. Only calls that Claude Code marks are looked up.
async fn find_attribution(
    mcp: &McpService,
    caller: &McpCaller,
    request: &RpcRequest,
) -> CallAttribution {
    let tool_use_id = request.meta_value(TOOL_USE_ID).and_then(Value::as_str);
    // The client chose it, so its length is bounded.
    let tool_use_id: Option<String> = tool_use_id.map(|id| id.chars().take(100).collect());
    let instance = caller.identity.instance.clone();
    let mut who = CallAttribution { instance, tool_use_id, ..CallAttribution::default() };
    if let Some(id) = who.tool_use_id.as_ref().filter(|id| !id.contains('\0')) {
        match mcp.app.subagents.who_called(&caller.connection.tenant, id).await {
            Ok(Some(by)) => {
                (who.agent_id, who.agent_type, who.role) = (by.agent_id, by.agent_type, by.role);
                who.hook_session = Some(by.session_id);
            }
            Ok(None) => {}
            // The call is worth more than the name of its caller.
            Err(error) => tracing::warn!(%error, "who called could not be looked up"),
        }
    }
    who
}

/// A call that was answered at once.
#[derive(Serialize)]
struct ImmediateCallEvent<'a> {
    id: &'a Value,
    name: &'a str,
    #[serde(flatten)]
    who: &'a CallAttribution,
    is_error: bool,
}

impl ToolCallRequest<'_> {
    /// Records the call, then answers.
    async fn answer_immediately(
        &self,
        outcome: Result<Value, RpcError>,
    ) -> Result<RequestAnswer, RpcError> {
        let McpCaller { era, connection, .. } = self.caller;
        let outcome = outcome.map(|result| finish_result(*era, result));
        let is_error = outcome.as_ref().map_or(true, |result| result["isError"] == json!(true));
        let call =
            ImmediateCallEvent { id: &self.request.id, name: self.name, who: &self.who, is_error };
        let event = NewEvent::new("call", &call).map_err(AppError::from)?;
        let number = self.mcp.app.tenancy.note_on_connection(connection, event).await?;
        Ok(match era {
            ProtocolEra::Legacy => {
                let text = message::reply(&self.request.id, &outcome);
                RequestAnswer::Logged { number, text }
            }
            ProtocolEra::Modern => RequestAnswer::Now(outcome),
        })
    }

    /// `run_wait`: the run is there, and the caller only watches.
    async fn wait_for_run(
        &self,
        following: Result<RunWaitRequest, RpcError>,
    ) -> Result<RequestAnswer, RpcError> {
        let following = match following {
            Ok(following) => following,
            Err(fault) => {
                return self
                    .answer_immediately(Ok(tool_error(
                        RunToolErrorCode::InvalidArgument.as_str(),
                        &fault.message,
                    )))
                    .await;
            }
        };
        let (app, connection) = (&self.mcp.app, &self.caller.connection);
        // Before the run is looked at: what happens in between must not be passed over.
        let head =
            app.runtime.store().stream(&connection.tenant, &run_stream(&following.run)).await;
        let head = head.map_err(AppError::from)?.map_or(0, |state| state.extent.head);
        let view = match app.runtime.run(&connection.tenant, &following.run).await {
            Ok(view) => view,
            Err(AppError::NotFound { .. }) => {
                let message = format!("there is no run {}", following.run);
                return self
                    .answer_immediately(Ok(tool_error(
                        RunToolErrorCode::RunNotFound.as_str(),
                        &message,
                    )))
                    .await;
            }
            Err(error) => return Err(error.into()),
        };
        let settled = view.run.status.is_terminal() || !view.run.questions.is_empty();
        if settled || following.max_seconds == 0 {
            return self.answer_immediately(Ok(crate::run_view::status_result(&view))).await;
        }
        let now = app.runtime.store().now().await.map_err(AppError::from)?;
        let until = now + std::time::Duration::from_secs(following.max_seconds);
        let spec = self.spec(&view.run.id, AnswerShape::Wait, head, Some(until));
        let number = app.tenancy.note_on_connection(connection, spec.event()).await?;
        let call = self.follow(number, spec, head).await?;
        Ok(RequestAnswer::Follow(Box::new(call)))
    }

    async fn call_agent(
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
        let (app, connection) = (&self.mcp.app, &self.caller.connection);
        let now = app.runtime.store().now().await.map_err(AppError::from)?;
        let until = (!wait).then(|| now + self.mcp.options.patience);
        let new = NewRun {
            agent: agent.name().to_owned(),
            input,
            idempotency_key: self.call_key()?,
            origin: Some(self.origin()),
        };
        let call = |run: &RunId| self.spec(run, shape, 0, until).event();
        let (view, number) = match app.tenancy.start_called_run(connection, new, call).await {
            Ok(started) => started,
            Err(AppError::Invalid { field: "input", reason }) => {
                let refused = tool_error(RunToolErrorCode::InvalidArgument.as_str(), &reason);
                return self.answer_immediately(Ok(refused)).await;
            }
            Err(error) => return Err(error.into()),
        };
        if can_leave && matches!(attendance, CallerWaitPolicy::MayLeave | CallerWaitPolicy::Leaves)
        {
            return Ok(RequestAnswer::Now(Ok(finish_result(
                self.caller.era,
                tasks::created(&view, app),
            ))));
        }
        let spec = self.spec(&view.run.id, shape, 0, until);
        let call = self.follow(number, spec, 0).await?;
        Ok(RequestAnswer::Follow(Box::new(call.with_answers(prepared_answers))))
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
        let ticket =
            app.tenancy.ticket(tenant, principal, &secret, &digest).await?.ok_or_else(refused)?;
        let continuation = &ticket.value;
        let view = app.runtime.run(tenant, &continuation.run).await?;
        let asked = continuation.asked.iter();
        let answers = asked.filter_map(|(key, question)| Some((question, responses.get(key)?)));
        let answers = clear_answers(&view.run, answers);
        let answered = if answers.is_empty() {
            app.tenancy.redeem_ticket(tenant, principal, &secret, &digest).await?.map(|_| 0)
        } else {
            app.runtime.answer_run_with(&ticket, &answers).await?
        };
        let answered = answered.ok_or_else(refused)?;
        let view = app.runtime.run(tenant, &continuation.run).await?;
        let asks = view.run.status == RunStatus::Waiting && !view.run.questions.is_empty();
        if asks && answered == 0 {
            let again =
                input_required(app, self.caller, &view.run, &digest, continuation.after).await?;
            return Ok(RequestAnswer::Now(Ok(finish_result(self.caller.era, again))));
        }
        if leaves && view.run.questions.is_empty() {
            return Ok(RequestAnswer::Now(Ok(finish_result(
                self.caller.era,
                tasks::created(&view, app),
            ))));
        }
        let now = app.runtime.store().now().await.map_err(AppError::from)?;
        let until = (!wait).then(|| now + self.mcp.options.patience);
        let spec = self.spec(&view.run.id, shape, continuation.after, until);
        let call = self.follow(0, spec, continuation.after).await?;
        Ok(RequestAnswer::Follow(Box::new(call)))
    }

    async fn follow(
        &self,
        number: Seq,
        spec: CallSpec,
        after: Seq,
    ) -> Result<RunFollower, RpcError> {
        let number = (self.caller.era == ProtocolEra::Legacy).then_some(number);
        let digest = digest(self.request);
        Ok(RunFollower::follow(&self.mcp.app, self.caller, number, spec, digest, after).await?)
    }

    fn spec(
        &self,
        run: &RunId,
        shape: AnswerShape,
        after: Seq,
        until: Option<Timestamp>,
    ) -> CallSpec {
        let token = self.request.meta_value("progressToken");
        CallSpec {
            id: self.request.id.clone(),
            shape,
            name: self.name.to_owned(),
            run_id: run.clone(),
            after,
            until,
            progress_token: token.filter(|token| message::is_id(token)).cloned(),
            log_level: self.caller.log_level,
            who: self.who.clone(),
        }
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
