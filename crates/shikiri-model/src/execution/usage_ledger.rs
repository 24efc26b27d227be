//! Tokens by spender and model: the rows of a bill that add up exactly.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::built_in_prices::built_in_prices;
use super::engine_message::{SubagentStart, TokenSpender};
use super::token_usage::{Cost, ModelPrices, TokenUsage};

/// The usage of a running execution.
#[derive(Clone, Debug, Default)]
pub struct UsageLedger {
    requests: BTreeMap<(TokenSpender, String), (String, TokenUsage)>,
    subagents: BTreeMap<String, KnownSubagent>,
}

#[derive(Clone, Debug, Default)]
struct KnownSubagent {
    agent_id: Option<String>,
    subagent_type: String,
}

/// The usage of one spender on one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    pub kind: SpenderKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent_type: Option<String>,
    pub model: String,
    pub usage: TokenUsage,
    pub cost_usd: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpenderKind {
    Main,
    Subagent,
}

/// Prices by the name that a model reports.
#[derive(Clone, Debug, Default)]
pub struct PriceList(Vec<(String, ModelPrices)>);

impl PriceList {
    pub fn new(prices: impl IntoIterator<Item = (String, ModelPrices)>) -> Self {
        Self(prices.into_iter().collect())
    }

    /// The prices of a model: those of its record, or the built-in ones if the record has none.
    pub fn of(&self, model: &str) -> Option<&ModelPrices> {
        let recorded = self.recorded(model);
        match recorded.filter(|prices| !prices.is_unset()) {
            Some(prices) => Some(prices),
            None => built_in_prices(model).or(recorded),
        }
    }

    /// Whether the prices of a model are the built-in ones.
    pub fn is_built_in(&self, model: &str) -> bool {
        self.recorded(model).is_none_or(ModelPrices::is_unset) && built_in_prices(model).is_some()
    }

    /// The prices of a model's record. Without an exact match, a name that is a prefix counts, such
    /// as `claude-haiku-4-5` for `claude-haiku-4-5-20251001`.
    fn recorded(&self, model: &str) -> Option<&ModelPrices> {
        let exact = self.0.iter().find(|(name, _)| name == model);
        let starts = |name: &str| {
            model.strip_prefix(name).is_some_and(|rest| rest.starts_with(['-', '[', ':', '@']))
        };
        let by_start = || {
            let known = self.0.iter().filter(|(name, _)| starts(name));
            known.max_by_key(|(name, _)| name.len())
        };
        exact.or_else(by_start).map(|(_, prices)| prices)
    }

    pub fn cost(&self, model: &str, usage: &TokenUsage) -> Cost {
        self.of(model).map_or_else(Cost::default, |prices| prices.cost(usage))
    }
}

impl UsageLedger {
    /// Sets the usage of one request; a later value replaces an earlier one.
    pub fn spend(&mut self, who: TokenSpender, request: String, model: String, usage: TokenUsage) {
        self.requests.insert((who, request), (model, usage));
    }

    pub fn meet(&mut self, start: &SubagentStart) {
        let known = self.subagents.entry(start.tool_use_id.clone()).or_default();
        known.subagent_type.clone_from(&start.subagent_type);
        if start.agent_id.is_some() {
            known.agent_id.clone_from(&start.agent_id);
        }
    }

    /// One row per thread and model: the main thread first, then the subagents.
    pub fn rows(&self, prices: &PriceList) -> Vec<UsageRow> {
        let mut sums = BTreeMap::<(&TokenSpender, &str), TokenUsage>::new();
        for ((who, _), (model, usage)) in &self.requests {
            *sums.entry((who, model)).or_default() += *usage;
        }
        let rows = sums.into_iter().filter(|(_, usage)| !usage.is_nothing());
        rows.map(|((who, model), usage)| self.row(who, model, usage, prices)).collect()
    }

    /// The usage of one subagent on all models.
    pub fn of_subagent(&self, tool_use_id: &str, prices: &PriceList) -> (TokenUsage, Cost) {
        let rows = self.rows(prices);
        let own = rows.iter().filter(|row| row.tool_use_id.as_deref() == Some(tool_use_id));
        own.fold(Default::default(), |(usage, cost), row| (usage + row.usage, cost + row.cost_usd))
    }

    /// The model that a subagent used, as the model names itself. Of several, the one with the most
    /// tokens.
    pub fn model_of_subagent(&self, tool_use_id: &str) -> Option<String> {
        let mut sums = BTreeMap::<&str, TokenUsage>::new();
        for ((who, _), (model, usage)) in &self.requests {
            if matches!(who, TokenSpender::Subagent(id) if id == tool_use_id) {
                *sums.entry(model).or_default() += *usage;
            }
        }
        let most =
            sums.into_iter().max_by_key(|(_, usage)| (usage.output_tokens, usage.input_tokens));
        most.map(|(model, _)| model.to_owned())
    }

