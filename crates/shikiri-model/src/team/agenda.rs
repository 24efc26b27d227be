//! Which errands are carried out, and how many at once.
//!
//! An errand is work for one agent in one project, as tasks or as talk. There are so many places
//! for them. Some errands wait for others while they have their place: whoever has begun a talk
//! waits for its partner, and a task for its agent's talk. If those had to wait for a place in
//! their turn, all that have one could wait for ever for somebody who gets none. So whoever is at
//! work lends its place to one that it waits for, and that one likewise to another. A place thus
//! has one errand that waits for nobody but may go on, and the number of places says how many of
//! those there are.

use std::collections::{BTreeMap, BTreeSet};

use super::limits::TeamLimits;
use super::session::Purpose;
use super::{Place, Waiting, What};
use crate::ids::TenantId;
use crate::time::Timestamp;

/// Places that tasks leave free, if there are any to leave: a task may take long, and somebody
/// who writes to an agent is not to wait for it.
const KEPT_FOR_TALK: usize = 2;

/// Work for one agent in one project, as tasks or as talk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Errand {
    pub tenant: TenantId,
    pub place: Place,
    pub purpose: Purpose,
}

impl Errand {
    /// What something that waits is a reason to start. An end is told when there is another.
    pub fn of(waiting: &Waiting) -> Option<Self> {
        let is_reason = !matches!(waiting.what, What::Ended { .. });
        is_reason.then(|| Self {
            tenant: waiting.tenant.clone(),
            place: waiting.place.clone(),
            purpose: waiting.what.purpose(),
        })
    }

    /// Who cannot go on before this is dealt with: the other side of a talk, or the task that a
    /// delegation is for.
    pub fn awaiting(waiting: &Waiting) -> Option<Self> {
        let Place { project, agent } = &waiting.place;
        let (agent, purpose) = match &waiting.what {
            What::Invitation { said, .. } | What::Turn { said, .. } => {
                (&said.from_agent_id, Purpose::Chat)
            }
            What::Delegation(_) => (agent, Purpose::Task),
            _ => return None,
        };
        let (tenant, place) = (waiting.tenant.clone(), Place::new(project, agent));
        Some(Self { tenant, place, purpose })
    }
}

/// Which errands are looked at when, and which are being carried out.
#[derive(Debug, Default)]
pub struct Agenda {
    wanted: BTreeMap<Errand, Wanted>,
    busy: BTreeMap<Errand, Busy>,
}

#[derive(Debug)]
struct Wanted {
    at: Timestamp,
    awaited_by: BTreeSet<Errand>,
}

#[derive(Debug, Default)]
struct Busy {
    /// Who lends it its place; None if it has one of its own.
    lender: Option<Errand>,
    awaited_by: BTreeSet<Errand>,
}

impl Agenda {
    /// Has it looked at, at that time or earlier, because these wait for it.
    pub fn want(
        &mut self,
        errand: Errand,
        awaited_by: impl IntoIterator<Item = Errand>,
        at: Timestamp,
    ) {
        let wanted = self.wanted.entry(errand);
        let wanted = wanted.or_insert_with(|| Wanted { at, awaited_by: BTreeSet::new() });
        wanted.at = at.min(wanted.at);
        wanted.awaited_by.extend(awaited_by);
    }

    /// The next one to be looked at. It takes a place until it is `free`d.
    ///
    /// Whom somebody at work waits for comes first, then talk: tasks wait for it, never the other
    /// way round.
    pub fn next(&mut self, limits: &TeamLimits, now: Timestamp) -> Option<Errand> {
        let due = self.open(limits).filter(|(_, wanted)| wanted.at <= now);
        let rank = |errand: &Errand, wanted: &Wanted| match errand.purpose {
            _ if wanted.awaited_by.iter().any(|one| self.busy.contains_key(one)) => 0,
            Purpose::Chat => 1,
            Purpose::Task => 2,
        };
        let (errand, _) = due.min_by_key(|(errand, wanted)| (rank(errand, wanted), wanted.at))?;
        let errand = errand.clone();
        let has_own = self.has_place(errand.purpose, limits);
        let awaited_by = self.wanted.remove(&errand)?.awaited_by;
        let lender = self.lender(&awaited_by).cloned().filter(|_| !has_own);
        self.busy.insert(errand.clone(), Busy { lender, awaited_by });
        Some(errand)
    }

    /// Gives one a place without asking: it has been started already.
    pub fn keep(&mut self, errand: Errand) {
        self.busy.insert(errand, Busy::default());
    }

    /// It is carried out no more; it is looked at again at that time, if at all. Whoever it had
    /// lent its place to keeps that.
    pub fn free(&mut self, errand: &Errand, again: Option<Timestamp>) {
        let Some(freed) = self.busy.remove(errand) else { return };
        for other in self.busy.values_mut() {
            if other.lender.as_ref() == Some(errand) {
                other.lender.clone_from(&freed.lender);
            }
        }
        if let Some(at) = again {
            self.want(errand.clone(), freed.awaited_by, at);
        }
    }

    /// When the next one is to be looked at; with no place for it, not before one is free.
    pub fn next_at(&self, limits: &TeamLimits) -> Option<Timestamp> {
        self.open(limits).map(|(_, wanted)| wanted.at).min()
    }

    /// Wanted ones that are not being carried out and have a place.
    fn open(&self, limits: &TeamLimits) -> impl Iterator<Item = (&Errand, &Wanted)> {
        let (for_task, for_chat) =
            (self.has_place(Purpose::Task, limits), self.has_place(Purpose::Chat, limits));
        let has_place = move |purpose| match purpose {
            Purpose::Task => for_task,
            Purpose::Chat => for_chat,
        };
        let open = self.wanted.iter().filter(|(errand, _)| !self.busy.contains_key(*errand));
        open.filter(move |(errand, wanted)| {
            has_place(errand.purpose) || self.lender(&wanted.awaited_by).is_some()
        })
    }

    /// One of those at work that has not lent its place.
    fn lender<'a>(&self, awaited_by: &'a BTreeSet<Errand>) -> Option<&'a Errand> {
        let has_lent =
            |errand: &Errand| self.busy.values().any(|one| one.lender.as_ref() == Some(errand));
        awaited_by.iter().find(|one| self.busy.contains_key(*one) && !has_lent(one))
    }

    fn has_place(&self, purpose: Purpose, limits: &TeamLimits) -> bool {
        let max = limits.max_spawns as usize;
        let own = || self.busy.iter().filter(|(_, busy)| busy.lender.is_none());
        let tasks = own().filter(|(one, _)| one.purpose == Purpose::Task).count();
        let max_tasks = max.saturating_sub(KEPT_FOR_TALK).max(1);
        own().count() < max && (purpose == Purpose::Chat || tasks < max_tasks)
    }
}

#[cfg(test)]
#[path = "agenda_tests.rs"]
mod tests;
