//! Usage reports: what was spent, by whom and on what. Sums are exact.

use std::collections::HashMap;
use std::time::Duration;

use shikiri_model::execution::{Cost, ExecutionUser, SpenderKind, TokenUsage, UsageLog};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::record::{RecordPosition, RecordQuery};
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;

use crate::Tenancy;

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

/// The time that a report covers: from `from` on, up to but without `to`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportPeriod {
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
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
const DAY: Duration = Duration::from_secs(24 * 3_600);
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

impl ReportPeriod {
    /// Reads what people write: an RFC 3339 time, or a date, which is a whole day in UTC.
    pub fn read(from: Option<&str>, to: Option<&str>) -> Result<Self, AppError> {
        let read = |field, text: Option<&str>, whole_day| {
            let moment = text.map(|text| parse_moment(text, whole_day)).transpose();
            moment.map_err(|reason| AppError::invalid(field, reason))
        };
        let period = Self { from: read("from", from, Duration::ZERO)?, to: read("to", to, DAY)? };
        if period.from.zip(period.to).is_some_and(|(from, to)| to < from) {
            return Err(AppError::invalid("to", "is before `from`"));
        }
        Ok(period)
    }

    fn holds(self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at) && self.to.is_none_or(|to| at < to)
    }
}

/// A position before all rows of that time.
fn just_before(time: Timestamp) -> RecordPosition {
    let near = i64::try_from(NEAR.as_millis()).unwrap_or(i64::MAX);
    let created_at = Timestamp::from_millis(time.as_millis().saturating_sub(near));
    RecordPosition { created_at, id: String::new() }
}

/// Reads a time, or a date plus `into_day`.
fn parse_moment(text: &str, into_day: Duration) -> Result<Timestamp, &'static str> {
    // A text as long as a date cannot be a time.
    let read = match text.len() {
        10 => format!("{text}T00:00:00Z").parse().map(|day: Timestamp| day + into_day),
        _ => text.parse(),
    };
    read.map_err(|_| "is neither a time like 2026-11-15T20:00:00Z nor a date like 2026-11-15")
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

    /// Rows of one execution were written together, so they come one after the other.
    fn add_row(&mut self, row: &UsageLog) {
        self.total.add(row, &mut self.last_execution);
        let state = self.group_state(row);
        state.group.spending.add(row, &mut state.last_execution);
        if let Some(executor) = &mut state.group.executor {
            executor.clone_from(&row.executor);
        }
    }

    fn group_state(&mut self, row: &UsageLog) -> &mut UsageGroupState {
        let key = key_of(self.group_by, row);
        let kind = (self.group_by == GroupBy::Subagent).then_some(row.row.kind);
        let known = (kind == Some(SpenderKind::Main), key.clone());
        let index = *self.indexes.entry(known).or_insert(self.groups.len());
        if index == self.groups.len() {
            let executor = (self.group_by == GroupBy::Executor).then(|| row.executor.clone());
            let group = UsageGroup { key, kind, executor, spending: UsageTotals::default() };
            self.groups.push(UsageGroupState { group, last_execution: None });
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

impl UsageTotals {
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
    // 2026-11-15T20:00:00.000Z
    let time_prefix = |width: usize| row.at.to_string().chars().take(width).collect();
    match group_by {
        GroupBy::Model => row.row.model.clone(),
        GroupBy::Subagent => match row.row.kind {
            SpenderKind::Main => "main".to_owned(),
            SpenderKind::Subagent => row.row.subagent_type.clone().unwrap_or_default(),
        },
        GroupBy::Executor => row.executor.user_id.clone(),
        GroupBy::Conversation => row.conversation.to_string(),
        GroupBy::Day => time_prefix(10),
        GroupBy::Month => time_prefix(7),
        GroupBy::Tenant => row.tenant.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(from: &str, to: &str) -> Result<(i64, i64), String> {
        let period = ReportPeriod::read(Some(from), Some(to)).map_err(|error| error.to_string())?;
        Ok((period.from.unwrap().as_millis(), period.to.unwrap().as_millis()))
    }

    #[test]
    fn a_date_is_a_whole_day_and_a_time_is_a_moment() {
        assert_eq!(read("1970-01-01", "1970-01-01"), Ok((0, 86_400_000)));
        assert_eq!(read("1970-01-01T00:00:01Z", "1970-01-01T09:00:01+09:00"), Ok((1_000, 1_000)));
        assert_eq!(ReportPeriod::read(None, None).unwrap(), ReportPeriod::default());
        for (from, to, field) in [
            ("yesterday!", "1970-01-01", "from: "),
            ("1970-02-30", "1971-01-01", "from: "),
            ("1970-01-01", "1970", "to: "),
            ("1970-01-02", "1970-01-01T23:00:00Z", "to: is before"),
        ] {
            let error = read(from, to).unwrap_err();
            assert!(error.starts_with(field), "{error}");
        }
    }
}
