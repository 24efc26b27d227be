//! What there is to tell of a call, in the order in which it happened.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::bookmark::{Round, TaskMark};

/// One thing that happened in a call. Some of it moves the bookmark, some is for people.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// The server was met: the protocol that was agreed on, and its session if it has any.
    Met {
        protocol: String,
        session: Option<String>,
    },
    /// The request is about to go out under this JSON-RPC id. From now on it may have happened.
    Sending {
        request_id: String,
    },
    /// It did not get through: nothing happened.
    Unsent,
    /// The stream has been read up to here.
    Passed {
        cursor: String,
    },
    /// The cursor leads nowhere any more: what it named is gone.
    CursorLost,
    Progress(Progress),
    Log(LogLine),
    /// The server wants to know something.
    Asked(Question),
    /// What was asked under this key is answered, and the server has the answer.
    Answered {
        key: String,
    },
    /// The call has become a task of the server.
    Task(TaskMark),
    /// The call is to be sent again with this.
    Round(Round),
    /// The call has become a run that can be waited for by its id.
    Run {
        run_id: String,
    },
    Ended(Outcome),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub progress: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    pub level: String,
    pub text: String,
}

/// A request of the server to us.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The server's id for it: its request's id, or the key in a map of inputs.
    pub key: String,
    pub method: String,
    #[serde(default)]
    pub params: Value,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// With the tool's result, which may say that the tool failed.
    Answered(Map<String, Value>),
    /// The server refused the call, or nobody answered in time.
    Failed {
        reason: String,
    },
    Cancelled,
    /// It may or may not have happened: nothing leads back to it.
    Lost {
        reason: String,
    },
}
