//! Tokens and money of a thread: the amount spent, and the amount reserved for requests in flight.

use std::collections::BTreeMap;

use super::execution_limits::{ExecutionLimits, LimitKind};
use crate::execution::{Cost, ModelPrices, TokenUsage};

/// The smallest output that is worth a request.
const LEAST_OUTPUT: u64 = 64;

/// The expected maximum of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestEstimate {
    pub input_tokens: u64,
    /// The most output tokens of the model.
    pub max_output: u64,
    pub prices: ModelPrices,
}

/// A request that fits the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendGrant {
    /// The most output tokens of the model, possibly less than requested.
    pub max_output: u64,
    /// The limit that reduced it.
    pub capped: Option<LimitKind>,
}

/// The id of a reservation.
pub type ReservationId = u64;

#[derive(Clone, Debug, Default)]
pub(super) struct SpendBudget {
    max_tokens: Option<u64>,
    max_cost: Option<Cost>,
    tokens: u64,
    cost: Cost,
    set_aside: BTreeMap<ReservationId, (u64, Cost)>,
}

impl SpendBudget {
    pub(super) fn new(limits: &ExecutionLimits) -> Self {
        Self { max_tokens: limits.max_tokens, max_cost: limits.max_cost_usd, ..Self::default() }
    }

    /// The output that fits beside what is reserved already.
    pub(super) fn grant(&self, wanted: &RequestEstimate) -> Result<SpendGrant, LimitKind> {
        let mut grant = SpendGrant { max_output: wanted.max_output, capped: None };
        if let Some(max) = self.max_tokens {
            let aside = self.set_aside.values().map(|(tokens, _)| *tokens);
            let used = aside.chain([self.tokens, wanted.input_tokens]).fold(0, u64::saturating_add);
            grant.at_most(max.saturating_sub(used), LimitKind::MaxTokens)?;
        }
        if let Some(max) = self.max_cost {
            let aside: Cost = self.set_aside.values().map(|(_, cost)| *cost).sum();
            let used = self.cost + aside + input_cost(wanted);
            let left = max.saturating_sub(used);
            if left == Cost::default() {
                return Err(LimitKind::MaxCostUsd);
            }
            let one = wanted.prices.cost(&output(1));
            grant.at_most(left.parts_of(one), LimitKind::MaxCostUsd)?;
        }
        Ok(grant)
    }

    pub(super) fn set_aside(
        &mut self,
        name: ReservationId,
        wanted: &RequestEstimate,
        granted: u64,
    ) {
        let tokens = wanted.input_tokens.saturating_add(granted);
        let cost = input_cost(wanted) + wanted.prices.cost(&output(granted));
        self.set_aside.insert(name, (tokens, cost));
    }

    pub(super) fn give_back(&mut self, name: ReservationId) {
        self.set_aside.remove(&name);
    }

    pub(super) fn spend(&mut self, usage: &TokenUsage, cost: Cost) {
        self.tokens = self.tokens.saturating_add(tokens(usage));
        self.cost += cost;
    }

    /// Raises the spending to at least these amounts, which were reported before and are not in the
    /// entries.
    pub(super) fn at_least(&mut self, usage: &TokenUsage, cost: Cost) {
        self.tokens = self.tokens.max(tokens(usage));
        self.cost = self.cost.max(cost);
    }
}

impl SpendGrant {
    fn at_most(&mut self, room: u64, limit: LimitKind) -> Result<(), LimitKind> {
        if room < LEAST_OUTPUT.min(self.max_output) {
            return Err(limit);
        }
        if room < self.max_output {
            (self.max_output, self.capped) = (room, Some(limit));
        }
        Ok(())
    }
}

/// Tokens of every kind: the limit covers everything that is sent and received.
fn tokens(usage: &TokenUsage) -> u64 {
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

/// The whole input may be written to the cache, which costs more.
fn input_cost(wanted: &RequestEstimate) -> Cost {
    let read = TokenUsage { input_tokens: wanted.input_tokens, ..TokenUsage::default() };
    let written =
        TokenUsage { cache_write_5m_tokens: wanted.input_tokens, ..TokenUsage::default() };
    wanted.prices.cost(&read).max(wanted.prices.cost(&written))
}

fn output(tokens: u64) -> TokenUsage {
    TokenUsage { output_tokens: tokens, ..TokenUsage::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::TokenPrice;

    fn estimate(input_tokens: u64, max_output: u64) -> RequestEstimate {
        // 1 and 5 dollars for a million.
        let prices = ModelPrices {
            input: TokenPrice::from_micros(1_000_000),
            output: TokenPrice::from_micros(5_000_000),
            ..ModelPrices::default()
        };
        RequestEstimate { input_tokens, max_output, prices }
    }

    fn dollars(text: &str) -> Option<Cost> {
        Some(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn what_is_set_aside_is_not_given_twice() {
        let limits = ExecutionLimits { max_tokens: Some(1_000), ..ExecutionLimits::default() };
        let mut budget = SpendBudget::new(&limits);
        let wanted = estimate(100, 500);
        assert_eq!(budget.grant(&wanted), Ok(SpendGrant { max_output: 500, capped: None }));
        budget.set_aside(1, &wanted, 500);
        let second = SpendGrant { max_output: 300, capped: Some(LimitKind::MaxTokens) };
        assert_eq!(budget.grant(&wanted), Ok(second));
        budget.set_aside(2, &wanted, 300);
        assert_eq!(budget.grant(&wanted), Err(LimitKind::MaxTokens));
        // The first request used less than its reservation.
        budget.give_back(1);
        budget.spend(
            &TokenUsage { input_tokens: 100, output_tokens: 10, ..TokenUsage::default() },
            Cost::default(),
        );
        assert_eq!(budget.grant(&wanted).map(|grant| grant.max_output), Ok(390));
    }

    #[test]
    fn money_is_kept_as_well_as_tokens() {
        // 0.001 dollars: 100 tokens of input are 0.0001, and 180 of output the rest.
        let limits =
            ExecutionLimits { max_cost_usd: dollars("0.001"), ..ExecutionLimits::default() };
        let mut budget = SpendBudget::new(&limits);
        let grant = budget.grant(&estimate(100, 500)).unwrap();
        assert_eq!(grant, SpendGrant { max_output: 180, capped: Some(LimitKind::MaxCostUsd) });
        budget.at_least(&TokenUsage::default(), serde_json::from_str("0.0009").unwrap());
        assert_eq!(budget.grant(&estimate(100, 500)), Err(LimitKind::MaxCostUsd));
        assert_eq!(budget.grant(&estimate(10_000_000, 500)), Err(LimitKind::MaxCostUsd));
    }

    #[test]
    fn an_answer_that_would_be_too_short_is_not_asked_for() {
        let limits = ExecutionLimits { max_tokens: Some(163), ..ExecutionLimits::default() };
        assert_eq!(SpendBudget::new(&limits).grant(&estimate(100, 500)), Err(LimitKind::MaxTokens));
        // A smaller request is not capped.
        assert!(SpendBudget::new(&limits).grant(&estimate(100, 20)).is_ok());
        assert!(
            SpendBudget::new(&ExecutionLimits::default())
                .grant(&estimate(u64::MAX, u64::MAX))
                .is_ok()
        );
    }
}
