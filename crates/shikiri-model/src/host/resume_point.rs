//! The resume point of a call: the state that another process needs to continue it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::call_event::CallQuestion;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResumePoint {
    /// The agreed protocol version.
    pub protocol: Option<String>,
    /// The session at the server, in protocol versions with sessions.
    pub session: Option<String>,
    /// The JSON-RPC id of the last request.
    pub request_id: Option<String>,
    /// The last event of its stream that was stored.
    pub cursor: Option<String>,
    pub task: Option<RemoteTaskRef>,
    pub round: Option<InputRound>,
    pub run_id: Option<String>,
    /// Open questions of the server, by key.
    pub questions: BTreeMap<String, CallQuestion>,
}

/// A task of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteTaskRef {
    pub id: String,
    /// The polling interval that the server wants.
    #[serde(default)]
    pub poll_ms: Option<u64>,
}

/// The next round of a call that the server answered with questions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InputRound {
    /// The server's sealed state, which is sent back unchanged.
    #[serde(default)]
    pub state: Option<String>,
    #[serde(default)]
    pub responses: Map<String, Value>,
}

/// The way in which a call is resumed.
#[derive(Clone, Debug, PartialEq)]
pub enum ResumeMethod {
    /// Wait for the run.
    Run(String),
    /// Query the task.
    Task(RemoteTaskRef),
    /// Continue its stream in the session that it belongs to.
    Stream { session: Option<String>, request_id: String, cursor: String },
    /// Send the request: it was never sent, its next round is known, or repeating it is harmless.
    Send(Option<InputRound>),
    /// The call cannot be found again, for this reason.
    Lost(&'static str),
}

impl ResumePoint {
    /// `repeatable`: repeating the call is harmless, or the server recognises a repeated call.
    pub fn resume_method(&self, repeatable: bool) -> ResumeMethod {
        if let Some(run) = &self.run_id {
            return ResumeMethod::Run(run.clone());
        }
        if let Some(task) = &self.task {
            return ResumeMethod::Task(task.clone());
        }
        if let (Some(request_id), Some(cursor)) = (&self.request_id, &self.cursor) {
            return ResumeMethod::Stream {
                session: self.session.clone(),
                request_id: request_id.clone(),
                cursor: cursor.clone(),
            };
        }
        match (&self.request_id, &self.round) {
            (None, _) => ResumeMethod::Send(self.round.clone()),
            // It is unknown whether this round's request arrived. The server can tell, because it
            // sealed the state of the round.
            (Some(_), Some(round)) if round.state.is_some() => {
                ResumeMethod::Send(Some(round.clone()))
            }
            (Some(_), round) if repeatable => ResumeMethod::Send(round.clone()),
            (Some(_), _) => ResumeMethod::Lost(
                "it was sent, and the server gave nothing by which it could be found again",
            ),
        }
    }
}
