//! Routes the messages of many clients over one pipe. Commands get new ids on their way to Chrome,
//! answers go to the client of the command, and events to the client that attached the session.
//! Pure: the functions return the messages to send.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::command_policy::{CommandRefusal, DETACHED_EVENT, check_command, is_passed_event};
use crate::cdp::CdpCommand as _;
use crate::cdp::commands::{AttachToTarget, CloseTarget, CreateTarget};

/// Unanswered commands that one client may have.
const MAX_PENDING: usize = 256;

pub(super) type RelayClientId = u64;

/// A message to send, without its final NUL.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RelayDelivery {
    ToChrome(Vec<u8>),
    ToClient(RelayClientId, Vec<u8>),
}

/// The client sent a message that is no command. Its connection is closed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedCommand;

#[derive(Default)]
pub(super) struct RelayRouter {
    last_id: u64,
    /// Unanswered commands by the id that Chrome has.
    pending: HashMap<u64, PendingCommand>,
    /// The client that attached each session.
    sessions: HashMap<String, RelayClientId>,
    /// The number of unanswered commands of each client.
    clients: HashMap<RelayClientId, usize>,
}

struct PendingCommand {
    client: RelayClientId,
    id: u64,
    kind: PendingCommandKind,
}

/// How to undo a command whose client has left before the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PendingCommandKind {
    Attach,
    CreateTab,
    Other,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClientCommand<'a> {
    id: u64,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    session_id: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct RelayMessage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    error: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
}

/// The ids in an answer or event that the router uses.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SessionTargetIds {
    session_id: Option<String>,
    target_id: Option<String>,
}

impl RelayRouter {
    pub(super) fn add_client(&mut self, client: RelayClientId) {
        self.clients.insert(client, 0);
    }

    /// Removes a client and detaches its sessions. Answers to its commands are dropped.
    pub(super) fn remove_client(&mut self, client: RelayClientId) -> Vec<RelayDelivery> {
        self.clients.remove(&client);
        let owned = self.sessions.extract_if(|_, owner| *owner == client);
        let sessions: Vec<String> = owned.map(|(session, _)| session).collect();
        sessions.iter().map(|session| self.detach(session)).collect()
    }

    pub(super) fn client_message(
        &mut self,
        client: RelayClientId,
        message: &[u8],
    ) -> Result<RelayDelivery, MalformedCommand> {
        let command: ClientCommand<'_> =
            serde_json::from_slice(message).map_err(|_| MalformedCommand)?;
        let id = command.id;
        Ok(match self.pass(client, command) {
            Ok(message) => RelayDelivery::ToChrome(message),
            Err(refusal) => RelayDelivery::ToClient(client, refused(id, &refusal.to_string())),
        })
    }

    fn pass(
        &mut self,
        client: RelayClientId,
        command: ClientCommand<'_>,
    ) -> Result<Vec<u8>, CommandRefusal> {
        let session = command.session_id;
        let params = check_command(&command.method, session.is_some(), command.params)?;
        if session.as_ref().is_some_and(|id| self.sessions.get(id) != Some(&client)) {
            return Err(CommandRefusal::Session);
        }
        let waiting = self.clients.entry(client).or_default();
        if *waiting >= MAX_PENDING {
            return Err(CommandRefusal::TooMany);
        }
        *waiting += 1;
        let kind = match command.method.as_ref() {
            AttachToTarget::METHOD => PendingCommandKind::Attach,
            CreateTarget::METHOD => PendingCommandKind::CreateTab,
            _ => PendingCommandKind::Other,
        };
        self.last_id += 1;
        self.pending.insert(self.last_id, PendingCommand { client, id: command.id, kind });
        Ok(written(&RelayMessage {
            id: Some(self.last_id),
            method: Some(command.method),
            params: params.as_deref(),
            result: None,
            error: None,
            session_id: session,
        }))
    }

