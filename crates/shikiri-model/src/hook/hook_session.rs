//! A session of Claude Code, and what its main agent spent.

use crate::time::Timestamp;

/// A session, from the first event that shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookSession {
    pub session_id: String,
    /// The type of a session that is an agent itself, such as a teammate in its own pane.
    pub agent_type: Option<String>,
    pub transcript_path: Option<String>,
    pub created_at: Timestamp,
    /// Older answers in the transcript are those of the session that this one was forked from.
    pub counted_from: Option<Timestamp>,
    /// The latest prompt: the last answer is later.
    pub prompted_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// What the main agent spent, as JSON, one entry per model.
    pub usage: Option<String>,
    /// Nothing is missing in the usage. Otherwise it is read again.
    pub usage_complete: bool,
}
