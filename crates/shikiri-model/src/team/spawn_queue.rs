//! Which agents are spawned, and how many at once.
//!
//! A spawn target is the work of one agent in one project, as tasks or as chat. The number of slots
//! is limited. Some agents wait for others while they hold a slot: an agent that started a dialogue
//! waits for its partner, and a task waits for its agent's chat. If those others needed a free
//! slot, all agents with a slot could wait forever for agents without one. So a waiting agent lends
//! its slot to the agent that it waits for, which may lend it on in turn. Each slot therefore has
//! exactly one agent that can make progress.

use std::collections::{BTreeMap, BTreeSet};

use super::agent_session::SessionPurpose;
use super::team_limits::TeamLimits;
use super::{InboxItem, InboxItemKind, ProjectMember};
use crate::ids::TenantId;
use crate::time::Timestamp;

/// Slots that tasks leave free where possible: a task may take long, and a message to an agent
/// should not wait for it.
const KEPT_FOR_TALK: usize = 2;

/// The work of one agent in one project, as tasks or as chat.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpawnTarget {
    pub tenant: TenantId,
    pub place: ProjectMember,
    pub purpose: SessionPurpose,
}

impl SpawnTarget {
    /// The target that an inbox item is a reason to start. The notice of an end is shown when there
    /// is another reason.
    pub fn of(waiting: &InboxItem) -> Option<Self> {
        let is_reason = !matches!(waiting.what, InboxItemKind::Ended { .. });
        is_reason.then(|| Self {
            tenant: waiting.tenant.clone(),
            place: waiting.place.clone(),
            purpose: waiting.what.purpose(),
        })
    }

    /// The target that cannot continue before the item is handled: the other side of a dialogue, or
    /// the task that a delegation is for.
    pub fn blocked_target(waiting: &InboxItem) -> Option<Self> {
        let ProjectMember { project, agent } = &waiting.place;
        let (agent, purpose) = match &waiting.what {
            InboxItemKind::Invitation { said, .. } | InboxItemKind::Turn { said, .. } => {
                (&said.from_agent_id, SessionPurpose::Chat)
            }
            InboxItemKind::Delegation(_) => (agent, SessionPurpose::Task),
            _ => return None,
        };
        let (tenant, place) = (waiting.tenant.clone(), ProjectMember::new(project, agent));
        Some(Self { tenant, place, purpose })
    }
}

/// The targets to examine, with their times, and the targets that run.
#[derive(Debug, Default)]
pub struct SpawnQueue {
    wanted: BTreeMap<SpawnTarget, QueuedSpawn>,
    busy: BTreeMap<SpawnTarget, ActiveSpawn>,
}

#[derive(Debug)]
struct QueuedSpawn {
    at: Timestamp,
    awaited_by: BTreeSet<SpawnTarget>,
}

#[derive(Debug, Default)]
struct ActiveSpawn {
    /// The target that lends its slot; None for a target with a slot of its own.
    lender: Option<SpawnTarget>,
    awaited_by: BTreeSet<SpawnTarget>,
}

impl SpawnQueue {
    /// Schedules a target for this time or earlier, and records the targets that wait for it.
    pub fn enqueue(
        &mut self,
        target: SpawnTarget,
        awaited_by: impl IntoIterator<Item = SpawnTarget>,
        at: Timestamp,
    ) {
        let wanted = self.wanted.entry(target);
        let wanted = wanted.or_insert_with(|| QueuedSpawn { at, awaited_by: BTreeSet::new() });
        wanted.at = at.min(wanted.at);
        wanted.awaited_by.extend(awaited_by);
    }

    /// The next target to examine. It holds a slot until it is released.
    ///
    /// Targets that running ones wait for come first, then chat before tasks: tasks wait for chat,
    /// never the other way round.
    pub fn next(&mut self, limits: &TeamLimits, now: Timestamp) -> Option<SpawnTarget> {
        let due = self.open(limits).filter(|(_, wanted)| wanted.at <= now);
        let rank = |target: &SpawnTarget, wanted: &QueuedSpawn| match target.purpose {
            _ if wanted.awaited_by.iter().any(|one| self.busy.contains_key(one)) => 0,
            SessionPurpose::Chat => 1,
            SessionPurpose::Task => 2,
        };
        let (target, _) = due.min_by_key(|(target, wanted)| (rank(target, wanted), wanted.at))?;
        let target = target.clone();
        let has_own = self.has_place(target.purpose, limits);
        let awaited_by = self.wanted.remove(&target)?.awaited_by;
        let lender = self.lender(&awaited_by).cloned().filter(|_| !has_own);
        self.busy.insert(target.clone(), ActiveSpawn { lender, awaited_by });
        Some(target)
    }

    /// Gives a slot to a target that is already running.
    pub fn mark_running(&mut self, target: SpawnTarget) {
        self.busy.insert(target, ActiveSpawn::default());
    }

    /// Releases the slot of a target and schedules the next look at it, if any. A target that
    /// borrowed its slot keeps it.
    pub fn release(&mut self, target: &SpawnTarget, again: Option<Timestamp>) {
        let Some(freed) = self.busy.remove(target) else { return };
        for other in self.busy.values_mut() {
            if other.lender.as_ref() == Some(target) {
                other.lender.clone_from(&freed.lender);
            }
        }
        if let Some(at) = again {
            self.enqueue(target.clone(), freed.awaited_by, at);
        }
    }

    /// When the next target is due. None while all slots are taken.
    pub fn next_at(&self, limits: &TeamLimits) -> Option<Timestamp> {
        self.open(limits).map(|(_, wanted)| wanted.at).min()
    }

    /// Scheduled targets that do not run and that have a slot.
    fn open(&self, limits: &TeamLimits) -> impl Iterator<Item = (&SpawnTarget, &QueuedSpawn)> {
        let (for_task, for_chat) = (
            self.has_place(SessionPurpose::Task, limits),
            self.has_place(SessionPurpose::Chat, limits),
        );
        let has_place = move |purpose| match purpose {
            SessionPurpose::Task => for_task,
            SessionPurpose::Chat => for_chat,
        };
        let open = self.wanted.iter().filter(|(target, _)| !self.busy.contains_key(*target));
        open.filter(move |(target, wanted)| {
            has_place(target.purpose) || self.lender(&wanted.awaited_by).is_some()
        })
    }

    /// A running target that waits for this one and has not lent its slot yet.
    fn lender<'a>(&self, awaited_by: &'a BTreeSet<SpawnTarget>) -> Option<&'a SpawnTarget> {
        let has_lent = |target: &SpawnTarget| {
            self.busy.values().any(|one| one.lender.as_ref() == Some(target))
        };
        awaited_by.iter().find(|one| self.busy.contains_key(*one) && !has_lent(one))
    }

    fn has_place(&self, purpose: SessionPurpose, limits: &TeamLimits) -> bool {
        let max = limits.max_spawns as usize;
        let own = || self.busy.iter().filter(|(_, busy)| busy.lender.is_none());
        let tasks = own().filter(|(one, _)| one.purpose == SessionPurpose::Task).count();
        let max_tasks = max.saturating_sub(KEPT_FOR_TALK).max(1);
        own().count() < max && (purpose == SessionPurpose::Chat || tasks < max_tasks)
    }
}

#[cfg(test)]
#[path = "spawn_queue_tests.rs"]
mod tests;
