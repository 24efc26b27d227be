//! `tools/call` and `prompts/get`: answered at once, or by following a run.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde::Serialize;
use serde_json::{Value, json};
use shikiri_app::AppError;
use shikiri_app::run::{Agent, Attendance, NewRun};
use shikiri_model::event::{NewEvent, Seq};
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::key::Secret;
use shikiri_model::run::{Answer, QuestionKind, Run, RunStatus, stream_of};
use shikiri_model::team::{self, Refusal};
use shikiri_model::time::Timestamp;

use crate::call::{Call, CallSpec, Shape, Who, input_required};
use crate::catalogue::{CALL_KEY, Following, Offer};
use crate::client::{Caller, Era};
use crate::digest::{digest, digest_of};
use crate::fault::Fault;
use crate::message::{self, Request};
use crate::question::{capability, clear_answer};
use crate::run_view::tool_error;
use crate::server::{Answered, Mcp, finish};
use crate::tasks;

/// How Claude Code marks a call, on every connection that its subagents share.
const TOOL_USE_ID: &str = "claudecode/toolUseId";
const MAX_CALL_KEY: usize = 200;

pub(crate) async fn call_tool(
    mcp: &Arc<Mcp>,
    caller: &Caller,
    request: &Request,
) -> Result<Answered, Fault> {
    let name = request.text("name")?;
    let arguments = arguments(request)?;
    let listing = mcp.catalogue.tools.get(name);
    let listing = listing.ok_or_else(|| Fault::params(format!("there is no tool {name:?}")))?;
    let who = who(mcp, caller, request).await;
    let identity = caller.identity.clone().for_subagent(who.agent_id.as_deref());
    let caller = &Caller { identity, ..caller.clone() };
    let asking = Asking { mcp, caller, request, name, who };
    if let Err(refusal) = check_session(caller, name) {
        let refused = tool_error(refusal.code.as_str(), &refusal.message);
        return asking.answer_short(Ok(refused)).await;
    }
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
            asking.call_agent(agent.as_ref(), input, wait, Shape::Tool).await
        }
    }
}

/// A session opens nothing but team tools, and of those what each asks for is looked at when it is
/// called: the arguments may name another session.
fn check_session(caller: &Caller, tool: &str) -> Result<(), Refusal> {
    match &caller.session {
        Some(own) if team::need_of(tool).is_none() => {
            team::check(tool, team::Caller::Session(own.session.purpose))
        }
        _ => Ok(()),
    }
}

