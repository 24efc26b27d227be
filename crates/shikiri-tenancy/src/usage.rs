//! Usage reports: what was spent, by whom and on what. Sums are exact.
//!
//! Whole days and months are read from their totals, so a report takes as long as it has groups and
//! days, however many executions there were. Only parts of a day are added up from bills.

use std::collections::HashMap;
use std::time::Duration;

use shikiri_model::execution::{
    Cost, ExecutionUser, SpenderKind, TokenUsage, UsageGrouping, UsageLog, UsageShare, UsageSpan,
};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::record::{RecordPosition, RecordQuery};
use shikiri_model::time::Timestamp;
use shikiri_model::total::TotalQuery;
use shikiri_runtime::AppError;
use shikiri_store::StoreError;

use crate::Tenancy;
use crate::usage_period::PeriodPart;
pub use crate::usage_period::ReportPeriod;

/// What a report is grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    Model,
    /// The main thread, and each type of subagent.
    Subagent,
    Executor,
    Conversation,
    /// In UTC, as months are.
    Day,
    Month,
    Tenant,
}

#[derive(Clone, Debug, PartialEq)]
pub struct UsageReport {
    pub group_by: GroupBy,
    /// Days and months in order of time, other groups with the highest cost first.
    pub groups: Vec<UsageGroup>,
    pub total: UsageTotals,
}

#[derive(Clone, Debug, PartialEq)]
pub struct UsageGroup {
    pub key: String,
    /// Only in reports by subagent.
    pub kind: Option<SpenderKind>,
    /// As in the latest execution. Only in reports by executor.
    pub executor: Option<ExecutionUser>,
    pub spending: UsageTotals,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsageTotals {
    pub usage: TokenUsage,
    pub cost: Cost,
    pub executions: u64,
}

const PAGE: u32 = 500;
/// A row is written within this time after its `at`.
const NEAR: Duration = Duration::from_secs(3_600);

impl Tenancy {
    /// The usage of one tenant, or of all tenants if none is given.
    pub async fn usage(
        &self,
        tenant: Option<&TenantId>,
        group_by: GroupBy,
        period: ReportPeriod,
    ) -> Result<UsageReport, AppError> {
        self.total_old_bills().await?;
        let mut builder = UsageReportBuilder::new(group_by);
        if let Some(tenant) = tenant {
            self.runtime.tenant(tenant).await?;
            self.read_usage(tenant, period, &mut builder).await?;
            return Ok(builder.report());
        }
        let mut after = None;
        loop {
            let (tenants, next) = self.list_tenants(after, PAGE).await?;
            for tenant in &tenants {
                self.read_usage(&tenant.value.id, period, &mut builder).await?;
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(builder.report()),
            }
        }
    }