    fn row(
        &self,
        who: &TokenSpender,
        model: &str,
        usage: TokenUsage,
        prices: &PriceList,
    ) -> UsageRow {
        let (kind, tool_use_id) = match who {
            TokenSpender::Main => (SpenderKind::Main, None),
            TokenSpender::Subagent(id) => (SpenderKind::Subagent, Some(id.clone())),
        };
        let known = tool_use_id.as_ref().and_then(|id| self.subagents.get(id));
        UsageRow {
            kind,
            agent_id: known.and_then(|known| known.agent_id.clone()),
            subagent_type: known.map(|known| known.subagent_type.clone()),
            tool_use_id,
            model: model.to_owned(),
            usage,
            cost_usd: prices.cost(model, &usage),
        }
    }
}

/// The sum of the rows.
pub fn total(rows: &[UsageRow]) -> (TokenUsage, Cost) {
    (rows.iter().map(|row| row.usage).sum(), rows.iter().map(|row| row.cost_usd).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::token_usage::TokenPrice;

    fn used(input: u64, output: u64) -> TokenUsage {
        TokenUsage { input_tokens: input, output_tokens: output, ..TokenUsage::default() }
    }

    fn prices() -> PriceList {
        let of =
            |input| ModelPrices { input: TokenPrice::from_micros(input), ..ModelPrices::default() };
        PriceList::new([
            ("opus".to_owned(), of(5_000_000)),
            ("claude-haiku".to_owned(), of(1_000_000)),
            ("claude-haiku-4-5".to_owned(), of(2_000_000)),
        ])
    }

    #[test]
    fn the_prices_of_a_record_win_over_the_built_in_ones() {
        let own = ModelPrices { input: TokenPrice::from_micros(7), ..ModelPrices::default() };
        let named = |prices| PriceList::new([("claude-sonnet-4-5".to_owned(), prices)]);
        let dated = "claude-sonnet-4-5-20250929";
        assert_eq!(named(own).of(dated), Some(&own));
        assert!(!named(own).is_built_in(dated));
        let unset = named(ModelPrices::default());
        assert_eq!(unset.of(dated), built_in_prices(dated));
        assert!(unset.is_built_in(dated) && PriceList::default().is_built_in(dated));
        assert_eq!(PriceList::default().of("another"), None);
        assert!(!PriceList::default().is_built_in("another"));
    }

    #[test]
    fn each_spender_and_model_has_a_row_and_rows_add_up_to_the_total() {
        let mut ledger = UsageLedger::default();
        let sub = |id: &str| TokenSpender::Subagent(id.to_owned());
        let spend = |ledger: &mut UsageLedger, who, request: &str, model: &str, usage| {
            ledger.spend(who, request.to_owned(), model.to_owned(), usage);
        };
        ledger.meet(&SubagentStart {
            tool_use_id: "t1".into(),
            agent_id: Some("a1".into()),
            subagent_type: "調査".into(),
            model: None,
        });
        spend(&mut ledger, TokenSpender::Main, "m1", "opus", used(10, 1));
        spend(&mut ledger, TokenSpender::Main, "m1", "opus", used(10, 7));
        spend(&mut ledger, TokenSpender::Main, "m2", "opus", used(20, 2));
        spend(&mut ledger, sub("t1"), "m1", "claude-haiku-4-5-20251001", used(5, 5));
        spend(&mut ledger, sub("t2"), "m3", "unknown", used(1, 1));
        spend(&mut ledger, sub("t2"), "m4", "opus", TokenUsage::default());

        let rows = ledger.rows(&prices());
        assert_eq!(rows.len(), 3, "{rows:?}");
        assert_eq!((rows[0].kind, rows[0].usage), (SpenderKind::Main, used(30, 9)));
        assert_eq!(rows[1].agent_id.as_deref(), Some("a1"));
        assert_eq!(rows[1].subagent_type.as_deref(), Some("調査"));
        assert_eq!(rows[1].cost_usd.dollars(), 0.000_01);
        assert_eq!(rows[2].cost_usd, Cost::default());
        assert_eq!(total(&rows).0, used(36, 15));
        assert_eq!(total(&rows).1.dollars(), 0.000_16);
        assert_eq!(ledger.of_subagent("t1", &prices()).0, used(5, 5));
    }

    #[test]
    fn prices_are_found_by_the_longest_start_of_a_name() {
        let input = |model| prices().of(model).map(|prices| prices.input);
        assert_eq!(input("claude-haiku-4-5-2025"), Some(TokenPrice::from_micros(2_000_000)));
        assert_eq!(input("claude-haiku-3"), Some(TokenPrice::from_micros(1_000_000)));
        assert_eq!(input("claude-haikus"), None);
    }
}
