//! What the players of one run came to know. Only what they read in an answer is in it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use serde_json::Value;

use super::player::text_of;

/// Who called: an agent, and which of its sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) agent: &'static str,
    pub(crate) session: usize,
}

/// A message as a player knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) by: Who,
    pub(crate) conversation: String,
    pub(crate) message_id: String,
    pub(crate) content: String,
}

/// A delegation's outcome, as a task session was told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) by: Who,
    /// The task that the session knew to be its own then.
    pub(crate) task: Option<String>,
    pub(crate) delegation: String,
    pub(crate) status: String,
    pub(crate) contents: Vec<String>,
    pub(crate) at_ms: i64,
}

/// That a dialogue has ended, as one of its sides was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) by: Who,
    pub(crate) conversation: String,
    pub(crate) reason: String,
    /// The answer said that it may have been told before.
    pub(crate) told_before: bool,
    /// The same session called again, and was answered: the server knows that it was heard.
    pub(crate) is_acknowledged: bool,
    pub(crate) at_ms: i64,
}

impl Told {
    /// As an answer has it.
    pub(crate) fn read(by: &Who, ended: &Value) -> Self {
        Self {
            by: by.clone(),
            conversation: text_of(ended, "conversation_id"),
            reason: text_of(ended, "reason"),
            told_before: ended["told_before"] == true,
            is_acknowledged: false,
            at_ms: now_ms(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// Messages whose id was answered.
    pub(crate) said: Vec<Known>,
    /// Messages that came to the other side.
    pub(crate) heard: Vec<Known>,
    /// Conversation and first message.
    pub(crate) started: Vec<(Who, String, String)>,
    pub(crate) told: Vec<Told>,
    /// Delegation and the task that its session worked on.
    pub(crate) delegated: Vec<(Who, String, String)>,
    pub(crate) outcomes: Vec<Outcome>,
    /// Tasks that were reported done.
    pub(crate) done: Vec<String>,
    /// Ids of single messages, and of those that came, with when.
    pub(crate) sent: Vec<(Who, String)>,
    pub(crate) received: Vec<(Who, String, i64)>,
    /// Looks whose answer was not read.
    pub(crate) lost_looks: usize,
    pub(crate) sessions: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Arc<Mutex<Notes>>);

impl Journal {
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap()
    }

    pub(crate) fn next_session(&self) -> usize {
        let mut notes = self.notes();
        notes.sessions += 1;
        notes.sessions
    }

    /// A session was answered: what it was told before this, it has acknowledged.
    pub(crate) fn acknowledge(&self, who: &Who) {
        for told in self.notes().told.iter_mut().filter(|told| told.by == *who) {
            told.is_acknowledged = true;
        }
    }
}

/// When the server was killed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kills(Arc<Mutex<Vec<i64>>>);

impl Kills {
    pub(crate) fn note(&self) {
        self.0.lock().unwrap().push(now_ms());
    }

    pub(crate) fn all(&self) -> Vec<i64> {
        self.0.lock().unwrap().clone()
    }
}

/// Milliseconds since 1970, on the clock that the server reads too.
#[expect(clippy::disallowed_methods, reason = "compared with times that the server wrote")]
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}