    /// Routes a message of Chrome. Unreadable and unexpected messages are dropped.
    pub(super) fn chrome_message(&mut self, message: &[u8]) -> Option<RelayDelivery> {
        let mut message: RelayMessage<'_> = serde_json::from_slice(message).ok()?;
        let Some(id) = message.id else { return self.route_event(message) };
        let pending = self.pending.remove(&id)?;
        let ids: SessionTargetIds = message.result.map(ids_of).unwrap_or_default();
        let Some(waiting) = self.clients.get_mut(&pending.client) else {
            return self.undo(pending.kind, ids);
        };
        *waiting = waiting.saturating_sub(1);
        if let (PendingCommandKind::Attach, Some(session)) = (pending.kind, ids.session_id) {
            self.sessions.insert(session, pending.client);
        }
        message.id = Some(pending.id);
        Some(RelayDelivery::ToClient(pending.client, written(&message)))
    }

    /// Answers with an error in place of an oversized answer, given its start.
    pub(super) fn chrome_message_too_long(&mut self, head: &[u8]) -> Option<RelayDelivery> {
        let head = std::str::from_utf8(head.split(|byte| !byte.is_ascii()).next()?).ok()?;
        let digits = head.strip_prefix("{\"id\":")?;
        let end = digits.find(|letter: char| !letter.is_ascii_digit())?;
        let pending = self.pending.remove(&digits[..end].parse().ok()?)?;
        let waiting = self.clients.get_mut(&pending.client)?;
        *waiting = waiting.saturating_sub(1);
        let text = refused(pending.id, "the answer is too long");
        Some(RelayDelivery::ToClient(pending.client, text))
    }

    fn route_event(&mut self, message: RelayMessage<'_>) -> Option<RelayDelivery> {
        let method = message.method.as_deref()?;
        let session = match (method, &message.session_id) {
            // This event has no session of its own; its parameters name the ended one.
            (DETACHED_EVENT, None) => ids_of(message.params?).session_id?,
            (_, Some(session)) => session.clone(),
            _ => return None,
        };
        let client = match method {
            DETACHED_EVENT => self.sessions.remove(&session)?,
            method if is_passed_event(method) => *self.sessions.get(&session)?,
            _ => return None,
        };
        Some(RelayDelivery::ToClient(client, written(&message)))
    }

    /// Undoes a command whose client has left.
    fn undo(&mut self, kind: PendingCommandKind, ids: SessionTargetIds) -> Option<RelayDelivery> {
        match kind {
            PendingCommandKind::Attach => Some(self.detach(&ids.session_id?)),
            PendingCommandKind::CreateTab => {
                let command = CloseTarget { target_id: &ids.target_id? };
                Some(self.own_command(CloseTarget::METHOD, &command))
            }
            PendingCommandKind::Other => None,
        }
    }

    fn detach(&mut self, session: &str) -> RelayDelivery {
        let params = serde_json::json!({ "sessionId": session });
        self.own_command("Target.detachFromTarget", &params)
    }

    /// A command of the router itself, whose answer is ignored.
    fn own_command(&mut self, method: &str, params: &impl Serialize) -> RelayDelivery {
        self.last_id += 1;
        let command = serde_json::json!({ "id": self.last_id, "method": method, "params": params });
        RelayDelivery::ToChrome(command.to_string().into_bytes())
    }
}

fn ids_of(value: &RawValue) -> SessionTargetIds {
    serde_json::from_str(value.get()).unwrap_or_default()
}

fn refused(id: u64, text: &str) -> Vec<u8> {
    let answer = serde_json::json!({ "id": id, "error": { "code": -32_000, "message": text } });
    answer.to_string().into_bytes()
}

fn written(message: &RelayMessage<'_>) -> Vec<u8> {
    // The parts were read as JSON, so writing them cannot fail.
    serde_json::to_vec(message).unwrap_or_default()
}

#[cfg(test)]
#[path = "client_router_tests.rs"]
mod tests;