pub(crate) async fn get_prompt(
    mcp: &Arc<Mcp>,
    caller: &Caller,
    request: &Request,
) -> Result<Answered, Fault> {
    let name = request.text("name")?;
    let arguments = arguments(request)?;
    let found = mcp.catalogue.prompt(caller, name);
    let prompt = found.ok_or_else(|| Fault::params(format!("there is no prompt {name:?}")))?;
    match prompt.agent() {
        Some(agent) => {
            let agent = mcp.app.agent(agent);
            let agent = agent.ok_or_else(|| Fault::internal("nobody here makes this prompt"))?;
            let who = who(mcp, caller, request).await;
            let asking = Asking { mcp, caller, request, name, who };
            let input = Value::Object(arguments);
            asking.call_agent(agent.as_ref(), input, true, Shape::Prompt).await
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
    who: Who,
}

/// On whose behalf a request is made. Only what Claude Code marks is looked up.
async fn who(mcp: &Mcp, caller: &Caller, request: &Request) -> Who {
    let tool_use_id = request.meta_value(TOOL_USE_ID).and_then(Value::as_str);
    // It is a client's word: kept, but not at any length.
    let tool_use_id: Option<String> = tool_use_id.map(|id| id.chars().take(100).collect());
    let instance = caller.identity.instance.clone();
    let mut who = Who { instance, tool_use_id, ..Who::default() };
    if let Some(id) = who.tool_use_id.as_ref().filter(|id| !id.contains('\0')) {
        match mcp.app.who_called(&caller.connection.tenant, id).await {
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
struct ShortCall<'a> {
    id: &'a Value,
    name: &'a str,
    #[serde(flatten)]
    who: &'a Who,
    is_error: bool,
}

impl Asking<'_> {
    /// Writes the call down, then answers.
    async fn answer_short(&self, outcome: Result<Value, Fault>) -> Result<Answered, Fault> {
        let Caller { era, connection, .. } = self.caller;
        let outcome = outcome.map(|result| finish(*era, result));
        let is_error = outcome.as_ref().map_or(true, |result| result["isError"] == json!(true));
        let call = ShortCall { id: &self.request.id, name: self.name, who: &self.who, is_error };
        let event = NewEvent::new("call", &call).map_err(AppError::from)?;
        let number = self.mcp.app.note_on_connection(connection, event).await?;
        Ok(match era {
            Era::Legacy => {
                let text = message::reply(&self.request.id, &outcome);
                Answered::Logged { number, text }
            }
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
        // Before the run is looked at: what happens in between must not be passed over.
        let head = app.store().stream(&connection.tenant, &stream_of(&following.run)).await;
        let head = head.map_err(AppError::from)?.map_or(0, |state| state.extent.head);
        let view = match app.run(&connection.tenant, &following.run).await {
            Ok(view) => view,
            Err(AppError::NotFound { .. }) => {
                let message = format!("there is no run {}", following.run);
                return self.answer_short(Ok(tool_error("run_not_found", &message))).await;
            }
            Err(error) => return Err(error.into()),
        };
        let settled = view.run.status.is_terminal() || !view.run.questions.is_empty();
        if settled || following.max_seconds == 0 {
            return self.answer_short(Ok(crate::run_view::status_result(&view))).await;
        }
        let now = app.store().now().await.map_err(AppError::from)?;
        let until = now + std::time::Duration::from_secs(following.max_seconds);
        let spec = self.spec(&view.run.id, Shape::Wait, head, Some(until));
        let number = app.note_on_connection(connection, spec.event()).await?;
        let call = self.follow(number, spec, head).await?;
        Ok(Answered::Follow(Box::new(call)))
    }

    async fn call_agent(
        &self,
        agent: &dyn Agent,
        input: Value,
        wait: bool,
        shape: Shape,
    ) -> Result<Answered, Fault> {
        self.check_capabilities(agent)?;
        let attendance = agent.attendance();
        let can_leave = self.caller.has_tasks() && shape == Shape::Tool && !wait;
        if self.caller.era == Era::Modern && self.request.params.contains_key("requestState") {
            let leaves = can_leave && attendance != Attendance::Stays;
            return self.go_on(shape, wait, leaves).await;
        }
        let brought = self.responses()?;
        let (app, connection) = (&self.mcp.app, &self.caller.connection);
        let now = app.store().now().await.map_err(AppError::from)?;
        let until = (!wait).then(|| now + self.mcp.options.patience);
        let new = NewRun {
            agent: agent.name().to_owned(),
            input,
            idempotency_key: self.call_key()?,
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
        if can_leave && matches!(attendance, Attendance::MayLeave | Attendance::Leaves) {
            return Ok(Answered::Now(Ok(finish(self.caller.era, tasks::created(&view, app)))));
        }
        let spec = self.spec(&view.run.id, shape, 0, until);
        let call = self.follow(number, spec, 0).await?;
        Ok(Answered::Follow(Box::new(call.bringing(brought))))
    }

    /// What the caller calls this call, good for nobody else and for no other request.
    fn call_key(&self) -> Result<Option<String>, Fault> {
        let key = match self.request.meta_value(CALL_KEY) {
            None => return Ok(None),
            Some(Value::String(key)) if (1..=MAX_CALL_KEY).contains(&key.len()) => key,
            Some(_) => {
                let reason =
                    format!("_meta.{CALL_KEY}: must be a text of 1 to {MAX_CALL_KEY} bytes");
                return Err(Fault::params(reason));
            }
        };
        let parts = [&self.caller.connection.principal, key, &digest(self.request)];
        Ok(Some(format!("call:{}", digest_of(&parts.map(String::as_str).join("\0")))))
    }

    /// Whoever lacks what the agent cannot do without is turned away before there is a run.
    fn check_capabilities(&self, agent: &dyn Agent) -> Result<(), Fault> {
        let mut missing = JsonObject::new();
        for kind in agent.insists_on() {
            if !self.caller.can_answer(*kind) {
                missing.insert(capability(*kind).to_owned(), json!({}));
            }
        }
        // In the older era a call that lasts is answered with the run, to come back for.
        let must_leave = agent.attendance() == Attendance::Leaves;
        if must_leave && self.caller.era == Era::Modern && !self.caller.has_tasks() {
            missing.extend(crate::catalogue::object(tasks::required()));
        }
        if missing.is_empty() { Ok(()) } else { Err(Fault::capability(&Value::Object(missing))) }
    }

    /// Answers that came with the request.
    fn responses(&self) -> Result<JsonObject, Fault> {
        match self.request.params.get("inputResponses") {
            _ if self.caller.era == Era::Legacy => Ok(JsonObject::new()),
            None => Ok(JsonObject::new()),
            Some(Value::Object(responses)) => Ok(responses.clone()),
            Some(_) => Err(Fault::params("inputResponses: must be an object")),
        }
    }

    /// The caller brings what an earlier answer asked for. If it leaves, it is let go once there
    /// is nothing more to be asked.
    async fn go_on(&self, shape: Shape, wait: bool, leaves: bool) -> Result<Answered, Fault> {
        let refused = || {
            Fault::params(
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
        let secret = Secret::from_caller(ticket);
        let ticket = app.ticket(tenant, principal, &secret, &digest).await?.ok_or_else(refused)?;
        let continuation = &ticket.value;
        let view = app.run(tenant, &continuation.run).await?;
        let asked = continuation.asked.iter();
        let answers = asked.filter_map(|(key, question)| Some((question, responses.get(key)?)));
        let answers = clear_answers(&view.run, answers);
        let answered = if answers.is_empty() {
            app.redeem_ticket(tenant, principal, &secret, &digest).await?.map(|_| 0)
        } else {
            app.answer_run_with(&ticket, &answers).await?
        };
        let answered = answered.ok_or_else(refused)?;
        let view = app.run(tenant, &continuation.run).await?;
        let asks = view.run.status == RunStatus::Waiting && !view.run.questions.is_empty();
        if asks && answered == 0 {
            let again =
                input_required(app, self.caller, &view.run, &digest, continuation.after).await?;
            return Ok(Answered::Now(Ok(finish(self.caller.era, again))));
        }
        if leaves && view.run.questions.is_empty() {
            return Ok(Answered::Now(Ok(finish(self.caller.era, tasks::created(&view, app)))));
        }
        let now = app.store().now().await.map_err(AppError::from)?;
        let until = (!wait).then(|| now + self.mcp.options.patience);
        let spec = self.spec(&view.run.id, shape, continuation.after, until);
        let call = self.follow(0, spec, continuation.after).await?;
        Ok(Answered::Follow(Box::new(call)))
    }

    async fn follow(&self, number: Seq, spec: CallSpec, after: Seq) -> Result<Call, Fault> {
        let number = (self.caller.era == Era::Legacy).then_some(number);
        let digest = digest(self.request);
        Ok(Call::follow(&self.mcp.app, self.caller, number, spec, digest, after).await?)
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
            progress_token: token.filter(|token| message::is_id(token)).cloned(),
            log_level: self.caller.log_level,
            who: self.who.clone(),
        }
    }

    fn origin(&self) -> Value {
        let Caller { connection, .. } = self.caller;
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

impl Mcp {
    /// Answers those questions that are open and whose response is an answer; returns how many.
    pub(crate) async fn answer_questions<'a>(
        &self,
        run: &Run,
        responses: impl Iterator<Item = (&'a QuestionId, &'a Value)>,
    ) -> Result<usize, Fault> {
        let mut answered = 0;
        for (question, answer) in clear_answers(run, responses) {
            match self.app.answer_run(&run.tenant, &run.id, &question, answer).await {
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
) -> Vec<(QuestionId, Answer)> {
    let answers = responses.filter_map(|(id, response)| {
        let question = run.questions.iter().find(|open| open.id == *id)?;
        Some((id.clone(), clear_answer(question.kind, response)?))
    });
    answers.collect()
}
