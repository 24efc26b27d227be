//! Totals of bills: what a tenant spent in each day and month, by model, subagent, executor and
//! conversation. The commit that writes a bill adds to them, so that a report reads days instead of
//! bills.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::ExecutionUser;
use super::execution_records::UsageLog;
use super::token_usage::{Cost, TokenUsage};
use super::usage_ledger::SpenderKind;
use crate::time::Timestamp;
use crate::total::{StoredTotal, TotalChange, TotalKey, TotalNote, TotalValue};

/// The time that one total covers. Days and months are in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageSpan {
    Day,
    Month,
}

/// Who or what the spending of a total belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageGrouping {
    /// Everything that the tenant spent.
    All,
    Model,
    /// The main thread, and each type of subagent.
    Subagent,
    Executor,
    Conversation,
}

/// The spending that one total holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageShare {
    /// A day like `2026-11-15` or a month like `2026-11`.
    pub period: String,
    pub key: String,
    /// In totals by subagent.
    pub kind: Option<SpenderKind>,
    /// As in the latest execution, and its time. In totals by executor.
    pub executor: Option<(Timestamp, ExecutionUser)>,
    pub usage: TokenUsage,
    pub cost: Cost,
    pub executions: u64,
}

const SPANS: [UsageSpan; 2] = [UsageSpan::Day, UsageSpan::Month];
const GROUPINGS: [UsageGrouping; 5] = [
    UsageGrouping::All,
    UsageGrouping::Model,
    UsageGrouping::Subagent,
    UsageGrouping::Executor,
    UsageGrouping::Conversation,
];

/// The name of the main thread. Names of subagent types are written in quotation marks.
const MAIN: &str = "main";

/// Longer names do not fit into an index of PostgreSQL: a digest stands for them.
const LONGEST_NAME: usize = 1_000;

impl UsageSpan {
    /// The day or month of a time.
    pub fn period(self, at: Timestamp) -> String {
        let width = match self {
            Self::Day => 10,
            Self::Month => 7,
        };
        // 2026-11-15T20:00:00.000Z
        at.to_string().chars().take(width).collect()
    }
}

impl UsageGrouping {
    /// The kind of the totals of this grouping and span.
    pub fn total_kind(self, span: UsageSpan) -> &'static str {
        match (span, self) {
            (UsageSpan::Day, Self::All) => "usage_day",
            (UsageSpan::Day, Self::Model) => "usage_day_model",
            (UsageSpan::Day, Self::Subagent) => "usage_day_subagent",
            (UsageSpan::Day, Self::Executor) => "usage_day_executor",
            (UsageSpan::Day, Self::Conversation) => "usage_day_conversation",
            (UsageSpan::Month, Self::All) => "usage_month",
            (UsageSpan::Month, Self::Model) => "usage_month_model",
            (UsageSpan::Month, Self::Subagent) => "usage_month_subagent",
            (UsageSpan::Month, Self::Executor) => "usage_month_executor",
            (UsageSpan::Month, Self::Conversation) => "usage_month_conversation",
        }
    }

    fn key(self, log: &UsageLog) -> String {
        match self {
            Self::All => String::new(),
            Self::Model => log.row.model.clone(),
            Self::Subagent => log.row.subagent_type.clone().unwrap_or_default(),
            Self::Executor => log.executor.user_id.clone(),
            Self::Conversation => log.conversation.to_string(),
        }
    }

    /// The total's name, and the note that is kept with it.
    fn name_and_note(self, log: &UsageLog) -> (String, Option<TotalNote>) {
        if self == Self::Subagent && log.row.kind == SpenderKind::Main {
            return (MAIN.to_owned(), None);
        }
        // As JSON, because a name may have characters that a column cannot hold.
        let quoted = serde_json::Value::from(self.key(log)).to_string();
        let text = match self {
            Self::Executor => serde_json::to_string(&log.executor).ok(),
            _ if quoted.len() > LONGEST_NAME => Some(quoted.clone()),
            _ => None,
        };
        let note = text.map(|text| TotalNote { at: log.at, text });
        if quoted.len() <= LONGEST_NAME {
            return (quoted, note);
        }
        let digest = Sha256::digest(&quoted);
        (digest.iter().map(|byte| format!("{byte:02x}")).collect(), note)
    }
}

/// What the bill of one execution adds to its tenant's totals.
pub fn bill_totals(bill: &[UsageLog]) -> Vec<TotalChange> {
    let mut changes = BTreeMap::<TotalKey, TotalValue>::new();
    for log in bill {
        for grouping in GROUPINGS {
            let (name, note) = grouping.name_and_note(log);
            for span in SPANS {
                let key = TotalKey {
                    kind: grouping.total_kind(span),
                    tenant: log.tenant.clone(),
                    period: span.period(log.at),
                    name: name.clone(),
                };
                let mut amounts = amounts(log);
                // The first row of the execution in this total counts the execution.
                amounts[0] = i128::from(!changes.contains_key(&key));
                let share = TotalValue { amounts, latest: note.clone() };
                changes.entry(key).or_default().add(&share);
            }
        }
    }
    changes.into_iter().map(|(key, add)| TotalChange { key, add }).collect()
}

