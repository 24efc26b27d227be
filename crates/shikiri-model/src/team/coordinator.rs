//! Who is to be started now.
//!
//! An errand is work for one agent in one project, as tasks or as talk. The `Agenda` says which
//! errands are looked at next, and keeps the number of agents at work within its limit. A `Seat` is
//! what is remembered of an errand's runs: who sits there, how often it went wrong, and until when
//! it is left alone. It is a record, so that a new leader knows what the one before it did.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::limits::TeamLimits;
use super::session::{AgentSession, Purpose};
use super::{Place, Waiting, What};
use crate::ids::{AgentSessionId, ConversationId, RunId, TenantId};
use crate::record::{Columns, Document, Stored};
use crate::time::Timestamp;

/// Runs that may go wrong one after another, before it is left alone for a while.
const MAX_FAILURES: u32 = 5;
const REST: Duration = Duration::from_secs(600);
/// The first pause after a run that went wrong is this part of the spawn guard; each further one
/// is twice as long, up to the guard itself.
const FIRST_PAUSE: u32 = 32;
/// A talk takes two: places that tasks leave free, if there are any to leave.
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
}

/// Which errands are looked at when, and which are being carried out.
#[derive(Debug, Default)]
pub struct Agenda {
    wanted: BTreeMap<Errand, Timestamp>,
    busy: BTreeSet<Errand>,
}

impl Agenda {
    /// Has it looked at, at that time or earlier.
    pub fn want(&mut self, errand: Errand, at: Timestamp) {
        let wanted = self.wanted.entry(errand).or_insert(at);
        *wanted = at.min(*wanted);
    }

    /// The next one to be looked at. It takes a place until it is `free`d.
    ///
    /// Talk comes first: tasks wait for it, never the other way round.
    pub fn next(&mut self, limits: &TeamLimits, now: Timestamp) -> Option<Errand> {
        let due = self.open(limits).filter(|(_, at)| **at <= now);
        let (errand, _) = due.min_by_key(|(errand, at)| (errand.purpose == Purpose::Task, **at))?;
        let errand = errand.clone();
        self.wanted.remove(&errand);
        self.busy.insert(errand.clone());
        Some(errand)
    }

    /// Gives one a place without asking: it has been started already.
    pub fn keep(&mut self, errand: Errand) {
        self.busy.insert(errand);
    }

    pub fn free(&mut self, errand: &Errand) {
        self.busy.remove(errand);
    }

    /// When the next one is to be looked at; with no place for it, not before one is free.
    pub fn next_at(&self, limits: &TeamLimits) -> Option<Timestamp> {
        self.open(limits).map(|(_, at)| *at).min()
    }

    /// Wanted ones that are not being carried out and have a place.
    fn open(&self, limits: &TeamLimits) -> impl Iterator<Item = (&Errand, &Timestamp)> {
        let (for_task, for_chat) =
            (self.has_place(Purpose::Task, limits), self.has_place(Purpose::Chat, limits));
        let has_place = move |purpose| match purpose {
            Purpose::Task => for_task,
            Purpose::Chat => for_chat,
        };
        let open = self.wanted.iter().filter(|(errand, _)| !self.busy.contains(*errand));
        open.filter(move |(errand, _)| has_place(errand.purpose))
    }

    fn has_place(&self, purpose: Purpose, limits: &TeamLimits) -> bool {
        let max = limits.max_spawns as usize;
        let tasks = self.busy.iter().filter(|one| one.purpose == Purpose::Task).count();
        let max_tasks = max.saturating_sub(KEPT_FOR_TALK).max(1);
        self.busy.len() < max && (purpose == Purpose::Chat || tasks < max_tasks)
    }
}

/// What is remembered of an errand's runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// Made of the errand, so that there is one.
    pub id: String,
    pub tenant: TenantId,
    pub place: Place,
    pub purpose: Purpose,
    /// Whose turns the runs are.
    #[serde(default)]
    pub conversation: Option<ConversationId>,
    #[serde(default)]
    pub occupant: Option<Occupant>,
    /// Runs that went wrong, one after another.
    #[serde(default)]
    pub failures: u32,
    /// It is left alone until then.
    #[serde(default)]
    pub not_before: Option<Timestamp>,
}

