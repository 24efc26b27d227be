//! The team tools at work: whose session calls, with what, and the use case that answers.

use std::time::Duration;

use rmcp::model::JsonObject;
use serde::Serialize;
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_app::team::{Conversation, Desk, Login, TeamError};
use shikiri_model::key::Secret;
use shikiri_model::team::{
    Caller as Who, DelegationStatus, DialogueState, Purpose, RefusalCode, TaskStatus, check,
};

use super::definitions::Definition;
use super::fields::Given;
use super::views;
use crate::client::{Caller, Era};
use crate::shown;

/// The longest that a call waits; who wants longer calls again.
const MAX_WAIT_SECONDS: f64 = 30.0;

pub(super) async fn call(
    app: &App,
    caller: &Caller,
    tool: &Definition,
    arguments: &JsonObject,
) -> Result<Value, TeamError> {
    let fields = tool.fields();
    if tool.name == "authenticate" {
        // Some give their token with every call, also with the one that needs none.
        let mut arguments = arguments.clone();
        arguments.remove("session_token");
        let given = Given::read(&fields, &arguments)?;
        return authenticate(app, caller, &given).await;
    }
    // Who may not call at all is told that, and nothing about the arguments.
    let token = token(caller, tool.name, arguments)?;
    let desk = app.enter_session(&token, tool.name).await?;
    let given = Given::read(&fields, arguments)?;
    let mut desk = desk.until(caller.given_up.clone());
    let answer = match tool.name {
        "help"
        | "get_next_action"
        | "report_completed"
        | "delegate_to_chat_session"
        | "get_delegation" => work(&mut desk, tool.name, &given).await,
        _ => talk(&mut desk, tool.name, &given).await,
    };
    caller.receipts.add(desk.take_receipt());
    answer
}

/// The one in the arguments wins over the header's, within one tenant.
fn token(caller: &Caller, tool: &str, arguments: &JsonObject) -> Result<Secret, TeamError> {
    let refused = |message: &str| Err(RefusalCode::NotAuthenticated.because(message).into());
    match arguments.get("session_token") {
        None | Some(Value::Null) => {}
        Some(Value::String(token)) => {
            let token = Secret::from_caller(token);
            if token.session_tenant().as_ref() != Some(&caller.connection.tenant) {
                return refused("this session_token opens no session here: call authenticate");
            }
            return Ok(token);
        }
        Some(_) => {
            let message = "session_token: must be a string";
            return Err(RefusalCode::InvalidArgument.because(message).into());
        }
    }
    match &caller.session {
        Some(session) => Ok(session.token.clone()),
        None => {
            check(tool, Who::Nobody)?;
            refused("call authenticate first")
        }
    }
}

async fn authenticate(app: &App, caller: &Caller, given: &Given<'_>) -> Result<Value, TeamError> {
    let login = Login {
        agent_id: given.text("agent_id").to_owned(),
        passkey: Secret::from_caller(given.text("passkey")),
        project_id: given.text("project_id").to_owned(),
        purpose: given.optional("purpose").map(|purpose| match purpose {
            "chat" => Purpose::Chat,
            _ => Purpose::Task,
        }),
        by: asker(caller),
    };
    let connection = &caller.connection;
    let (session, token) = app.authenticate(&connection.tenant, login).await?;
    // Its list of tools follows. That is not worth the session, should it fail.
    if caller.era == Era::Legacy
        && let Err(error) = app.note_on_connection(connection, shown::opened(&session.id)).await
    {
        tracing::debug!(%error, "a login was not noted on its connection");
    }
    Ok(views::answer(views::login(&session, &token)))
}

/// Whom wrong passkeys are held against: the key, or the agent whose session it is, however many of
/// those it opens.
fn asker(caller: &Caller) -> String {
    match &caller.session {
        Some(own) => format!("agent {}", own.session.place.agent),
        None => format!("key {}", caller.connection.principal),
    }
}