    async fn read_usage(
        &self,
        tenant: &TenantId,
        period: ReportPeriod,
        builder: &mut UsageReportBuilder,
    ) -> Result<(), AppError> {
        builder.begin_tenant();
        for part in period.parts(builder.group_by == GroupBy::Day) {
            match part {
                PeriodPart::Bills(period) => self.read_bills(tenant, period, builder).await?,
                PeriodPart::Totals(span, from, to) => {
                    let grouping = builder.group_by.grouping();
                    for share in self.shares(tenant, grouping, span, &from, to.as_deref()).await? {
                        builder.add_share(tenant, &share);
                        if grouping == UsageGrouping::All {
                            builder.total.add_share(&share);
                        }
                    }
                    if grouping != UsageGrouping::All {
                        let all = UsageGrouping::All;
                        for share in self.shares(tenant, all, span, &from, to.as_deref()).await? {
                            builder.total.add_share(&share);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    async fn shares(
        &self,
        tenant: &TenantId,
        grouping: UsageGrouping,
        span: UsageSpan,
        from: &str,
        to: Option<&str>,
    ) -> Result<Vec<UsageShare>, AppError> {
        let query = TotalQuery {
            from: from.to_owned(),
            to: to.map(str::to_owned),
            ..TotalQuery::of(grouping.total_kind(span), tenant)
        };
        let totals = self.runtime.store().totals(query).await?;
        let shares = totals.into_iter().map(|total| {
            let name = total.name.clone();
            UsageShare::read(grouping, total)
                .ok_or_else(|| StoreError::broken(format!("the total {name:?} cannot be read")))
        });
        Ok(shares.collect::<Result<_, _>>()?)
    }

    async fn read_bills(
        &self,
        tenant: &TenantId,
        period: ReportPeriod,
        builder: &mut UsageReportBuilder,
    ) -> Result<(), AppError> {
        let mut after = period.from.map(just_before);
        let last = period.to.map(|to| to + NEAR);
        loop {
            let query = RecordQuery { after, limit: PAGE, ..RecordQuery::of::<UsageLog>(tenant) };
            let (rows, next) = self.runtime.list_records::<UsageLog>(query).await?;
            for row in rows.iter().filter(|row| period.holds(row.value.at)) {
                builder.add_row(&row.value);
            }
            let is_over = rows.last().zip(last).is_some_and(|(row, last)| row.created_at > last);
            match next {
                Some(next) if !is_over => after = Some(next),
                _ => return Ok(()),
            }
        }
    }
}

/// A position before all rows of that time.
fn just_before(time: Timestamp) -> RecordPosition {
    let near = i64::try_from(NEAR.as_millis()).unwrap_or(i64::MAX);
    let created_at = Timestamp::from_millis(time.as_millis().saturating_sub(near));
    RecordPosition { created_at, id: String::new() }
}

impl GroupBy {
    pub const ALL: [Self; 7] = [
        Self::Model,
        Self::Subagent,
        Self::Executor,
        Self::Conversation,
        Self::Day,
        Self::Month,
        Self::Tenant,
    ];

    fn grouping(self) -> UsageGrouping {
        match self {
            Self::Model => UsageGrouping::Model,
            Self::Subagent => UsageGrouping::Subagent,
            Self::Executor => UsageGrouping::Executor,
            Self::Conversation => UsageGrouping::Conversation,
            Self::Day | Self::Month | Self::Tenant => UsageGrouping::All,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Subagent => "subagent",
            Self::Executor => "executor",
            Self::Conversation => "conversation",
            Self::Day => "day",
            Self::Month => "month",
            Self::Tenant => "tenant",
        }
    }
}

/// A report while it is made.
struct UsageReportBuilder {
    group_by: GroupBy,
    /// Index into `groups`. The flag marks the main thread: a subagent type may have its name.
    indexes: HashMap<(bool, String), usize>,
    groups: Vec<UsageGroupState>,
    total: UsageTotals,
    last_execution: Option<RunId>,
}

struct UsageGroupState {
    group: UsageGroup,
    /// The time of the executor as it was seen last in this tenant.
    seen_at: Option<Timestamp>,
    last_execution: Option<RunId>,
}

impl UsageReportBuilder {
    fn new(group_by: GroupBy) -> Self {
        Self {
            group_by,
            indexes: HashMap::new(),
            groups: Vec::new(),
            total: UsageTotals::default(),
            last_execution: None,
        }
    }

    /// A later tenant's executor of the same name replaces an earlier one's.
    fn begin_tenant(&mut self) {
        self.groups.iter_mut().for_each(|state| state.seen_at = None);
    }

    /// Rows of one execution were written together, so they come one after the other.
    fn add_row(&mut self, row: &UsageLog) {
        self.total.add(row, &mut self.last_execution);
        let kind = (self.group_by == GroupBy::Subagent).then_some(row.row.kind);
        let is_by_executor = self.group_by == GroupBy::Executor;
        let state = self.group_state(key_of(self.group_by, row), kind);
        state.group.spending.add(row, &mut state.last_execution);
        if is_by_executor {
            state.see_executor(row.at, &row.executor);
        }
    }

    fn add_share(&mut self, tenant: &TenantId, share: &UsageShare) {
        let key = match self.group_by {
            GroupBy::Day => share.period.clone(),
            // Of a day or a month.
            GroupBy::Month => share.period.chars().take(7).collect(),
            GroupBy::Tenant => tenant.to_string(),
            _ => share.key.clone(),
        };
        let state = self.group_state(key, share.kind);
        state.group.spending.add_share(share);
        if let Some((at, executor)) = &share.executor {
            state.see_executor(*at, executor);
        }
    }

    fn group_state(&mut self, key: String, kind: Option<SpenderKind>) -> &mut UsageGroupState {
        let known = (kind == Some(SpenderKind::Main), key.clone());
        let index = *self.indexes.entry(known).or_insert(self.groups.len());
        if index == self.groups.len() {
            let spending = UsageTotals::default();
            let group = UsageGroup { key, kind, executor: None, spending };
            self.groups.push(UsageGroupState { group, seen_at: None, last_execution: None });
        }
        &mut self.groups[index]
    }

    fn report(self) -> UsageReport {
        let mut groups: Vec<_> = self.groups.into_iter().map(|state| state.group).collect();
        let is_time = matches!(self.group_by, GroupBy::Day | GroupBy::Month);
        groups.sort_by(|a, b| {
            let dearer = b.spending.weight().cmp(&a.spending.weight());
            if is_time { a.key.cmp(&b.key) } else { dearer.then_with(|| a.key.cmp(&b.key)) }
        });
        UsageReport { group_by: self.group_by, groups, total: self.total }
    }
}

impl UsageGroupState {
    fn see_executor(&mut self, at: Timestamp, seen: &ExecutionUser) {
        if self.seen_at.is_none_or(|known| known <= at) {
            self.group.executor = Some(seen.clone());
            self.seen_at = Some(at);
        }
    }
}

impl UsageTotals {
    fn add_share(&mut self, share: &UsageShare) {
        self.usage += share.usage;
        self.cost += share.cost;
        self.executions += share.executions;
    }

    fn add(&mut self, row: &UsageLog, last_execution: &mut Option<RunId>) {
        self.usage += row.row.usage;
        self.cost += row.row.cost_usd;
        if last_execution.as_ref() != Some(&row.execution) {
            self.executions += 1;
            *last_execution = Some(row.execution.clone());
        }
    }

    /// The sort key of groups that are not times: the cost, then the tokens.
    fn weight(&self) -> (Cost, u64) {
        let usage = &self.usage;
        let parts = [
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_write_5m_tokens,
            usage.cache_write_1h_tokens,
            usage.cache_read_tokens,
        ];
        (self.cost, parts.into_iter().fold(0, u64::saturating_add))
    }
}

fn key_of(group_by: GroupBy, row: &UsageLog) -> String {
    match group_by {
        GroupBy::Model => row.row.model.clone(),
        GroupBy::Subagent => match row.row.kind {
            SpenderKind::Main => "main".to_owned(),
            SpenderKind::Subagent => row.row.subagent_type.clone().unwrap_or_default(),
        },
        GroupBy::Executor => row.executor.user_id.clone(),
        GroupBy::Conversation => row.conversation.to_string(),
        GroupBy::Day => UsageSpan::Day.period(row.at),
        GroupBy::Month => UsageSpan::Month.period(row.at),
        GroupBy::Tenant => row.tenant.to_string(),
    }
}
