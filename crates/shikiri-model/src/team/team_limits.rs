//! Time limits and depth limits of teams, with their defaults. `shikiri/src/config/settings.rs` names the
//! setting of each.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamLimits {
    /// How long an invitation may stay open.
    pub dialogue_pending: Duration,
    /// How long a dialogue may stay without a message. Reminders and heartbeats are derived from it.
    pub dialogue_idle: Duration,
    /// The longest life of a session.
    pub session: Duration,
    /// How long a chat session may live without a call.
    pub chat_idle: Duration,
    /// How long a claimed delegation may stay without a call of the claiming session.
    pub delegation_claim: Duration,
    /// The number of chat sessions that may claim a delegation, one after another, before it fails.
    pub attempts: u32,
    /// The longest chain of delegations that follow from one another.
    pub delegation_depth: u32,
    /// The most messages between two agents that follow from one cause.
    pub messages_per_cause: u32,
    /// The longest life of a delegation, with everything that follows from it.
    pub delegation_wall: Duration,
    /// The login timeout of a spawned agent. After it, another one is started.
    pub spawn_guard: Duration,
    /// The first rest of an agent that failed repeatedly.
    pub rest: Duration,
    /// The number of spawned agents that work at once. An agent that waits for another one lends it
    /// its slot.
    pub max_spawns: u32,
}

impl TeamLimits {
    /// How long after an item was shown it is shown again as a reminder. A session without calls
    /// for as long is no longer expected to act on it.
    pub fn reminder(&self) -> Duration {
        self.dialogue_idle.min(self.dialogue_pending).min(self.delegation_claim) / 2
    }

    /// The heartbeat interval of a call that waits.
    pub fn heartbeat_interval(&self) -> Duration {
        let least = self.dialogue_idle.min(self.delegation_claim).min(self.chat_idle) / 4;
        least.clamp(Duration::from_millis(20), Duration::from_secs(5))
    }
}

impl Default for TeamLimits {
    fn default() -> Self {
        Self {
            dialogue_pending: Duration::from_secs(300),
            dialogue_idle: Duration::from_secs(600),
            session: Duration::from_secs(3_600),
            chat_idle: Duration::from_secs(600),
            delegation_claim: Duration::from_secs(120),
            attempts: 3,
            delegation_depth: 3,
            messages_per_cause: 40,
            delegation_wall: Duration::from_secs(3_600),
            spawn_guard: Duration::from_secs(120),
            rest: Duration::from_secs(600),
            max_spawns: 3,
        }
    }
}
