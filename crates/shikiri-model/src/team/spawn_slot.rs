//! Decides which agents are started now.
//!
//! A [`SpawnSlot`] remembers the runs of a spawn target: the current run, the number of failures,
//! and how long the target rests. It is a record, so that a new coordinator leader knows what the
//! previous one did.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::agent_session::{AgentSession, SessionPurpose};
use super::spawn_queue::SpawnTarget;
use super::team_limits::TeamLimits;
use super::{InboxItem, InboxRetention, ProjectMember};
use crate::ids::{AgentSessionId, ConversationId, RunId, TenantId};
use crate::macros::document;
use crate::record::{RecordColumns, StoredDocument};
use crate::time::Timestamp;

/// Consecutive failures before the target rests.
const MAX_FAILURES: u32 = 5;
/// Each rest is twice as long as the one before. After the last one the target is given up, because
/// every run costs money.
const MAX_RESTS: u32 = 3;
/// The first pause after a failure is this fraction of the spawn guard. Each further pause is twice
/// as long, up to the guard itself.
const FIRST_PAUSE: u32 = 32;

/// The history of a spawn target's runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnSlot {
    /// Derived from the target, so that there is one record per target.
    pub id: String,
    pub tenant: TenantId,
    pub place: ProjectMember,
    pub purpose: SessionPurpose,
    /// The agent and project that the runs belong to.
    #[serde(default)]
    pub conversation: Option<ConversationId>,
    #[serde(default)]
    pub occupant: Option<SpawnedRun>,
    /// Consecutive failures.
    #[serde(default)]
    pub failures: u32,
    /// Rests since the last run that succeeded.
    #[serde(default)]
    pub rests: u32,
    /// The target is not started before this time.
    #[serde(default)]
    pub not_before: Option<Timestamp>,
}

/// A run that was started for the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnedRun {
    pub session: AgentSessionId,
    /// None until the starter has created the run.
    #[serde(default)]
    pub execution: Option<RunId>,
    pub since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnDecision {
    Start,
    Later(Timestamp),
    /// The inbox has nothing, or a live session will see it.
    NotNeeded,
}

/// The work in the inbox after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingWork {
    Nothing,
    /// Only items that came during the run. It may have been about to end.
    New,
    /// Also items that the run was started for.
    Old,
}

/// What to do after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRunAction {
    Nothing,
    StartAgain(Timestamp),
    /// Too many failures: wait until this time.
    Rest(Timestamp),
    /// Failures after every rest: stop starting the agent for the remaining items.
    GiveUp,
}

impl RemainingWork {
    /// Classifies the remaining items by the time when they came.
    pub fn of(waiting: &[StoredDocument<InboxItem>], occupant: &SpawnedRun, is_well: bool) -> Self {
        let is_taken = |one: &InboxItem| is_well && is_handled_by(one, &occupant.session);
        let is_left = |one: &InboxItem| is_reason(one) && !is_taken(one);
        let reasons = || waiting.iter().filter(|one| is_left(&one.value));
        if reasons().any(|one| one.created_at <= occupant.since) {
            Self::Old
        } else if reasons().next().is_some() {
            Self::New
        } else {
            Self::Nothing
        }
    }
}

/// Whether an inbox item is a reason to start its agent.
pub fn is_reason(waiting: &InboxItem) -> bool {
    waiting.due_at.is_some() && SpawnTarget::of(waiting).is_some()
}

/// Whether a session that ended well has handled the item by reading it. Messages and end notices
/// need no action. An end notice is not repeated without need, so its answer must have been
/// delivered.
pub fn is_handled_by(waiting: &InboxItem, session: &AgentSessionId) -> bool {
    let is_read = match waiting.what.retention() {
        InboxRetention::UntilNextLook => true,
        InboxRetention::UntilNextCall => waiting.has_come,
        InboxRetention::UntilDone => false,
    };
    is_read && waiting.is_seen_by(session)
}

impl SpawnSlot {
    pub fn new(target: &SpawnTarget) -> Self {
        Self {
            id: Self::id_of(target),
            tenant: target.tenant.clone(),
            place: target.place.clone(),
            purpose: target.purpose,
            conversation: None,
            occupant: None,
            failures: 0,
            rests: 0,
            not_before: None,
        }
    }

    pub fn id_of(target: &SpawnTarget) -> String {
        let text = format!("{}/{}", target.place.key(), target.purpose.as_str());
        let digest = Sha256::digest(text.as_bytes());
        format!("seat_{}", hex::encode(&digest[..20]))
    }

    pub fn spawn_target(&self) -> SpawnTarget {
        let (tenant, place) = (self.tenant.clone(), self.place.clone());
        SpawnTarget { tenant, place, purpose: self.purpose }
    }

    /// Whether to start a run while the slot is free.
    pub fn decide(&self, is_needed: bool, is_attended: bool, now: Timestamp) -> SpawnDecision {
        match self.not_before {
            _ if !is_needed || is_attended => SpawnDecision::NotNeeded,
            Some(at) if now < at => SpawnDecision::Later(at),
            _ => SpawnDecision::Start,
        }
    }

    pub fn take(&mut self, session: &AgentSession, now: Timestamp) {
        self.occupant =
            Some(SpawnedRun { session: session.id.clone(), execution: None, since: now });
        self.not_before = None;
    }

    /// Records the end of the run. A run that succeeded is finished unless it left items that it
    /// was started for.
    pub fn finish_run(
        &mut self,
        is_well: bool,
        left: RemainingWork,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> AfterRunAction {
        self.occupant = None;
        self.not_before = None;
        let did_its_work =
            left == RemainingWork::Nothing || (is_well && left == RemainingWork::New);
        if did_its_work {
            (self.failures, self.rests) = (0, 0);
            let is_new = left == RemainingWork::New;
            return if is_new { AfterRunAction::StartAgain(now) } else { AfterRunAction::Nothing };
        }
        self.failures += 1;
        if self.failures >= MAX_FAILURES {
            return self.rest(limits, now);
        }
        let pause = limits.spawn_guard / FIRST_PAUSE * (1 << (self.failures - 1));
        let at = now + pause.min(limits.spawn_guard);
        self.not_before = Some(at);
        AfterRunAction::StartAgain(at)
    }

    fn rest(&mut self, limits: &TeamLimits, now: Timestamp) -> AfterRunAction {
        if self.rests >= MAX_RESTS {
            // New work gets one attempt at a time until a run succeeds.
            self.failures = MAX_FAILURES - 1;
            return AfterRunAction::GiveUp;
        }
        let until = now + limits.rest * (1 << self.rests);
        self.rests += 1;
        self.failures = 0;
        self.not_before = Some(until);
        AfterRunAction::Rest(until)
    }
}

document!(SpawnSlot, "seat", tenant, id, |slot| RecordColumns {
    state: if slot.occupant.is_some() { SpawnSlot::TAKEN } else { "free" }.to_owned(),
    parent: Some(slot.place.project.to_string()),
    ..RecordColumns::default()
});

impl SpawnSlot {
    /// The state of slots with a run, which a new leader takes over.
    pub const TAKEN: &'static str = "taken";
}

#[cfg(test)]
#[path = "spawn_slot_tests.rs"]
mod tests;
