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
    /// Agents that are started and at work at once.
    pub max_spawns: u32,
}

impl TeamLimits {
    /// What was shown and not dealt with is shown again after so long.
    pub fn reminder(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(5);
        (self.idle / 4).min(self.claim / 4).clamp(Duration::from_millis(50), LONGEST)
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
            max_spawns: 3,
        }
    }
}