/// A run that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupant {
    pub session: AgentSessionId,
    /// None if whoever started it has not come so far.
    #[serde(default)]
    pub execution: Option<RunId>,
    pub since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Start,
    Later(Timestamp),
    /// Nothing waits, or somebody is there who will see it.
    NotNeeded,
}

/// What waits for the agent when a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// Only what came while it ran: it may have been on its way out.
    New,
    /// Also what it was started for.
    Old,
}

/// What follows from the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Nothing,
    StartAgain(Timestamp),
    /// It went wrong too often.
    Rest(Timestamp),
}

impl Left {
    /// Of what waits, by when it came.
    pub fn of(waiting: &[Stored<Waiting>], since: Timestamp) -> Self {
        let reasons = || waiting.iter().filter(|one| is_reason(&one.value));
        if reasons().any(|one| one.created_at <= since) {
            Self::Old
        } else if reasons().next().is_some() {
            Self::New
        } else {
            Self::Nothing
        }
    }
}

/// Whether something that waits is a reason to start its agent.
pub fn is_reason(waiting: &Waiting) -> bool {
    waiting.due_at.is_some() && Errand::of(waiting).is_some()
}

impl Seat {
    pub fn new(errand: &Errand) -> Self {
        Self {
            id: Self::id_of(errand),
            tenant: errand.tenant.clone(),
            place: errand.place.clone(),
            purpose: errand.purpose,
            conversation: None,
            occupant: None,
            failures: 0,
            not_before: None,
        }
    }

    pub fn id_of(errand: &Errand) -> String {
        let text = format!("{}/{}", errand.place.key(), errand.purpose.as_str());
        let digest = Sha256::digest(text.as_bytes());
        let hex: String = digest.iter().take(20).map(|byte| format!("{byte:02x}")).collect();
        format!("seat_{hex}")
    }

    pub fn errand(&self) -> Errand {
        let (tenant, place) = (self.tenant.clone(), self.place.clone());
        Errand { tenant, place, purpose: self.purpose }
    }

    /// Whether somebody is to be started in a seat that nobody has.
    pub fn decide(&self, is_needed: bool, is_attended: bool, now: Timestamp) -> Verdict {
        match self.not_before {
            _ if !is_needed || is_attended => Verdict::NotNeeded,
            Some(at) if now < at => Verdict::Later(at),
            _ => Verdict::Start,
        }
    }

    pub fn take(&mut self, session: &AgentSession, now: Timestamp) {
        self.occupant = Some(Occupant { session: session.id.clone(), execution: None, since: now });
        self.not_before = None;
    }

    /// Its run is over. Of a run that ended well nothing more is expected, unless it has left what
    /// it was started for.
    pub fn leave(
        &mut self,
        is_well: bool,
        left: Left,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> Next {
        self.occupant = None;
        self.not_before = None;
        if left == Left::Nothing {
            self.failures = 0;
            return Next::Nothing;
        }
        if is_well && left == Left::New {
            self.failures = 0;
            return Next::StartAgain(now);
        }
        self.failures += 1;
        if self.failures >= MAX_FAILURES {
            let until = now + REST;
            self.failures = 0;
            self.not_before = Some(until);
            return Next::Rest(until);
        }
        let pause = limits.spawn_guard / FIRST_PAUSE * (1 << (self.failures - 1));
        let at = now + pause.min(limits.spawn_guard);
        self.not_before = Some(at);
        Next::StartAgain(at)
    }
}

impl Document for Seat {
    const KIND: &'static str = "seat";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn columns(&self) -> Columns {
        Columns {
            state: if self.occupant.is_some() { Self::TAKEN } else { "free" }.to_owned(),
            parent: Some(self.place.project.to_string()),
            ..Columns::default()
        }
    }
}

impl Seat {
    /// The state of those that a new leader has to look after.
    pub const TAKEN: &'static str = "taken";
}

#[cfg(test)]
#[path = "coordinator_tests.rs"]
mod tests;
