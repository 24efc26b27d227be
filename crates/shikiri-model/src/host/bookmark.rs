//! Where a call is: everything that a new process needs to take it up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::news::Question;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bookmark {
    /// The revision of the protocol that was agreed on.
    pub protocol: Option<String>,
    /// The session at the server, in the revisions that have one.
    pub session: Option<String>,
    /// The id under which the call went out last.
    pub request_id: Option<String>,
    /// The last event of its stream that was kept.
    pub cursor: Option<String>,
    pub task: Option<TaskMark>,
    pub round: Option<Round>,
    pub run_id: Option<String>,
    /// What the server asked and has no answer to, by key.
    pub questions: BTreeMap<String, Question>,
}

/// A task of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskMark {
    pub id: String,
    /// How often the server wants to be asked.
    #[serde(default)]
    pub poll_ms: Option<u64>,
}

/// The next round of a call that the server answered with questions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The server's own memory, given back as it was.
    #[serde(default)]
    pub state: Option<String>,
    #[serde(default)]
    pub responses: Map<String, Value>,
}

/// How a call is taken up.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// Wait for the run.
    Run(String),
    /// Ask for the task.
    Task(TaskMark),
    /// Read its stream on, in the session that it belongs to.
    Stream { session: Option<String>, request_id: String, cursor: String },
    /// Send it: it never went out, its next round is known, or sending it twice does no harm.
    Send(Option<Round>),
    /// Nothing leads back to it.
    Lost(&'static str),
}

impl Bookmark {
    /// `repeatable`: the tool does no harm when it is called twice, or the server knows a call
    /// that it has seen.
    pub fn way(&self, repeatable: bool) -> Way {
        if let Some(run) = &self.run_id {
            return Way::Run(run.clone());
        }
        if let Some(task) = &self.task {
            return Way::Task(task.clone());
        }
        if let (Some(request_id), Some(cursor)) = (&self.request_id, &self.cursor) {
            return Way::Stream {
                session: self.session.clone(),
                request_id: request_id.clone(),
                cursor: cursor.clone(),
            };
        }
        match (&self.request_id, &self.round) {
            (None, _) => Way::Send(self.round.clone()),
            // What was sent in this round is not known to have arrived, but the server sealed the
            // state that goes with it: it can tell.
            (Some(_), Some(round)) if round.state.is_some() => Way::Send(Some(round.clone())),
            (Some(_), round) if repeatable => Way::Send(round.clone()),
            (Some(_), _) => Way::Lost(
                "it was sent, and the server gave nothing by which it could be found again",
            ),
        }
    }
}
