//! `tools/call` and `prompts/get`: answered at once, or by following a run.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use shikiri_app::AppError;
use shikiri_app::run::{NewRun, RunView};
use shikiri_model::event::{NewEvent, Seq};
use shikiri_model::ids::RunId;
use shikiri_model::key::Secret;
use shikiri_model::run::RunStatus;
use shikiri_model::time::Timestamp;

use crate::call::{Call, CallSpec, Shape, Who, input_required};
use crate::catalogue::{Following, Offer};
use crate::client::{Caller, Era};
use crate::fault::Fault;
use crate::message::{self, Request};
use crate::question::answer_of;
use crate::run_view::tool_error;
use crate::server::{Answered, Mcp, finish};
use crate::tasks;

/// How Claude Code marks a call, on every connection that its subagents share.
const TOOL_USE_ID: &str = "claudecode/toolUseId";

pub(crate) async fn call_tool(
    mcp: &Arc<Mcp>,
    caller: &Caller,
    request: &Request,
) -> Result<Answered, Fault> {
    let name = request.text("name")?;
    let arguments = arguments(request)?;
    let listing = mcp.catalogue.tools.get(name);
    let listing = listing.ok_or_else(|| Fault::params(format!("there is no tool {name:?}")))?;
    let asking = Asking { mcp, caller, request, name };
    match &listing.offer {
        Offer::Short(tool) => match tool.follows(&arguments) {
            Some(following) => asking.wait_for_run(following).await,
            None => asking.answer_short(tool.call(caller, &arguments).await).await,
        },
        Offer::Agent(agent) => {
            let (wait, input) = match without_wait(arguments) {
                Ok(split) => split,
                Err(refused) => return asking.answer_short(Ok(refused)).await,
            };
            asking.call_agent(agent.name(), input, wait, Shape::Tool).await
        }
    }
}

pub(crate) async fn get_prompt(
    mcp: &Arc<Mcp>,
    caller: &Caller,
    request: &Request,
) -> Result<Answered, Fault> {
    let name = request.text("name")?;
    let arguments = arguments(request)?;
    let found = mcp.catalogue.prompts.get(name);
    let prompt = found.ok_or_else(|| Fault::params(format!("there is no prompt {name:?}")))?;
    match prompt.agent() {
        Some(agent) => {
            let asking = Asking { mcp, caller, request, name };
            asking.call_agent(agent, Value::Object(arguments), true, Shape::Prompt).await
        }
        None => {
            let result = prompt.get(caller, &arguments).await?;
            Ok(Answered::Now(Ok(finish(caller.era, result))))
        }
    }
}

fn arguments(request: &Request) -> Result<JsonObject, Fault> {
    match request.params.get("arguments") {
        None | Some(Value::Null) => Ok(JsonObject::new()),
        Some(Value::Object(arguments)) => Ok(arguments.clone()),
        Some(_) => Err(Fault::params("arguments: must be an object")),
    }
}

/// Whether the caller stays to the end, and what is the agent's.
fn without_wait(mut arguments: JsonObject) -> Result<(bool, Value), Value> {
    let wait = match arguments.remove("wait") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(wait)) => wait,
        Some(_) => return Err(tool_error("invalid_argument", "wait: must be true or false")),
    };
    Ok((wait, Value::Object(arguments)))
}

/// A request for a tool or a prompt.
struct Asking<'a> {
    mcp: &'a Arc<Mcp>,
    caller: &'a Caller,
    request: &'a Request,
    name: &'a str,
}

/// A call that was answered at once.
#[derive(Serialize)]
struct ShortCall<'a> {
    id: &'a Value,
    name: &'a str,
    #[serde(flatten)]
    who: Who,
    is_error: bool,
    /// Kept where it may be read again.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<&'a RawValue>,
}

