//! What the team tools answer, as JSON.

use serde_json::{Value, json};
use shikiri_model::ids::DialogueId;
use shikiri_model::key::SecretToken;
use shikiri_model::record::StoredDocument;
use shikiri_model::team::{AgentSession, Delegation, Dialogue, SessionPurpose, TeamTask};
use shikiri_teams::{DialogueLine, NextAction};

pub(super) const DIALOGUE_PREFIX: &str = "shikiri://dialogues/";

/// With the address under which the dialogue can be read.
pub(super) fn with_dialogue(mut answer: Value, id: &DialogueId) -> Value {
    let link = json!({
        "type": "resource_link",
        "uri": format!("{DIALOGUE_PREFIX}{id}"),
        "name": id,
        "title": "Conversation",
        "description": "What was said, and how far the conversation is",
        "mimeType": "application/json",
    });
    if let Some(content) = answer["content"].as_array_mut() {
        content.push(link);
    }
    answer
}

pub(super) fn login(session: &AgentSession, token: &SecretToken) -> Value {
    json!({
        "session_token": token.reveal(),
        "purpose": session.purpose,
        "expires_at": session.expires_at,
        "session_id": session.id,
        "agent_id": session.place.agent,
        "project_id": session.place.project,
        "next_step": next_step(session.purpose),
    })
}

pub(super) fn help(session: &AgentSession, tools: &[&str]) -> Value {
    json!({
        "tools": tools,
        "purpose": session.purpose,
        "expires_at": session.expires_at,
        "agent_id": session.place.agent,
        "project_id": session.place.project,
        "next_step": next_step(session.purpose),
    })
}

fn next_step(purpose: SessionPurpose) -> &'static str {
    match purpose {
        SessionPurpose::Task => {
            "Call get_next_action with wait_seconds 30 and do what it says; end a task with \
             report_completed. To have somebody asked or told something, call \
             delegate_to_chat_session, then get_next_action again."
        }
        SessionPurpose::Chat => {
            "Call get_pending_messages with wait_seconds 30 and deal with all that it gives: carry \
             out delegations, answer invitations and messages; then call it again."
        }
    }
}

pub(super) fn action(action: NextAction) -> Value {
    match action {
        NextAction::Work(found) => json!({ "action": "work", "task": task(&found) }),
        NextAction::WaitForDelegation(id) => {
            json!({ "action": "wait_for_delegation", "delegation_id": id })
        }
        NextAction::DelegationResult { delegation, messages } => json!({
            "action": "delegation_result",
            "delegation_id": delegation.id,
            "status": delegation.status,
            "result": delegation.result,
            "messages": messages,
            "target_agent_id": delegation.target,
            "purpose": delegation.purpose,
            "task_id": delegation.task,
        }),
        NextAction::None => json!({ "action": "none" }),
    }
}

pub(super) fn reported_task(stored: &StoredDocument<TeamTask>) -> Value {
    json!({
        "task": task(stored),
        "task_id": stored.value.id,
        "status": stored.value.status,
    })
}

fn task(stored: &StoredDocument<TeamTask>) -> Value {
    let task = &stored.value;
    json!({
        "id": task.id,
        "task_id": task.id,
        "project_id": task.project,
        "title": task.title,
        "description": task.description,
        "assignee": task.assignee,
        "parent_id": task.parent_id,
        "priority": task.priority,
        "status": task.status,
        "result": task.result,
        "created_at": stored.created_at,
        "updated_at": stored.updated_at,
    })
}

pub(super) fn delegated(delegation: &Delegation) -> Value {
    let message = format!(
        "Your chat session will talk to {}. Call get_next_action with wait_seconds 30: it gives \
         the result when there is one.",
        delegation.target
    );
    json!({ "success": true, "delegation_id": delegation.id, "message": message })
}

pub(super) fn delegation(stored: &StoredDocument<Delegation>) -> Value {
    let delegation = &stored.value;
    json!({
        "delegation": {
            "delegation_id": delegation.id,
            "agent_id": delegation.agent,
            "target_agent_id": delegation.target,
            "purpose": delegation.purpose,
            "context": delegation.context,
            "status": delegation.status,
            "attempts": delegation.attempts,
            "created_at": stored.created_at,
            "processed_at": delegation.processed_at,
            "result": delegation.result,
            "task_id": delegation.task,
            "conversation_id": delegation.dialogue,
        },
        "delegation_id": delegation.id,
        "status": delegation.status,
    })
}

/// A dialogue as a resource.
pub(super) fn dialogue(stored: &StoredDocument<Dialogue>, lines: &[DialogueLine]) -> Value {
    let dialogue = &stored.value;
    let end = dialogue.end.as_ref();
    json!({
        "conversation_id": dialogue.id,
        "project_id": dialogue.project,
        "initiator": dialogue.initiator,
        "participant": dialogue.participant,
        "purpose": dialogue.purpose,
        "state": dialogue.state,
        "turn": dialogue.is_living().then(|| dialogue.agent(dialogue.turn)),
        "turns_left": dialogue.turns_left(),
        "max_turns": dialogue.max_turns,
        "end_reason": end.map(|end| end.reason),
        "end_note": end.and_then(|end| end.note.as_deref()),
        "ended_at": end.map(|end| end.at),
        "delegation_id": dialogue.delegation,
        "created_at": stored.created_at,
        "messages": lines,
    })
}
