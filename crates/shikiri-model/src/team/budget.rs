//! What a talk may use up, with all that follows from it.
//!
//! A budget travels: an agent that is talked to, and delegates further because of it, passes on
//! what is left, one hop less. It lies in the records: in the dialogue or message, and with every
//! session that was shown it, which pays from it what it undertakes. So neither the end of a talk
//! nor a restart refills it.

use serde::{Deserialize, Serialize};

use super::limits::TeamLimits;
use super::refusal::{Refusal, RefusalCode};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Delegations that may still follow from this one.
    pub hops: u32,
    /// Messages that may still be said.
    pub turns: u32,
    pub ends_at: Timestamp,
}

impl Budget {
    /// The most messages that a dialogue may have.
    pub const MAX_TURNS: u32 = 40;

    pub fn fresh(limits: &TeamLimits, now: Timestamp) -> Self {
        Self {
            hops: limits.depth.saturating_sub(1),
            turns: Self::MAX_TURNS,
            ends_at: now + limits.wall,
        }
    }

    /// What a message leaves to whoever reads it. It takes no time.
    pub fn of_message(hops: u32, limits: &TeamLimits, now: Timestamp) -> Self {
        Self { hops, ..Self::fresh(limits, now) }
    }

    /// For a session that was given this to carry out: what it does for it is no further hop.
    #[must_use]
    pub fn to_carry_out(self) -> Self {
        Self { hops: self.hops.saturating_add(1), ..self }
    }

    /// What is tightest of each.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            hops: self.hops.min(other.hops),
            turns: self.turns.min(other.turns),
            ends_at: self.ends_at.min(other.ends_at),
        }
    }

    pub fn spend(&mut self, turns: u32) {
        self.turns = self.turns.saturating_sub(turns);
    }

    /// For what an agent undertakes after it was told all this. What is tightest of each counts:
    /// there is no telling which of them it follows from.
    pub fn for_undertaking(
        told: &[Budget],
        limits: &TeamLimits,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let hops = Self::hops_after(told, limits)?;
        let budget = told.iter().fold(Self::fresh(limits, now), |all, one| all.and(*one));
        if budget.turns < 2 {
            let message = "the talk that this would follow from has no turns left for another";
            return Err(RefusalCode::DelegationTooDeep.because(message));
        }
        if budget.ends_at <= now {
            let message = "the talk that this would follow from has no time left for another";
            return Err(RefusalCode::DelegationTooDeep.because(message));
        }
        Ok(Self { hops, ..budget })
    }

    /// What is left of the hops after one more.
    pub fn hops_after(told: &[Budget], limits: &TeamLimits) -> Result<u32, Refusal> {
        let Some(least) = told.iter().map(|one| one.hops).min() else {
            return Ok(limits.depth.saturating_sub(1));
        };
        if told.iter().any(|one| one.turns == 0) {
            let message = "what this would follow from has no turns left";
            return Err(RefusalCode::DelegationTooDeep.because(message));
        }
        least.checked_sub(1).ok_or_else(|| {
            RefusalCode::DelegationTooDeep.because(format!(
                "this would be more than {} talks or messages that follow from one another: do \
                 what you can by yourself",
                limits.depth
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_millis(1_000_000)
    }

    #[test]
    fn a_chain_ends_at_its_depth_and_is_never_refilled() {
        let limits = TeamLimits::default();
        let mut chain = vec![Budget::for_undertaking(&[], &limits, now()).unwrap()];
        while let Ok(next) = Budget::for_undertaking(&chain[chain.len() - 1..], &limits, now()) {
            assert!(next.ends_at <= chain[0].ends_at && next.turns <= chain[0].turns);
            chain.push(next);
        }
        assert_eq!(chain.len(), 3);
    }

    #[test]
    fn the_tightest_of_several_counts() {
        let limits = TeamLimits::default();
        let wide = Budget::fresh(&limits, now());
        let soon = Timestamp::from_millis(1_000_001);
        let tight = Budget { hops: 1, turns: 4, ends_at: soon };
        let next = Budget::for_undertaking(&[wide, tight], &limits, now()).unwrap();
        assert_eq!(next, Budget { hops: 0, turns: 4, ends_at: soon });
        for used_up in [Budget { turns: 1, ..wide }, Budget { ends_at: now(), ..wide }] {
            assert!(Budget::for_undertaking(&[used_up], &limits, now()).is_err());
        }
    }

    #[test]
    fn answers_to_answers_come_to_an_end() {
        let limits = TeamLimits::default();
        let mut hops = Budget::hops_after(&[], &limits).unwrap();
        let mut messages = 1;
        while let Ok(next) =
            Budget::hops_after(&[Budget::of_message(hops, &limits, now())], &limits)
        {
            hops = next;
            messages += 1;
        }
        assert_eq!(messages, 3);
    }

    #[test]
    fn what_is_carried_out_costs_no_hop_and_turns_are_paid_once() {
        let limits = TeamLimits::default();
        let given = Budget { hops: 0, ..Budget::fresh(&limits, now()) };
        assert!(Budget::for_undertaking(&[given], &limits, now()).is_err());
        let mut own = given.to_carry_out();
        assert_eq!(Budget::for_undertaking(&[own], &limits, now()).unwrap().hops, 0);
        own.spend(39);
        assert!(Budget::for_undertaking(&[own], &limits, now()).is_err());
        assert!(Budget::hops_after(&[own], &limits).is_ok(), "enough for a message");
        own.spend(1);
        assert!(Budget::hops_after(&[own], &limits).is_err());
    }
}
