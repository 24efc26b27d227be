//! How long things may stay open, and how far they may go.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamLimits {
    /// A dialogue whose partner has not come.
    pub pending: Duration,
    /// A dialogue in which nothing was said.
    pub idle: Duration,
    /// A session from its start.
    pub session: Duration,
    /// A chat session that calls nothing.
    pub chat_idle: Duration,
    /// A delegation that a chat session has taken on, and the session calls nothing.
    pub claim: Duration,
    /// Chat sessions that may take on a delegation, one after another, before it fails.
    pub attempts: u32,
    /// Delegations that may follow from one another.
    pub depth: u32,
    /// A delegation from its start, with all that follows from it.
    pub wall: Duration,
    /// An agent that was started and does not log in, before another is started.
    pub spawn_guard: Duration,
    /// How long an agent is left alone at first that went wrong again and again.
    pub rest: Duration,
    /// Agents that are started and at work at once. One that waits for another lends it its place.
    pub max_spawns: u32,
}

impl TeamLimits {
    /// What was shown and not dealt with is called to mind after so long, and a session that calls
    /// nothing for as long is not waited for by the others of its agent.
    pub fn reminder(&self) -> Duration {
        self.idle.min(self.pending).min(self.claim) / 2
    }

    /// A call that waits gives a sign of life so often.
    pub fn pulse(&self) -> Duration {
        let least = self.idle.min(self.claim).min(self.chat_idle) / 4;
        least.clamp(Duration::from_millis(20), Duration::from_secs(5))
    }
}

impl Default for TeamLimits {
    fn default() -> Self {
        Self {
            pending: Duration::from_secs(300),
            idle: Duration::from_secs(600),
            session: Duration::from_secs(3_600),
            chat_idle: Duration::from_secs(600),
            claim: Duration::from_secs(120),
            attempts: 3,
            depth: 3,
            wall: Duration::from_secs(3_600),
            spawn_guard: Duration::from_secs(120),
            rest: Duration::from_secs(600),
            max_spawns: 3,
        }
    }
}
