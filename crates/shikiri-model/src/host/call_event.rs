//! The events of a call, in the order in which they happened.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::resume_point::{InputRound, RemoteTaskRef};

/// One event of a call. Some move the resume point, others are for people.
#[derive(Clone, Debug, PartialEq)]
pub enum CallEvent {
    /// The connection was initialised: the agreed protocol, and the session if there is one.
    Met {
        protocol: String,
        session: Option<String>,
    },
    /// The request is about to be sent under this JSON-RPC id. From now on the tool may have run.
    Sending {
        request_id: String,
    },
    /// The request did not reach the server, so the tool did not run.
    Unsent,
    /// The stream was read up to this event.
    Passed {
        cursor: String,
    },
    /// The server does not know the cursor any more.
    CursorLost,
    Progress(CallProgress),
    Log(CallLogLine),
    /// The server asks a question.
    Asked(CallQuestion),
    /// The question with this key was answered, and the server has the answer.
    Answered {
        key: String,
    },
    /// The call became a task of the server.
    Task(RemoteTaskRef),
    /// The call must be sent again with this input.
    Round(InputRound),
    /// The call became a run that can be awaited by its id.
    Run {
        run_id: String,
    },
    Ended(CallOutcome),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallProgress {
    pub progress: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallLogLine {
    pub level: String,
    pub text: String,
}

/// A request from the server to the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallQuestion {
    /// The server's id for it: the request's id, or the key in a map of inputs.
    pub key: String,
    pub method: String,
    #[serde(default)]
    pub params: Value,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallOutcome {
    /// With the tool's result, which may say that the tool failed.
    Answered(Map<String, Value>),
    /// The server refused the call, or no answer came in time.
    Failed {
        reason: String,
    },
    Cancelled,
    /// The call may have happened, and its result cannot be found.
    Lost {
        reason: String,
    },
}
