//! What a talk may use up, with all that follows from it.
//!
//! A budget travels: an agent that is talked to, and delegates further because of it, passes on
//! what is left, one hop less. A restart finds the same numbers, since they lie in the records.

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

    /// For what an agent undertakes while these talk to it. What is tightest of each counts: there
    /// is no telling which of them it follows from.
    pub fn for_undertaking(
        talking: &[Budget],
        limits: &TeamLimits,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let mut budget = Self::fresh(limits, now);
        for other in talking {
            let Some(hops) = other.hops.checked_sub(1) else {
                return Err(RefusalCode::DelegationTooDeep.because(format!(
                    "this would be more than {} talks that follow from one another: do what you \
                     can by yourself",
                    limits.depth
                )));
            };
            budget.hops = budget.hops.min(hops);
            budget.turns = budget.turns.min(other.turns);
            budget.ends_at = budget.ends_at.min(other.ends_at);
        }
        if budget.turns < 2 {
            let message = "the talk that this would follow from has no turns left for another";
            return Err(RefusalCode::DelegationTooDeep.because(message));
        }
        Ok(budget)
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
        let tight = Budget { hops: 1, turns: 4, ends_at: now() };
        let next = Budget::for_undertaking(&[wide, tight], &limits, now()).unwrap();
        assert_eq!(next, Budget { hops: 0, turns: 4, ends_at: now() });
        let spent = Budget { turns: 1, ..wide };
        assert!(Budget::for_undertaking(&[spent], &limits, now()).is_err());
    }
}
