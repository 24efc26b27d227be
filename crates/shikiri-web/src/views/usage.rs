use serde::Serialize;
use shikiri_model::execution::{Cost, SpenderKind, TokenUsage};
use shikiri_tenancy::usage::{UsageGroup, UsageReport, UsageTotals};
use utoipa::ToSchema;

use super::schemas::UsageSchema;

/// What was spent, in groups that add up to the total exactly.
#[derive(Serialize, ToSchema)]
#[schema(as = UsageReport)]
pub struct UsageReportJson {
    #[schema(value_type = String)]
    group_by: &'static str,
    /// Days and months in their order, everything else with the dearest first.
    items: Vec<UsageGroupJson>,
    total: SpendingJson,
}

#[derive(Serialize, ToSchema)]
#[schema(as = UsageGroup)]
struct UsageGroupJson {
    /// The model, type of subagent (`main` for the main thread), `user_id`, conversation, day,
    /// month or tenant.
    key: String,
    /// `main` or `subagent`, when grouped by subagent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    kind: Option<SpenderKind>,
    /// When grouped by executor.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// When grouped by executor.
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    #[serde(flatten)]
    spending: SpendingJson,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Spending)]
struct SpendingJson {
    #[schema(value_type = UsageSchema)]
    usage: TokenUsage,
    #[schema(value_type = f64)]
    cost_usd: Cost,
    /// How many executions spent it.
    executions: u64,
}

impl From<UsageReport> for UsageReportJson {
    fn from(report: UsageReport) -> Self {
        Self {
            group_by: report.group_by.as_str(),
            items: report.groups.into_iter().map(Into::into).collect(),
            total: report.total.into(),
        }
    }
}

impl From<UsageGroup> for UsageGroupJson {
    fn from(group: UsageGroup) -> Self {
        let (name, email) = group.executor.map(|e| (e.name, e.email)).unwrap_or_default();
        Self { key: group.key, kind: group.kind, name, email, spending: group.spending.into() }
    }
}

impl From<UsageTotals> for SpendingJson {
    fn from(spending: UsageTotals) -> Self {
        let UsageTotals { usage, cost, executions } = spending;
        Self { usage, cost_usd: cost, executions }
    }
}
