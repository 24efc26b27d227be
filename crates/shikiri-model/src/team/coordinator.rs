//! Who is to be started now.
//!
//! A `Seat` is what is remembered of an errand's runs: who sits there, how often it went wrong, and
//! until when it is left alone. It is a record, so that a new leader knows what the one before it
//! did.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::agenda::Errand;
use super::limits::TeamLimits;
use super::session::{AgentSession, Purpose};
use super::{Place, Stay, Waiting};
use crate::ids::{AgentSessionId, ConversationId, RunId, TenantId};
use crate::record::{Columns, Document, Stored};
use crate::time::Timestamp;

/// Runs that may go wrong one after another, before it is left alone for a while.
const MAX_FAILURES: u32 = 5;
/// Each rest after the first is twice as long as the one before. After the last one it is given up:
/// every run is paid for.
const MAX_RESTS: u32 = 3;
/// The first pause after a run that went wrong is this part of the spawn guard; each further one
/// is twice as long, up to the guard itself.
const FIRST_PAUSE: u32 = 32;

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
    /// Rests since a run last did its work.
    #[serde(default)]
    pub rests: u32,
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
    /// It went wrong after every rest: nobody is started for what is left.
    GiveUp,
}

impl Left {
    /// Of what waits, by when it came.
    pub fn of(waiting: &[Stored<Waiting>], occupant: &Occupant, is_well: bool) -> Self {
        let is_taken = |one: &Waiting| is_well && is_taken_by(one, &occupant.session);
        let is_left = |one: &Waiting| is_reason(one) && !is_taken(one);
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

/// Whether something that waits is a reason to start its agent.
pub fn is_reason(waiting: &Waiting) -> bool {
    waiting.due_at.is_some() && Errand::of(waiting).is_some()
}

/// Whether a session that ended well has dealt with it by reading it: a message asks for nothing,
/// nor does an end. Of an end nobody is told again without need, so its answer must have come.
pub fn is_taken_by(waiting: &Waiting, session: &AgentSessionId) -> bool {
    let is_read = match waiting.what.stays() {
        Stay::UntilNextLook => true,
        Stay::UntilNextCall => waiting.has_come,
        Stay::UntilDone => false,
    };
    is_read && waiting.is_seen_by(session)
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
            rests: 0,
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
        let did_its_work = left == Left::Nothing || (is_well && left == Left::New);
        if did_its_work {
            (self.failures, self.rests) = (0, 0);
            let is_new = left == Left::New;
            return if is_new { Next::StartAgain(now) } else { Next::Nothing };
        }
        self.failures += 1;
        if self.failures >= MAX_FAILURES {
            return self.rest(limits, now);
        }
        let pause = limits.spawn_guard / FIRST_PAUSE * (1 << (self.failures - 1));
        let at = now + pause.min(limits.spawn_guard);
        self.not_before = Some(at);
        Next::StartAgain(at)
    }

    fn rest(&mut self, limits: &TeamLimits, now: Timestamp) -> Next {
        if self.rests >= MAX_RESTS {
            // Whatever comes now has one try, until one of them goes well.
            self.failures = MAX_FAILURES - 1;
            return Next::GiveUp;
        }
        let until = now + limits.rest * (1 << self.rests);
        self.rests += 1;
        self.failures = 0;
        self.not_before = Some(until);
        Next::Rest(until)
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
