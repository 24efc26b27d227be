//! A call and its states.
//!
//! ```text
//! open → completed | failed | cancelled | lost
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::call_event::{CallEvent, CallOutcome, CallProgress};
use super::resume_point::ResumePoint;
use crate::event::{NewEvent, StreamId};
use crate::ids::{HostCallId, TenantId};
use crate::macros::{document, text_enum};
use crate::record::RecordColumns;
use crate::time::Timestamp;

/// The most bytes of notifications that one call stores.
const MAX_TOLD: usize = 32 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostCall {
    pub id: HostCallId,
    pub tenant: TenantId,
    /// The server's name in the configuration.
    pub server: String,
    /// The server's address at the time of the call. A resume point is valid only there.
    pub endpoint: String,
    pub tool: String,
    /// Stored even if empty: a call with defaults can be resumed, too.
    pub arguments: Map<String, Value>,
    /// The server declares that repeating the call is harmless, or that it recognises a repeated
    /// call.
    #[serde(default)]
    pub repeatable: bool,
    pub state: HostCallState,
    #[serde(default)]
    pub bookmark: ResumePoint,
    /// The last reported progress.
    #[serde(default)]
    pub progress: Option<CallProgress>,
    /// Bytes of logs, progress and questions that were stored.
    #[serde(default)]
    pub told: usize,
    /// The call fails at this time.
    pub deadline: Timestamp,
    /// The tool's result.
    #[serde(default)]
    pub result: Option<Map<String, Value>>,
    /// Why there is no result.
    #[serde(default)]
    pub reason: Option<String>,
}

text_enum! {
    pub enum HostCallState {
        Open = "open",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        Lost = "lost",
    }
}

impl HostCall {
    pub fn is_open(&self) -> bool {
        self.state == HostCallState::Open
    }

    /// The stream of its events.
    pub fn stream(&self) -> StreamId {
        StreamId::new(format!("host/{}", self.id))
    }

    /// Applies an event. Returns the event to show: None for one that only moves the resume point,
    /// for progress that does not rise, and after the end.
    pub fn apply_event(&mut self, news: &CallEvent) -> Option<NewEvent> {
        if !self.is_open() {
            return None;
        }
        let mark = &mut self.bookmark;
        match news {
            CallEvent::Met { protocol, session } => {
                mark.protocol = Some(protocol.clone());
                if mark.session != *session {
                    // The cursor of the other session is not valid in this one.
                    mark.cursor = None;
                    mark.questions.clear();
                    mark.session.clone_from(session);
                }
                None
            }
            CallEvent::Sending { request_id } => {
                mark.request_id = Some(request_id.clone());
                mark.cursor = None;
                Some(event("sent", &json!({ "request_id": request_id })))
            }
            CallEvent::Unsent => {
                mark.request_id = None;
                None
            }
            CallEvent::Passed { cursor } => {
                mark.cursor = Some(cursor.clone());
                None
            }
            CallEvent::CursorLost => {
                mark.cursor = None;
                mark.session = None;
                None
            }
            CallEvent::Progress(progress) => {
                let event = self.advance(progress)?;
                self.tell(event)
            }
            CallEvent::Log(line) => self.tell(event("log", &json!(line))),
            CallEvent::Asked(question) => {
                let known = mark.questions.insert(question.key.clone(), question.clone());
                if known.is_some() {
                    return None;
                }
                self.tell(event("asked", &json!(question)))
            }
            CallEvent::Answered { key } => {
                mark.questions.remove(key)?;
                self.tell(event("answered", &json!({ "key": key })))
            }
            CallEvent::Task(task) => {
                mark.task = Some(task.clone());
                Some(event("task", &json!(task)))
            }
            CallEvent::Round(round) => {
                mark.round = Some(round.clone());
                mark.cursor = None;
                None
            }
            CallEvent::Run { run_id } => {
                mark.run_id = Some(run_id.clone());
                Some(event("run", &json!({ "run_id": run_id })))
            }
            CallEvent::Ended(outcome) => Some(self.end(outcome)),
        }
    }

    /// Limits the notifications of a server. The first one over the limit is replaced by a note
    /// about the limit.
    fn tell(&mut self, told: NewEvent) -> Option<NewEvent> {
        let was_within = self.told <= MAX_TOLD;
        self.told = self.told.saturating_add(told.data().len());
        if self.told <= MAX_TOLD {
            return Some(told);
        }
        let text = "it tells more than is kept: the rest is left out";
        was_within.then(|| event("log", &json!({ "level": "warning", "text": text })))
    }

    fn advance(&mut self, progress: &CallProgress) -> Option<NewEvent> {
        let known = self.progress.as_ref().map(|known| known.progress);
        if !progress.progress.is_finite() || known.is_some_and(|known| progress.progress <= known) {
            return None;
        }
        self.progress = Some(progress.clone());
        Some(event("progress", &json!(progress)))
    }

    fn end(&mut self, outcome: &CallOutcome) -> NewEvent {
        // Session ids and sealed states are not needed any more, so they are removed.
        self.bookmark = ResumePoint::default();
        match outcome {
            CallOutcome::Answered(result) => {
                self.state = HostCallState::Completed;
                self.result = Some(result.clone());
            }
            CallOutcome::Failed { reason } => {
                self.state = HostCallState::Failed;
                self.reason = Some(reason.clone());
            }
            CallOutcome::Cancelled => self.state = HostCallState::Cancelled,
            CallOutcome::Lost { reason } => {
                self.state = HostCallState::Lost;
                self.reason = Some(reason.clone());
            }
        }
        event("ended", &json!({ "state": self.state, "reason": self.reason }))
    }

    /// Whether the tool reported an error.
    pub fn is_tool_error(&self) -> bool {
        let said = |result: &Map<String, Value>| result.get("isError") == Some(&Value::Bool(true));
        self.result.as_ref().is_some_and(said)
    }
}

fn event(kind: &'static str, data: &Value) -> NewEvent {
    NewEvent::from_value(kind, data)
}

document!(HostCall, "host_call", tenant, id, |call| RecordColumns {
    state: call.state.as_str().to_owned(),
    parent: Some(call.server.clone()),
    ..RecordColumns::default()
});
