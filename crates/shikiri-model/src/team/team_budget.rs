//! How deep a chain of delegations, dialogues and messages may be, and how long it may take.
//!
//! The budget is inherited: an agent that delegates because of a conversation passes on what remains,
//! with one hop less. It is stored in the dialogue or message and in every session that was shown
//! it. So neither the end of a dialogue nor a restart refills it. How many messages two agents may
//! exchange is counted elsewhere (`message_budget.rs`).

use serde::{Deserialize, Serialize};

use super::team_limits::TeamLimits;
use super::team_refusal::{RefusalCode, TeamRefusal};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamBudget {
    /// Delegations that may still follow.
    pub hops: u32,
    pub ends_at: Timestamp,
}

impl TeamBudget {
    pub fn fresh(limits: &TeamLimits, now: Timestamp) -> Self {
        Self {
            hops: limits.delegation_depth.saturating_sub(1),
            ends_at: now + limits.delegation_wall,
        }
    }

    /// The budget that a message gives to its reader. It has no time limit.
    pub fn of_message(hops: u32, limits: &TeamLimits, now: Timestamp) -> Self {
        Self { hops, ..Self::fresh(limits, now) }
    }

    /// The budget of a session that carries out this work. Carrying it out is not a further hop.
    #[must_use]
    pub fn with_extra_hop(self) -> Self {
        Self { hops: self.hops.saturating_add(1), ..self }
    }

    /// The smaller value of each limit.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { hops: self.hops.min(other.hops), ends_at: self.ends_at.min(other.ends_at) }
    }

    /// The budget for new work of an agent that was shown all these. The smallest value of each
    /// limit counts, because the server cannot know which of them the work follows from.
    pub fn for_new_work(
        told: &[TeamBudget],
        limits: &TeamLimits,
        now: Timestamp,
    ) -> Result<Self, TeamRefusal> {
        let hops = Self::hops_after(told, limits)?;
        let budget = told.iter().fold(Self::fresh(limits, now), |all, one| all.and(*one));
        if budget.ends_at <= now {
            let message = "the talk that this would follow from has no time left for another";
            return Err(RefusalCode::DelegationTooDeep.because(message));
        }
        Ok(Self { hops, ..budget })
    }

    /// The hops that remain after one more.
    pub fn hops_after(told: &[TeamBudget], limits: &TeamLimits) -> Result<u32, TeamRefusal> {
        let Some(least) = told.iter().map(|one| one.hops).min() else {
            return Ok(limits.delegation_depth.saturating_sub(1));
        };
        least.checked_sub(1).ok_or_else(|| {
            RefusalCode::DelegationTooDeep.because(format!(
                "this would be more than {} talks or messages that follow from one another: do \
                 what you can by yourself",
                limits.delegation_depth
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
        let mut chain = vec![TeamBudget::for_new_work(&[], &limits, now()).unwrap()];
        while let Ok(next) = TeamBudget::for_new_work(&chain[chain.len() - 1..], &limits, now()) {
            assert!(next.ends_at <= chain[0].ends_at);
            chain.push(next);
        }
        assert_eq!(chain.len(), 3);
    }

    #[test]
    fn the_tightest_of_several_counts() {
        let limits = TeamLimits::default();
        let wide = TeamBudget::fresh(&limits, now());
        let soon = Timestamp::from_millis(1_000_001);
        let tight = TeamBudget { hops: 1, ends_at: soon };
        let next = TeamBudget::for_new_work(&[wide, tight], &limits, now()).unwrap();
        assert_eq!(next, TeamBudget { hops: 0, ends_at: soon });
        let used_up = TeamBudget { ends_at: now(), ..wide };
        assert!(TeamBudget::for_new_work(&[used_up], &limits, now()).is_err());
    }

    #[test]
    fn answers_to_answers_come_to_an_end() {
        let limits = TeamLimits::default();
        let mut hops = TeamBudget::hops_after(&[], &limits).unwrap();
        let mut messages = 1;
        while let Ok(next) =
            TeamBudget::hops_after(&[TeamBudget::of_message(hops, &limits, now())], &limits)
        {
            hops = next;
            messages += 1;
        }
        assert_eq!(messages, 3);
    }

    #[test]
    fn what_is_carried_out_costs_no_hop() {
        let limits = TeamLimits::default();
        let given = TeamBudget { hops: 0, ..TeamBudget::fresh(&limits, now()) };
        assert!(TeamBudget::for_new_work(&[given], &limits, now()).is_err());
        let own = given.with_extra_hop();
        assert_eq!(TeamBudget::for_new_work(&[own], &limits, now()).unwrap().hops, 0);
    }
}
