//! An agent's login, for tasks or for talk. The two know nothing of each other: one ends, the
//! other goes on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Place;
use super::budget::Budget;
use super::limits::TeamLimits;
use crate::ids::{AgentSessionId, TaskId, TenantId};
use crate::key::KeyHash;
use crate::record::{Columns, Document};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    Task,
    Chat,
}

impl Purpose {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Chat => "chat",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSession {
    pub id: AgentSessionId,
    pub tenant: TenantId,
    pub place: Place,
    pub purpose: Purpose,
    /// Of its token.
    pub hash: KeyHash,
    pub expires_at: Timestamp,
    /// Without a call for so long, it ends.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// About when it last called.
    pub seen_at: Timestamp,
    /// What a task session works on.
    #[serde(default)]
    pub task: Option<TaskId>,
    /// What is left of all that it was shown: what it undertakes may follow from any of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Budget>,
    /// What it was told that goes off its agent's list when it calls again: ids on that list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handed: Vec<String>,
    /// Its end has been dealt with; it is kept to tell an old token from a wrong one.
    #[serde(default)]
    pub is_over: bool,
}

/// How long an ended session is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 3_600);

/// A use is written down at most so often.
const SEEN_STEP: Duration = Duration::from_secs(2);

impl AgentSession {
    pub fn start(
        id: AgentSessionId,
        tenant: TenantId,
        place: Place,
        purpose: Purpose,
        hash: KeyHash,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> Self {
        let idle = (purpose == Purpose::Chat).then_some(limits.chat_idle);
        Self {
            id,
            tenant,
            place,
            purpose,
            hash,
            expires_at: now + limits.session,
            idle_ms: idle.map(|idle| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)),
            seen_at: now,
            task: None,
            told: None,
            handed: Vec::new(),
            is_over: false,
        }
    }

    /// When it ends unless it is used.
    pub fn ends_at(&self) -> Timestamp {
        let idle = self.idle_ms.map(|idle| self.seen_at + Duration::from_millis(idle));
        idle.map_or(self.expires_at, |idle| idle.min(self.expires_at))
    }

    pub fn is_live(&self, now: Timestamp) -> bool {
        !self.is_over && now < self.ends_at()
    }

    /// It was shown something from which this may follow. True if that leaves it less than before.
    pub fn hear(&mut self, budget: Budget) -> bool {
        let before = self.told;
        self.told = Some(before.map_or(budget, |told| told.and(budget)));
        self.told != before
    }

    /// It was told something that its next call proves to be heard. True if that is new.
    pub fn hand(&mut self, id: &str) -> bool {
        let is_new = !self.handed.iter().any(|known| known == id);
        if is_new {
            self.handed.push(id.to_owned());
        }
        is_new
    }

    /// Whether its use should be written down: not every time, but so often that no limit that is
    /// counted from it comes near.
    pub fn is_stale(&self, limits: &TeamLimits, now: Timestamp) -> bool {
        now >= self.seen_at + seen_step(limits)
    }

    /// A session that is opened for somebody else: its first use is written down in any case, so
    /// that one can tell whether there was one.
    #[must_use]
    pub fn not_yet_used(self, limits: &TeamLimits) -> Self {
        let step = i64::try_from(seen_step(limits).as_millis()).unwrap_or(0);
        Self { seen_at: Timestamp::from_millis(self.seen_at.as_millis() - step), ..self }
    }
}

fn seen_step(limits: &TeamLimits) -> Duration {
    SEEN_STEP.min(limits.chat_idle / 10).min(limits.claim / 10)
}

impl Document for AgentSession {
    const KIND: &'static str = "agent_session";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        let ends_at = self.ends_at();
        Columns {
            state: if self.is_over { "over" } else { self.purpose.as_str() }.to_owned(),
            parent: Some(self.place.project.to_string()),
            owner: (!self.is_over).then(|| self.place.key()),
            unique: Some(self.hash.as_str().to_owned()),
            due_at: Some(if self.is_over { ends_at + REMEMBERED } else { ends_at }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Secret;

    fn session(purpose: Purpose) -> AgentSession {
        let place = Place { project: "p".parse().unwrap(), agent: "a".parse().unwrap() };
        let hash = Secret::from_caller("x").hash();
        let (id, now) = ("ses_1".parse().unwrap(), Timestamp::from_millis(0));
        let limits = TeamLimits::default();
        AgentSession::start(id, TenantId::local(), place, purpose, hash, &limits, now)
    }

    #[test]
    fn a_chat_session_ends_when_idle_and_both_end_after_an_hour() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let (task, mut chat) = (session(Purpose::Task), session(Purpose::Chat));
        assert!(chat.is_live(at(599)) && !chat.is_live(at(600)));
        chat.seen_at = at(500);
        assert!(chat.is_live(at(1_099)) && !chat.is_live(at(1_100)));
        chat.seen_at = at(3_599);
        assert!(chat.is_live(at(3_599)) && !chat.is_live(at(3_600)));
        assert!(task.is_live(at(3_599)) && !task.is_live(at(3_600)));
    }

    #[test]
    fn what_a_session_was_shown_is_never_refilled() {
        let (limits, now) = (TeamLimits::default(), Timestamp::from_millis(0));
        let mut chat = session(Purpose::Chat);
        let (wide, tight) =
            (Budget::of_message(2, &limits, now), Budget::of_message(1, &limits, now));
        assert!(chat.hear(wide) && chat.hear(tight) && !chat.hear(wide));
        assert_eq!(chat.told.unwrap().hops, 1);
    }

    #[test]
    fn use_is_written_down_well_before_a_limit() {
        let limits = TeamLimits::default();
        let chat = session(Purpose::Chat);
        assert!(!chat.is_stale(&limits, Timestamp::from_millis(1_999)));
        assert!(chat.is_stale(&limits, Timestamp::from_millis(2_000)));
        let short = TeamLimits { claim: Duration::from_millis(500), ..limits };
        assert!(chat.is_stale(&short, Timestamp::from_millis(50)));
    }

    #[test]
    fn the_first_use_of_a_session_that_was_opened_for_somebody_is_seen() {
        let (limits, now) = (TeamLimits::default(), Timestamp::from_millis(0));
        let fresh = session(Purpose::Task);
        assert!(!fresh.is_stale(&limits, now));
        let fresh = fresh.not_yet_used(&limits);
        assert!(fresh.seen_at < now && fresh.is_stale(&limits, now));
    }
}