/// What is about tasks and delegations.
async fn work(desk: &mut Desk, tool: &str, given: &Given<'_>) -> Result<Value, TeamError> {
    let answer = match tool {
        "help" => views::help(&desk.session, &desk.tools().collect::<Vec<_>>()),
        "get_next_action" => views::action(desk.next_action(wait(given)?).await?),
        "report_completed" => {
            let status = match given.optional("status") {
                Some("blocked") => TaskStatus::Blocked,
                _ => TaskStatus::Done,
            };
            let result = given.value("result").cloned();
            let task = desk.report_completed(given.text("task_id"), status, result).await?;
            views::reported_task(&task)
        }
        "delegate_to_chat_session" => {
            let (target, purpose) = (given.text("target_agent_id"), given.text("purpose"));
            let delegation = desk.delegate(target, purpose, given.owned("context")).await?;
            views::delegated(&delegation)
        }
        _ => views::delegation(&desk.delegation(given.text("delegation_id")).await?),
    };
    Ok(views::answer(answer))
}

/// What is said and heard.
async fn talk(desk: &mut Desk, tool: &str, given: &Given<'_>) -> Result<Value, TeamError> {
    let conversation = given.text("conversation_id");
    let answer = match tool {
        "get_pending_messages" => json(&desk.pending(wait(given)?).await?)?,
        "respond_chat" => {
            let to = given.optional("message_id");
            json!({ "message_id": desk.respond_chat(to, given.text("content")).await? })
        }
        "send_message" => {
            let (target, content) = (given.text("target_agent_id"), given.text("content"));
            let delegation = given.optional("delegation_id");
            json!({ "message_id": desk.send_message(target, content, delegation).await? })
        }
        "start_conversation" => {
            let started = desk.start_conversation(&wanted(given)).await?;
            let answer = views::answer(json(&started)?);
            return Ok(views::with_dialogue(answer, &started.conversation_id));
        }
        "send_conversation_message" | "respond_conversation_message" => {
            json(&desk.say(conversation, given.text("content")).await?)?
        }
        "end_conversation" => {
            let reason = desk.end_conversation(conversation, given.owned("reason")).await?;
            json!({
                "conversation_id": conversation,
                "state": DialogueState::Ended,
                "end_reason": reason,
            })
        }
        "get_conversation_messages" => {
            let (after, wait) = (after(given)?, wait(given)?);
            json(&desk.conversation_messages(conversation, after.as_deref(), wait).await?)?
        }
        _ => {
            let status = match given.text("status") {
                "failed" => DelegationStatus::Failed,
                _ => DelegationStatus::Completed,
            };
            let id = given.text("delegation_id");
            let stored = desk.report_delegation(id, status, given.value("result")).await?;
            views::delegation(&stored)
        }
    };
    Ok(views::answer(answer))
}

fn wanted(given: &Given<'_>) -> Conversation {
    Conversation {
        target: given.text("target_agent_id").to_owned(),
        initial_message: given.text("initial_message").to_owned(),
        purpose: given.owned("purpose"),
        // A number too large for this is too large for a conversation.
        max_turns: given.value("max_turns").map(|turns| turns.as_i64().unwrap_or(i64::MAX)),
        delegation: given.owned("delegation_id"),
    }
}

/// More than the longest wait is the longest; less than none is a mistake.
fn wait(given: &Given<'_>) -> Result<Duration, TeamError> {
    let seconds = given.value("wait_seconds").and_then(Value::as_f64).unwrap_or(0.0);
    if seconds < 0.0 {
        let message = "wait_seconds: must not be negative";
        return Err(RefusalCode::InvalidArgument.because(message).into());
    }
    Ok(Duration::from_secs_f64(seconds.min(MAX_WAIT_SECONDS)))
}

/// A message's id or its number.
fn after(given: &Given<'_>) -> Result<Option<String>, TeamError> {
    match given.value("after") {
        None => Ok(None),
        Some(Value::String(id)) => Ok(Some(id.clone())),
        Some(Value::Number(seq)) if seq.is_u64() => Ok(Some(seq.to_string())),
        Some(_) => {
            let message = "after: must be a message_id or a seq";
            Err(RefusalCode::InvalidArgument.because(message).into())
        }
    }
}

fn json(value: &impl Serialize) -> Result<Value, TeamError> {
    Ok(serde_json::to_value(value)?)
}
