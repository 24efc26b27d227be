//! An agent's login session, for tasks or for chat. The two kinds are independent: when one ends,
//! the other continues.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ProjectMember;
use super::team_budget::TeamBudget;
use super::team_limits::TeamLimits;
use crate::ids::{AgentSessionId, TaskId, TenantId};
use crate::key::KeyHash;
use crate::macros::{document, text_enum};
use crate::record::RecordColumns;
use crate::time::Timestamp;

text_enum! {
    #[derive(PartialOrd, Ord)]
    pub enum SessionPurpose {
        Task = "task",
        Chat = "chat",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSession {
    pub id: AgentSessionId,
    pub tenant: TenantId,
    pub place: ProjectMember,
    pub purpose: SessionPurpose,
    /// The hash of the session token.
    pub hash: KeyHash,
    pub expires_at: Timestamp,
    /// The session ends after this long without a call.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// The time of its last call, to within `SEEN_STEP`.
    pub seen_at: Timestamp,
    /// The task that a task session works on.
    #[serde(default)]
    pub task: Option<TaskId>,
    /// The smallest budget of everything that the session was shown. New work of the session draws
    /// on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<TeamBudget>,
    /// Ids of inbox items that were handed to this session. Its next call confirms that it read
    /// them, and they are removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handed: Vec<String>,
    /// The end of the session was handled. The record is kept to tell an expired token from a wrong
    /// one.
    #[serde(default)]
    pub is_over: bool,
}

/// How long an ended session is kept.
const REMEMBERED: Duration = Duration::from_secs(24 * 3_600);

/// `seen_at` is written at most this often.
const SEEN_STEP: Duration = Duration::from_secs(2);

impl AgentSession {
    pub fn start(
        id: AgentSessionId,
        tenant: TenantId,
        place: ProjectMember,
        purpose: SessionPurpose,
        hash: KeyHash,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> Self {
        let idle = (purpose == SessionPurpose::Chat).then_some(limits.chat_idle);
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

    /// When the session ends if it is not used.
    pub fn ends_at(&self) -> Timestamp {
        let idle = self.idle_ms.map(|idle| self.seen_at + Duration::from_millis(idle));
        idle.map_or(self.expires_at, |idle| idle.min(self.expires_at))
    }

    pub fn is_live(&self, now: Timestamp) -> bool {
        !self.is_over && now < self.ends_at()
    }

    /// Narrows the budget to that of something that the session was shown. Returns true if it got
    /// smaller.
    pub fn add_told_budget(&mut self, budget: TeamBudget) -> bool {
        let before = self.told;
        self.told = Some(before.map_or(budget, |told| told.and(budget)));
        self.told != before
    }

    /// Records an item that the session's next call confirms as read. Returns true if it is new.
    pub fn mark_handed(&mut self, id: &str) -> bool {
        let is_new = !self.handed.iter().any(|known| known == id);
        if is_new {
            self.handed.push(id.to_owned());
        }
        is_new
    }

    /// Whether `seen_at` should be written now: rarely, but often enough for every limit that is
    /// computed from it.
    pub fn is_touch_due(&self, limits: &TeamLimits, now: Timestamp) -> bool {
        now >= self.seen_at + seen_step(limits)
    }

    /// A session that the server opens for a spawned agent. Its first use is always written, so
    /// that it is visible whether the agent logged in.
    #[must_use]
    pub fn not_yet_used(self, limits: &TeamLimits) -> Self {
        let step = i64::try_from(seen_step(limits).as_millis()).unwrap_or(0);
        Self { seen_at: Timestamp::from_millis(self.seen_at.as_millis() - step), ..self }
    }
}

fn seen_step(limits: &TeamLimits) -> Duration {
    SEEN_STEP.min(limits.chat_idle / 10).min(limits.delegation_claim / 10)
}

document!(AgentSession, "agent_session", tenant, id, |session| {
    let ends_at = session.ends_at();
    RecordColumns {
        state: if session.is_over { "over" } else { session.purpose.as_str() }.to_owned(),
        parent: Some(session.place.project.to_string()),
        owner: (!session.is_over).then(|| session.place.key()),
        unique: Some(session.hash.as_str().to_owned()),
        due_at: Some(if session.is_over { ends_at + REMEMBERED } else { ends_at }),
    }
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SecretToken;

    fn session(purpose: SessionPurpose) -> AgentSession {
        let place = ProjectMember { project: "p".parse().unwrap(), agent: "a".parse().unwrap() };
        let hash = SecretToken::from_caller("x").hash();
        let (id, now) = ("ses_1".parse().unwrap(), Timestamp::from_millis(0));
        let limits = TeamLimits::default();
        AgentSession::start(id, TenantId::local(), place, purpose, hash, &limits, now)
    }

    #[test]
    fn a_chat_session_ends_when_idle_and_both_end_after_an_hour() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let (task, mut chat) = (session(SessionPurpose::Task), session(SessionPurpose::Chat));
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
        let mut chat = session(SessionPurpose::Chat);
        let (wide, tight) =
            (TeamBudget::of_message(2, &limits, now), TeamBudget::of_message(1, &limits, now));
        assert!(
            chat.add_told_budget(wide)
                && chat.add_told_budget(tight)
                && !chat.add_told_budget(wide)
        );
        assert_eq!(chat.told.unwrap().hops, 1);
    }

    #[test]
    fn use_is_written_down_well_before_a_limit() {
        let limits = TeamLimits::default();
        let chat = session(SessionPurpose::Chat);
        assert!(!chat.is_touch_due(&limits, Timestamp::from_millis(1_999)));
        assert!(chat.is_touch_due(&limits, Timestamp::from_millis(2_000)));
        let short = TeamLimits { delegation_claim: Duration::from_millis(500), ..limits };
        assert!(chat.is_touch_due(&short, Timestamp::from_millis(50)));
    }

    #[test]
    fn the_first_use_of_a_session_that_was_opened_for_an_agent_is_seen() {
        let (limits, now) = (TeamLimits::default(), Timestamp::from_millis(0));
        let fresh = session(SessionPurpose::Task);
        assert!(!fresh.is_touch_due(&limits, now));
        let fresh = fresh.not_yet_used(&limits);
        assert!(fresh.seen_at < now && fresh.is_touch_due(&limits, now));
    }
}
