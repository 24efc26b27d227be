//! Whose message is whose: many clients on one pipe. Commands get numbers of our own on their way to
//! Chrome, answers go to whoever asked, and events to whoever attached to their session. Pure: what
//! is to be sent is given back.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::policy::{CommandRefusal, DETACHED_EVENT, check_command, is_passed_event};
use crate::cdp::CdpCommand as _;
use crate::cdp::commands::{AttachToTarget, CloseTarget, CreateTarget};

/// Commands of one client that wait for their answers.
const MAX_PENDING: usize = 256;

pub(super) type ClientId = u64;

/// What is to be sent, without the NUL at its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    ToChrome(Vec<u8>),
    ToClient(ClientId, Vec<u8>),
}

/// The client sent what is no command: it is cut off.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoCommand;

#[derive(Default)]
pub(super) struct Router {
    last_id: u64,
    /// By the numbers that Chrome knows.
    pending: HashMap<u64, PendingCommand>,
    /// Sessions with the clients that attached them.
    sessions: HashMap<String, ClientId>,
    /// How many commands of each client wait.
    clients: HashMap<ClientId, usize>,
}

struct PendingCommand {
    client: ClientId,
    id: u64,
    kind: CommandKind,
}

/// What is left to do if the client is gone when the answer comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommandKind {
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
struct Message<'a> {
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

/// Of an answer or an event, the ids that matter here.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ids {
    session_id: Option<String>,
    target_id: Option<String>,
}

impl Router {
    pub(super) fn add_client(&mut self, client: ClientId) {
        self.clients.insert(client, 0);
    }

    /// Lets go of its sessions. Commands that wait are answered to nobody.
    pub(super) fn remove_client(&mut self, client: ClientId) -> Vec<Delivery> {
        self.clients.remove(&client);
        let owned = self.sessions.extract_if(|_, owner| *owner == client);
        let sessions: Vec<String> = owned.map(|(session, _)| session).collect();
        sessions.iter().map(|session| self.detach(session)).collect()
    }

    pub(super) fn client_message(
        &mut self,
        client: ClientId,
        message: &[u8],
    ) -> Result<Delivery, NoCommand> {
        let command: ClientCommand<'_> = serde_json::from_slice(message).map_err(|_| NoCommand)?;
        let id = command.id;
        Ok(match self.pass(client, command) {
            Ok(message) => Delivery::ToChrome(message),
            Err(refusal) => Delivery::ToClient(client, refused(id, &refusal.to_string())),
        })
    }

    fn pass(
        &mut self,
        client: ClientId,
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
            AttachToTarget::METHOD => CommandKind::Attach,
            CreateTarget::METHOD => CommandKind::CreateTab,
            _ => CommandKind::Other,
        };
        self.last_id += 1;
        self.pending.insert(self.last_id, PendingCommand { client, id: command.id, kind });
        Ok(written(&Message {
            id: Some(self.last_id),
            method: Some(command.method),
            params: params.as_deref(),
            result: None,
            error: None,
            session_id: session,
        }))
    }

    /// What Chrome says. What cannot be read, and what nobody waits for, goes nowhere.
    pub(super) fn chrome_message(&mut self, message: &[u8]) -> Option<Delivery> {
        let mut message: Message<'_> = serde_json::from_slice(message).ok()?;
        let Some(id) = message.id else { return self.route_event(message) };
        let pending = self.pending.remove(&id)?;
        let ids: Ids = message.result.map(ids_of).unwrap_or_default();
        let Some(waiting) = self.clients.get_mut(&pending.client) else {
            return self.undo(pending.kind, ids);
        };
        *waiting = waiting.saturating_sub(1);
        if let (CommandKind::Attach, Some(session)) = (pending.kind, ids.session_id) {
            self.sessions.insert(session, pending.client);
        }
        message.id = Some(pending.id);
        Some(Delivery::ToClient(pending.client, written(&message)))
    }

    /// An answer that is too long to be passed on; this is how it begins.
    pub(super) fn chrome_message_too_long(&mut self, head: &[u8]) -> Option<Delivery> {
        let head = std::str::from_utf8(head.split(|byte| !byte.is_ascii()).next()?).ok()?;
        let digits = head.strip_prefix("{\"id\":")?;
        let end = digits.find(|letter: char| !letter.is_ascii_digit())?;
        let pending = self.pending.remove(&digits[..end].parse().ok()?)?;
        let waiting = self.clients.get_mut(&pending.client)?;
        *waiting = waiting.saturating_sub(1);
        let text = refused(pending.id, "the answer is too long");
        Some(Delivery::ToClient(pending.client, text))
    }

    fn route_event(&mut self, message: Message<'_>) -> Option<Delivery> {
        let method = message.method.as_deref()?;
        let session = match (method, &message.session_id) {
            // It comes on the browser's own session and names the one that ended.
            (DETACHED_EVENT, None) => ids_of(message.params?).session_id?,
            (_, Some(session)) => session.clone(),
            _ => return None,
        };
        let client = match method {
            DETACHED_EVENT => self.sessions.remove(&session)?,
            method if is_passed_event(method) => *self.sessions.get(&session)?,
            _ => return None,
        };
        Some(Delivery::ToClient(client, written(&message)))
    }

    /// Nobody uses what a client that is gone had asked for.
    fn undo(&mut self, kind: CommandKind, ids: Ids) -> Option<Delivery> {
        match kind {
            CommandKind::Attach => Some(self.detach(&ids.session_id?)),
            CommandKind::CreateTab => {
                let command = CloseTarget { target_id: &ids.target_id? };
                Some(self.own_command(CloseTarget::METHOD, &command))
            }
            CommandKind::Other => None,
        }
    }

    fn detach(&mut self, session: &str) -> Delivery {
        let params = serde_json::json!({ "sessionId": session });
        self.own_command("Target.detachFromTarget", &params)
    }

    /// Its answer is waited for by nobody.
    fn own_command(&mut self, method: &str, params: &impl Serialize) -> Delivery {
        self.last_id += 1;
        let command = serde_json::json!({ "id": self.last_id, "method": method, "params": params });
        Delivery::ToChrome(command.to_string().into_bytes())
    }
}

fn ids_of(value: &RawValue) -> Ids {
    serde_json::from_str(value.get()).unwrap_or_default()
}

fn refused(id: u64, text: &str) -> Vec<u8> {
    let answer = serde_json::json!({ "id": id, "error": { "code": -32_000, "message": text } });
    answer.to_string().into_bytes()
}

fn written(message: &Message<'_>) -> Vec<u8> {
    // It was read as JSON, so that it can be written as such.
    serde_json::to_vec(message).unwrap_or_default()
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