/// Executions, tokens of each sort, and the cost.
fn amounts(log: &UsageLog) -> Vec<i128> {
    let TokenUsage {
        input_tokens,
        output_tokens,
        cache_write_5m_tokens,
        cache_write_1h_tokens,
        cache_read_tokens,
    } = log.row.usage;
    let tokens = [
        input_tokens,
        output_tokens,
        cache_write_5m_tokens,
        cache_write_1h_tokens,
        cache_read_tokens,
    ];
    // The cost as it is read back from the bill, so that both sums are the same to the last digit.
    let cost = Cost::from_dollars(log.row.cost_usd.dollars()).unwrap_or(log.row.cost_usd);
    let cost = i128::try_from(cost.picos()).unwrap_or(i128::MAX);
    std::iter::once(0).chain(tokens.map(i128::from)).chain([cost]).collect()
}

impl UsageShare {
    /// Reads a total of this grouping; None if it is not one.
    pub fn read(grouping: UsageGrouping, total: StoredTotal) -> Option<Self> {
        let StoredTotal { period, name, value } = total;
        let amount = |index: usize| value.amounts.get(index).copied().unwrap_or(0);
        let number = |index| u64::try_from(amount(index).max(0)).unwrap_or(u64::MAX);
        let usage = TokenUsage {
            input_tokens: number(1),
            output_tokens: number(2),
            cache_write_5m_tokens: number(3),
            cache_write_1h_tokens: number(4),
            cache_read_tokens: number(5),
        };
        let cost = Cost::from_picos(amount(6).max(0).unsigned_abs());
        let note = value.latest.as_ref();
        let is_main = grouping == UsageGrouping::Subagent && name == MAIN;
        let kind = if is_main { SpenderKind::Main } else { SpenderKind::Subagent };
        let executor = match grouping {
            UsageGrouping::Executor => Some((note?.at, parse::<ExecutionUser>(&note?.text)?)),
            _ => None,
        };
        let key = match &executor {
            Some((_, executor)) => executor.user_id.clone(),
            None if is_main => MAIN.to_owned(),
            None => parse(note.map_or(&name, |note| &note.text))?,
        };
        let kind = (grouping == UsageGrouping::Subagent).then_some(kind);
        Some(Self { period, key, kind, executor, usage, cost, executions: number(0) })
    }
}

fn parse<T: DeserializeOwned>(json: &str) -> Option<T> {
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::UsageRow;
    use crate::ids::TenantId;
    use crate::run::RunStatus;

    fn log(kind: SpenderKind, of: &str, tokens: u64) -> UsageLog {
        let usage = TokenUsage { input_tokens: tokens, ..TokenUsage::default() };
        UsageLog {
            id: "usg_1".into(),
            tenant: TenantId::local(),
            conversation: "cnv_1".parse().unwrap(),
            execution: "exe_1".parse().unwrap(),
            executor: ExecutionUser {
                user_id: "ann\0".into(),
                name: Some("名".into()),
                email: None,
            },
            status: RunStatus::Completed,
            at: "2026-11-15T20:00:00.000Z".parse().unwrap(),
            row: UsageRow {
                kind,
                tool_use_id: None,
                agent_id: None,
                subagent_type: (kind == SpenderKind::Subagent).then(|| of.to_owned()),
                model: "モデル".repeat(300),
                usage,
                cost_usd: Cost::from_picos(u128::from(tokens) * 7),
            },
        }
    }

    /// Key, kind, input tokens, picodollars, executions.
    type Row = (String, Option<SpenderKind>, u64, u128, u64);

    fn shares(bill: &[UsageLog], grouping: UsageGrouping) -> Vec<Row> {
        let of_kind = |change: &TotalChange| change.key.kind == grouping.total_kind(UsageSpan::Day);
        let changes = bill_totals(bill).into_iter().filter(of_kind);
        changes
            .map(|TotalChange { key, add }| {
                assert!(key.name.len() <= LONGEST_NAME && !key.name.contains('\0'));
                assert_eq!(key.period, "2026-11-15");
                let total = StoredTotal { period: key.period, name: key.name, value: add };
                let share = UsageShare::read(grouping, total).unwrap();
                let spent = (share.usage.input_tokens, share.cost.picos());
                (share.key, share.kind, spent.0, spent.1, share.executions)
            })
            .collect()
    }

    #[test]
    fn a_bill_counts_once_in_each_total_that_it_belongs_to() {
        use SpenderKind::{Main, Subagent};
        let bill = [log(Main, "", 1), log(Subagent, "main", 10), log(Subagent, "main", 100)];
        let all = |key: &str| (key.to_owned(), None, 111, 777, 1);
        assert_eq!(shares(&bill, UsageGrouping::All), [all("")]);
        assert_eq!(shares(&bill, UsageGrouping::Model), [all(&"モデル".repeat(300))]);
        assert_eq!(shares(&bill, UsageGrouping::Executor), [all("ann\0")]);
        assert_eq!(shares(&bill, UsageGrouping::Conversation), [all("cnv_1")]);
        let main =
            |kind, tokens: u64| ("main".to_owned(), Some(kind), tokens, u128::from(tokens) * 7, 1);
        assert_eq!(shares(&bill, UsageGrouping::Subagent), [main(Subagent, 110), main(Main, 1)]);
    }
}
