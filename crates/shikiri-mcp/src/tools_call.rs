//! `tools/call` and `prompts/get`: answered at once, or by following a run.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde::Serialize;
use serde_json::{Value, json};
use shikiri_model::event::{NewEvent, Seq};
use shikiri_model::run::run_stream;
use shikiri_model::team::{RefusalCode, TeamRefusal, ToolPermission};
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;

use crate::catalogue::{RunWaitRequest, ToolBackend};
use crate::mcp_caller::{McpCaller, ProtocolEra};
use crate::message::{self, RpcRequest};
use crate::request_digest::digest;
use crate::rpc_error::RpcError;
use crate::run_follower::{
    AnswerShape, CallAttribution, CallSpec, CallTemplate, RunFollower, WaitingCaller,
};
use crate::run_view::tool_error;
use crate::server::{McpService, RequestAnswer, finish_result};
use crate::tools::RunToolErrorCode;

/// How Claude Code marks a call, on every connection that its subagents share.
const TOOL_USE_ID: &str = "claudecode/toolUseId";

pub(crate) async fn call_tool(
    mcp: &Arc<McpService>,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<RequestAnswer, RpcError> {
    let name = request.text("name")?;
    let arguments = arguments(request)?;
    let tool = mcp.catalogue.tool(caller, name).ok_or_else(|| {
        let is_left_out = mcp.catalogue.tools.contains_key(name);
        let among = if is_left_out { " in the groups that were asked for" } else { "" };
        RpcError::params(format!("there is no tool {name:?}{among}"))
    })?;
    let who = find_attribution(mcp, caller, request).await;
    let mut identity = caller.identity.clone();
    if identity.is_shared
        && let Some(session) = &who.hook_session
    {
        identity = identity.told_apart_by(session);
    }
    let identity = identity.for_subagent(who.agent_id.as_deref());
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
            Ok(RequestAnswer::Now(Ok(finish_result(caller, result))))
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
pub(crate) struct ToolCallRequest<'a> {
    pub(crate) mcp: &'a Arc<McpService>,
    pub(crate) caller: &'a McpCaller,
    pub(crate) request: &'a RpcRequest,
    name: &'a str,
    pub(crate) who: CallAttribution,
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
    pub(crate) async fn answer_immediately(
        &self,
        outcome: Result<Value, RpcError>,
    ) -> Result<RequestAnswer, RpcError> {
        let McpCaller { era, connection, .. } = self.caller;
        let outcome = outcome.map(|result| finish_result(self.caller, result));
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
        let spec = self.template(AnswerShape::Wait, Some(until)).call_of(&view.run.id, head);
        let number = app.tenancy.note_on_connection(connection, spec.event()).await?;
        let call = self.follow(number, spec, head, None).await?;
        Ok(RequestAnswer::Follow(Box::new(call)))
    }

    pub(crate) async fn follow(
        &self,
        number: Seq,
        spec: CallSpec,
        after: Seq,
        waiting: Option<WaitingCaller>,
    ) -> Result<RunFollower, RpcError> {
        let number = (self.caller.era == ProtocolEra::Legacy).then_some(number);
        let digest = digest(self.request);
        let call =
            RunFollower::follow(&self.mcp.app, self.caller, number, spec, digest, after).await?;
        Ok(call.depending_on(waiting))
    }

    pub(crate) fn template(&self, shape: AnswerShape, until: Option<Timestamp>) -> CallTemplate {
        let token = self.request.meta_value("progressToken");
        CallTemplate {
            id: self.request.id.clone(),
            shape,
            name: self.name.to_owned(),
            until,
            progress_token: token.filter(|token| message::is_id(token)).cloned(),
            log_level: self.caller.log_level,
            who: self.who.clone(),
        }
    }
}