impl Asking<'_> {
    /// Writes the call down, then answers.
    async fn answer_short(&self, outcome: Result<Value, Fault>) -> Result<Answered, Fault> {
        let Caller { era, connection, .. } = self.caller;
        let outcome = outcome.map(|result| finish(*era, result));
        let is_error = outcome.as_ref().map_or(true, |result| result["isError"] == json!(true));
        let reply = message::raw(message::reply(&self.request.id, &outcome));
        let call = ShortCall {
            id: &self.request.id,
            name: self.name,
            who: self.who(),
            is_error,
            reply: (*era == Era::Legacy).then_some(&*reply),
        };
        let event = NewEvent::new("call", &call).map_err(AppError::from)?;
        let number = self.mcp.app.note_on_connection(connection, event).await?;
        Ok(match era {
            Era::Legacy => Answered::Logged { number, text: reply.get().to_owned() },
            Era::Modern => Answered::Now(outcome),
        })
    }

    /// `run_wait`: the run is there, and the caller only watches.
    async fn wait_for_run(&self, following: Result<Following, Fault>) -> Result<Answered, Fault> {
        let following = match following {
            Ok(following) => following,
            Err(fault) => {
                return self.answer_short(Ok(tool_error("invalid_argument", &fault.message))).await;
            }
        };
        let (app, connection) = (&self.mcp.app, &self.caller.connection);
        let view = match app.run(&connection.tenant, &following.run).await {
            Ok(view) => view,
            Err(AppError::NotFound { .. }) => {
                let message = format!("there is no run {}", following.run);
                return self.answer_short(Ok(tool_error("run_not_found", &message))).await;
            }
            Err(error) => return Err(error.into()),
        };
        let head = app.store().stream(&connection.tenant, &view.run.stream()).await;
        let head = head.map_err(AppError::from)?.map_or(0, |state| state.extent.head);
        let settled = view.run.status.is_terminal() || !view.run.questions.is_empty();
        if settled || following.max_seconds == 0 {
            return self.answer_short(Ok(crate::run_view::status_result(&view))).await;
        }
        let now = app.store().now().await.map_err(AppError::from)?;
        let until = now + std::time::Duration::from_secs(following.max_seconds);
        let spec = self.spec(&view.run.id, Shape::Wait, head, Some(until));
        let number = app.note_on_connection(connection, spec.event()).await?;
        self.follow(number, spec, head).await
    }

    async fn call_agent(
        &self,
        agent: &str,
        input: Value,
        wait: bool,
        shape: Shape,
    ) -> Result<Answered, Fault> {
        if self.caller.era == Era::Modern && self.request.params.contains_key("requestState") {
            return self.go_on(shape).await;
        }
        let (app, connection) = (&self.mcp.app, &self.caller.connection);
        let now = app.store().now().await.map_err(AppError::from)?;
        let until = (!wait).then(|| now + self.mcp.options.patience);
        let new = NewRun {
            agent: agent.to_owned(),
            input,
            idempotency_key: None,
            origin: Some(self.origin()),
        };
        let call = |run: &RunId| self.spec(run, shape, 0, until).event();
        let (view, number) = match app.start_called_run(connection, new, call).await {
            Ok(started) => started,
            Err(AppError::Invalid { field: "input", reason }) => {
                let refused = tool_error("invalid_argument", &reason);
                return self.answer_short(Ok(refused)).await;
            }
            Err(error) => return Err(error.into()),
        };
        if self.caller.has_tasks() && !wait && shape == Shape::Tool {
            return Ok(Answered::Now(Ok(finish(self.caller.era, tasks::created(&view, app)))));
        }
        let spec = self.spec(&view.run.id, shape, 0, until);
        self.follow(number, spec, 0).await
    }

    /// The caller brings what an earlier answer asked for.
    async fn go_on(&self, shape: Shape) -> Result<Answered, Fault> {
        let params = &self.request.params;
        let refused = || {
            Fault::params(
                "requestState: is unknown, used, too old, or of another request: call again \
                 without it",
            )
        };
        let Some(Value::String(ticket)) = params.get("requestState") else {
            return Err(refused());
        };
        let responses = match params.get("inputResponses") {
            None => JsonObject::new(),
            Some(Value::Object(responses)) => responses.clone(),
            Some(_) => return Err(Fault::params("inputResponses: must be an object")),
        };
        let (app, connection) = (&self.mcp.app, &self.caller.connection);
        let (tenant, principal) = (&connection.tenant, &connection.principal);
        let digest = digest(self.request);
        let ticket = Secret::from_caller(ticket);
        let redeemed = app.redeem_ticket(tenant, principal, &ticket, &digest).await?;
        let continuation = redeemed.ok_or_else(refused)?;
        let view = app.run(tenant, &continuation.run).await?;
        let answered = self.mcp.answer_questions(&view, &responses).await?;
        let view = app.run(tenant, &continuation.run).await?;
        let asks = view.run.status == RunStatus::Waiting && !view.run.questions.is_empty();
        if asks && answered == 0 {
            let again =
                input_required(app, self.caller, &view.run, &digest, continuation.after).await?;
            return Ok(Answered::Now(Ok(finish(self.caller.era, again))));
        }
        let now = app.store().now().await.map_err(AppError::from)?;
        let until = now + self.mcp.options.patience;
        let spec = self.spec(&view.run.id, shape, continuation.after, Some(until));
        self.follow(0, spec, continuation.after).await
    }

    async fn follow(&self, number: Seq, spec: CallSpec, after: Seq) -> Result<Answered, Fault> {
        let number = (self.caller.era == Era::Legacy).then_some(number);
        let digest = digest(self.request);
        let call = Call::follow(&self.mcp.app, self.caller, number, spec, digest, after).await?;
        Ok(Answered::Follow(Box::new(call)))
    }

    fn spec(&self, run: &RunId, shape: Shape, after: Seq, until: Option<Timestamp>) -> CallSpec {
        let token = self.request.meta_value("progressToken");
        CallSpec {
            id: self.request.id.clone(),
            shape,
            name: self.name.to_owned(),
            run_id: run.clone(),
            after,
            until,
            progress_token: token.filter(|t| t.is_string() || t.is_number()).cloned(),
            log_level: self.caller.log_level,
            who: self.who(),
        }
    }

    fn who(&self) -> Who {
        let tool_use_id = self.request.meta_value(TOOL_USE_ID).and_then(Value::as_str);
        // It is a client's word: kept, but not at any length.
        let tool_use_id = tool_use_id.map(|id| id.chars().take(100).collect());
        Who { instance: self.caller.instance.clone(), tool_use_id }
    }

    fn origin(&self) -> Value {
        let connection = &self.caller.connection;
        json!({
            "door": "mcp",
            "principal": connection.principal,
            "connection": connection.id,
            "who": self.who(),
        })
    }
}

