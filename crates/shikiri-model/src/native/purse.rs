//! Tokens and money of a thread: what was spent, and what is set aside for requests under way.

use std::collections::BTreeMap;

use super::limits::{Limit, Limits};
use crate::execution::{Cost, Prices, Usage};

/// The least output that a request is worth sending for.
const LEAST_OUTPUT: u64 = 64;

/// What a request is expected to use at most.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    pub input_tokens: u64,
    /// The most that the model may write.
    pub max_output: u64,
    pub prices: Prices,
}

/// A request that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The most that the model may write, which may be less than was asked for.
    pub max_output: u64,
    /// The limit that made it less.
    pub capped: Option<Limit>,
}

/// What is set aside, under a name.
pub type Reservation = u64;

#[derive(Clone, Debug, Default)]
pub(super) struct Purse {
    max_tokens: Option<u64>,
    max_cost: Option<Cost>,
    tokens: u64,
    cost: Cost,
    set_aside: BTreeMap<Reservation, (u64, Cost)>,
}

impl Purse {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { max_tokens: limits.max_tokens, max_cost: limits.max_cost_usd, ..Self::default() }
    }

    /// How much output there is room for, beside what is set aside already.
    pub(super) fn grant(&self, wanted: &Estimate) -> Result<Grant, Limit> {
        let mut grant = Grant { max_output: wanted.max_output, capped: None };
        if let Some(max) = self.max_tokens {
            let aside = self.set_aside.values().map(|(tokens, _)| *tokens);
            let used = aside.chain([self.tokens, wanted.input_tokens]).fold(0, u64::saturating_add);
            grant.at_most(max.saturating_sub(used), Limit::MaxTokens)?;
        }
        if let Some(max) = self.max_cost {
            let aside: Cost = self.set_aside.values().map(|(_, cost)| *cost).sum();
            let used = self.cost + aside + input_cost(wanted);
            let left = max.saturating_sub(used);
            if left == Cost::default() {
                return Err(Limit::MaxCostUsd);
            }
            let one = wanted.prices.cost(&output(1));
            grant.at_most(left.parts_of(one), Limit::MaxCostUsd)?;
        }
        Ok(grant)
    }

    pub(super) fn set_aside(&mut self, name: Reservation, wanted: &Estimate, granted: u64) {
        let tokens = wanted.input_tokens.saturating_add(granted);
        let cost = input_cost(wanted) + wanted.prices.cost(&output(granted));
        self.set_aside.insert(name, (tokens, cost));
    }

    pub(super) fn give_back(&mut self, name: Reservation) {
        self.set_aside.remove(&name);
    }

    pub(super) fn spend(&mut self, usage: &Usage, cost: Cost) {
        self.tokens = self.tokens.saturating_add(tokens(usage));
        self.cost += cost;
    }

    /// At least so much is gone: told before, and not in the entries.
    pub(super) fn at_least(&mut self, usage: &Usage, cost: Cost) {
        self.tokens = self.tokens.max(tokens(usage));
        self.cost = self.cost.max(cost);
    }
}

impl Grant {
    fn at_most(&mut self, room: u64, limit: Limit) -> Result<(), Limit> {
        if room < LEAST_OUTPUT.min(self.max_output) {
            return Err(limit);
        }
        if room < self.max_output {
            (self.max_output, self.capped) = (room, Some(limit));
        }
        Ok(())
    }
}

/// Of every kind: the limit is on all that is sent and received.
fn tokens(usage: &Usage) -> u64 {
    [
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_write_5m_tokens,
        usage.cache_write_1h_tokens,
        usage.cache_read_tokens,
    ]
    .into_iter()
    .fold(0, u64::saturating_add)
}

/// All of it may have to be written to the cache, which costs more.
fn input_cost(wanted: &Estimate) -> Cost {
    let read = Usage { input_tokens: wanted.input_tokens, ..Usage::default() };
    let written = Usage { cache_write_5m_tokens: wanted.input_tokens, ..Usage::default() };
    wanted.prices.cost(&read).max(wanted.prices.cost(&written))
}

fn output(tokens: u64) -> Usage {
    Usage { output_tokens: tokens, ..Usage::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::Price;

    fn estimate(input_tokens: u64, max_output: u64) -> Estimate {
        // 1 and 5 dollars for a million.
        let prices = Prices {
            input: Price::from_micros(1_000_000),
            output: Price::from_micros(5_000_000),
            ..Prices::default()
        };
        Estimate { input_tokens, max_output, prices }
    }

    fn dollars(text: &str) -> Option<Cost> {
        Some(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn what_is_set_aside_is_not_given_twice() {
        let limits = Limits { max_tokens: Some(1_000), ..Limits::default() };
        let mut purse = Purse::new(&limits);
        let wanted = estimate(100, 500);
        assert_eq!(purse.grant(&wanted), Ok(Grant { max_output: 500, capped: None }));
        purse.set_aside(1, &wanted, 500);
        let second = Grant { max_output: 300, capped: Some(Limit::MaxTokens) };
        assert_eq!(purse.grant(&wanted), Ok(second));
        purse.set_aside(2, &wanted, 300);
        assert_eq!(purse.grant(&wanted), Err(Limit::MaxTokens));
        // The first used less than it might have.
        purse.give_back(1);
        purse.spend(
            &Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() },
            Cost::default(),
        );
        assert_eq!(purse.grant(&wanted).map(|grant| grant.max_output), Ok(390));
    }

    #[test]
    fn money_is_kept_as_well_as_tokens() {
        // 0.001 dollars: 100 tokens of input are 0.0001, and 180 of output the rest.
        let limits = Limits { max_cost_usd: dollars("0.001"), ..Limits::default() };
        let mut purse = Purse::new(&limits);
        let grant = purse.grant(&estimate(100, 500)).unwrap();
        assert_eq!(grant, Grant { max_output: 180, capped: Some(Limit::MaxCostUsd) });
        purse.at_least(&Usage::default(), serde_json::from_str("0.0009").unwrap());
        assert_eq!(purse.grant(&estimate(100, 500)), Err(Limit::MaxCostUsd));
        assert_eq!(purse.grant(&estimate(10_000_000, 500)), Err(Limit::MaxCostUsd));
    }

    #[test]
    fn an_answer_that_would_be_too_short_is_not_asked_for() {
        let limits = Limits { max_tokens: Some(163), ..Limits::default() };
        assert_eq!(Purse::new(&limits).grant(&estimate(100, 500)), Err(Limit::MaxTokens));
        // Unless no more was wanted anyway.
        assert!(Purse::new(&limits).grant(&estimate(100, 20)).is_ok());
        assert!(Purse::new(&Limits::default()).grant(&estimate(u64::MAX, u64::MAX)).is_ok());
    }
}
