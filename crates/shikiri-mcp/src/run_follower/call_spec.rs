//! What a call is, as it stands in its connection's stream: enough to follow the run again.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shikiri_model::connection::LogLevel;
use shikiri_model::event::{NewEvent, Seq};
use shikiri_model::ids::RunId;
use shikiri_model::time::Timestamp;

/// A request that is answered by following a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallSpec {
    /// The request's id.
    pub(crate) id: Value,
    pub(crate) shape: AnswerShape,
    /// Tool or prompt.
    pub(crate) name: String,
    pub(crate) run_id: RunId,
    /// Up to here the run's events are not for this call.
    pub(crate) after: Seq,
    /// Answered with what there is then; never, if none.
    pub(crate) until: Option<Timestamp>,
    pub(crate) progress_token: Option<Value>,
    pub(crate) log_level: Option<LogLevel>,
    #[serde(flatten)]
    pub(crate) who: CallAttribution,
}

/// A request that will be answered by following a run, before there is one.
#[derive(Clone, Debug)]
pub(crate) struct CallTemplate {
    pub(crate) id: Value,
    pub(crate) shape: AnswerShape,
    pub(crate) name: String,
    pub(crate) until: Option<Timestamp>,
    pub(crate) progress_token: Option<Value>,
    pub(crate) log_level: Option<LogLevel>,
    pub(crate) who: CallAttribution,
}

impl CallTemplate {
    /// The call that follows this run from `after` on.
    pub(crate) fn call_of(&self, run: &RunId, after: Seq) -> CallSpec {
        let Self { id, shape, name, until, progress_token, log_level, who } = self.clone();
        let run_id = run.clone();
        CallSpec { id, shape, name, run_id, after, until, progress_token, log_level, who }
    }
}

/// Which form the answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AnswerShape {
    /// The run's result is the tool's.
    Tool,
    /// The run's result is a prompt.
    Prompt,
    /// The run's status; the caller only waits, and is asked nothing.
    Wait,
}

/// On whose behalf, as far as anything says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallAttribution {
    pub(crate) instance: String,
    /// The call's id in Claude Code, by which its hooks tell the subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_use_id: Option<String>,
    /// The subagent that calls, where a hook reported the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<String>,
    /// Claude Code's own session.
    #[serde(skip)]
    pub(crate) hook_session: Option<String>,
}

impl CallSpec {
    pub(crate) fn event(&self) -> NewEvent {
        NewEvent::from_value("call", &serde_json::to_value(self).unwrap_or_default())
    }
}