impl Mcp {
    /// Answers those questions of the run that have a response; returns how many.
    pub(crate) async fn answer_questions(
        &self,
        view: &RunView,
        responses: &JsonObject,
    ) -> Result<usize, Fault> {
        let run = &view.run;
        let mut answered = 0;
        for question in &run.questions {
            let Some(response) = responses.get(question.id.as_str()) else { continue };
            let answer = answer_of(question.kind, &Ok(response.clone()));
            match self.app.answer_run(&run.tenant, &run.id, &question.id, answer).await {
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

/// Tells one request from another: method, name and arguments, however they are ordered.
fn digest(request: &Request) -> String {
    let mut text = request.method.clone();
    for name in ["name", "arguments"] {
        text.push('\0');
        if let Some(value) = request.params.get(name) {
            canonical(value, &mut text);
        }
    }
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.keys().collect();
            names.sort();
            text.push('{');
            for name in names {
                text.push_str(&Value::String(name.clone()).to_string());
                text.push(':');
                canonical(&fields[name], text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, params: Value) -> Request {
        let params = crate::catalogue::object(params);
        Request { id: json!(1), method: method.to_owned(), params }
    }

    #[test]
    fn a_request_is_the_same_however_its_arguments_are_ordered_and_no_other() {
        let first =
            request("tools/call", json!({ "name": "a", "arguments": { "x": 1, "y": [2] } }));
        let mut same = first.clone();
        same.id = json!("other");
        same.params.insert("requestState".to_owned(), json!("s"));
        same.params
            .insert("arguments".to_owned(), serde_json::from_str(r#"{"y":[2],"x":1}"#).unwrap());
        assert_eq!(digest(&first), digest(&same));
        for other in [
            request("prompts/get", json!({ "name": "a", "arguments": { "x": 1, "y": [2] } })),
            request("tools/call", json!({ "name": "b", "arguments": { "x": 1, "y": [2] } })),
            request("tools/call", json!({ "name": "a", "arguments": { "x": 1, "y": [3] } })),
            request("tools/call", json!({ "name": "a", "arguments": { "x": "1", "y": [2] } })),
            request("tools/call", json!({ "name": "a" })),
        ] {
            assert_ne!(digest(&first), digest(&other), "{other:?}");
        }
    }
}
