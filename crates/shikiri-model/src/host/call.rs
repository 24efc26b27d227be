//! A call and its states.
//!
//! ```text
//! open → completed | failed | cancelled | lost
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::bookmark::Bookmark;
use super::news::{News, Outcome, Progress};
use crate::event::{NewEvent, StreamId};
use crate::ids::{HostCallId, TenantId};
use crate::record::{Columns, Document};
use crate::time::Timestamp;

/// Bytes of what a server tells by the way that one call keeps. Whoever tells more tells too much.
const MAX_TOLD: usize = 32 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostCall {
    pub id: HostCallId,
    pub tenant: TenantId,
    /// By the name that it has in the configuration.
    pub server: String,
    /// Where that was when the call was made: a bookmark is good for nobody else.
    pub endpoint: String,
    pub tool: String,
    /// Kept even if empty: a call with defaults can be taken up too.
    pub arguments: Map<String, Value>,
    /// The server says that calling it twice does no harm, or knows a call that it has seen.
    #[serde(default)]
    pub repeatable: bool,
    pub state: CallState,
    #[serde(default)]
    pub bookmark: Bookmark,
    /// The last that was told.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// Bytes of logs, progress and questions that were kept.
    #[serde(default)]
    pub told: usize,
    /// Nobody waits longer.
    pub deadline: Timestamp,
    /// What the tool answered.
    #[serde(default)]
    pub result: Option<Map<String, Value>>,
    /// Why there is no answer.
    #[serde(default)]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    Open,
    Completed,
    Failed,
    Cancelled,
    Lost,
}

impl CallState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
}

impl HostCall {
    pub fn is_open(&self) -> bool {
        self.state == CallState::Open
    }

    /// Its history.
    pub fn stream(&self) -> StreamId {
        StreamId::new(format!("host/{}", self.id))
    }

    /// Takes in what happened. Returns what people may be told: nothing for what only moves the
    /// bookmark, for progress that does not rise, and after the end.
    pub fn learn(&mut self, news: &News) -> Option<NewEvent> {
        if !self.is_open() {
            return None;
        }
        let mark = &mut self.bookmark;
        match news {
            News::Met { protocol, session } => {
                mark.protocol = Some(protocol.clone());
                if mark.session != *session {
                    // What belonged to the other session says nothing in this one.
                    mark.cursor = None;
                    mark.questions.clear();
                    mark.session.clone_from(session);
                }
                None
            }
            News::Sending { request_id } => {
                mark.request_id = Some(request_id.clone());
                mark.cursor = None;
                Some(event("sent", &json!({ "request_id": request_id })))
            }
            News::Unsent => {
                mark.request_id = None;
                None
            }
            News::Passed { cursor } => {
                mark.cursor = Some(cursor.clone());
                None
            }
            News::CursorLost => {
                mark.cursor = None;
                mark.session = None;
                None
            }
            News::Progress(progress) => {
                let event = self.advance(progress)?;
                self.tell(event)
            }
            News::Log(line) => self.tell(event("log", &json!(line))),
            News::Asked(question) => {
                let known = mark.questions.insert(question.key.clone(), question.clone());
                if known.is_some() {
                    return None;
                }
                self.tell(event("asked", &json!(question)))
            }
            News::Answered { key } => {
                mark.questions.remove(key)?;
                self.tell(event("answered", &json!({ "key": key })))
            }
            News::Task(task) => {
                mark.task = Some(task.clone());
                Some(event("task", &json!(task)))
            }
            News::Round(round) => {
                mark.round = Some(round.clone());
                mark.cursor = None;
                None
            }
            News::Run { run_id } => {
                mark.run_id = Some(run_id.clone());
                Some(event("run", &json!({ "run_id": run_id })))
            }
            News::Ended(outcome) => Some(self.end(outcome)),
        }
    }

    /// What a server can tell without end has a bound. The first that is beyond it is replaced by
    /// a word about that.
    fn tell(&mut self, told: NewEvent) -> Option<NewEvent> {
        let was_within = self.told <= MAX_TOLD;
        self.told = self.told.saturating_add(told.data().len());
        if self.told <= MAX_TOLD {
            return Some(told);
        }
        let text = "it tells more than is kept: the rest is left out";
        was_within.then(|| event("log", &json!({ "level": "warning", "text": text })))
    }

    fn advance(&mut self, progress: &Progress) -> Option<NewEvent> {
        let known = self.progress.as_ref().map(|known| known.progress);
        if !progress.progress.is_finite() || known.is_some_and(|known| progress.progress <= known) {
            return None;
        }
        self.progress = Some(progress.clone());
        Some(event("progress", &json!(progress)))
    }

    fn end(&mut self, outcome: &Outcome) -> NewEvent {
        // Session ids and sealed states are of no use any more: they are not kept longer.
        self.bookmark = Bookmark::default();
        match outcome {
            Outcome::Answered(result) => {
                self.state = CallState::Completed;
                self.result = Some(result.clone());
            }
            Outcome::Failed { reason } => {
                self.state = CallState::Failed;
                self.reason = Some(reason.clone());
            }
            Outcome::Cancelled => self.state = CallState::Cancelled,
            Outcome::Lost { reason } => {
                self.state = CallState::Lost;
                self.reason = Some(reason.clone());
            }
        }
        event("ended", &json!({ "state": self.state, "reason": self.reason }))
    }

    /// Whether the tool itself said that it failed.
    pub fn is_tool_error(&self) -> bool {
        let said = |result: &Map<String, Value>| result.get("isError") == Some(&Value::Bool(true));
        self.result.as_ref().is_some_and(said)
    }
}

fn event(kind: &'static str, data: &Value) -> NewEvent {
    NewEvent::from_value(kind, data)
}

impl Document for HostCall {
    const KIND: &'static str = "host_call";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        Columns {
            state: self.state.as_str().to_owned(),
            parent: Some(self.server.clone()),
            ..Columns::default()
        }
    }
}
