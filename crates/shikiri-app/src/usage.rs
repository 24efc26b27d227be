//! Usage reports: what was spent, by whom and on what. Sums are exact.

use std::collections::HashMap;
use std::time::Duration;

use shikiri_model::execution::{Cost, Executor, SpenderKind, Usage, UsageLog};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::record::{Position, RecordQuery};
use shikiri_model::time::Timestamp;

use crate::app::App;
use crate::error::AppError;

/// What the rows of a report are about.
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
pub struct Span {
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct UsageReport {
    pub group_by: GroupBy,
    /// Days and months in their order, everything else with the dearest first.
    pub groups: Vec<UsageGroup>,
    pub total: Spending,
}

#[derive(Clone, Debug, PartialEq)]
pub struct UsageGroup {
    pub key: String,
    /// Of the main thread or of subagents, where that is what is asked.
    pub kind: Option<SpenderKind>,
    /// As the latest execution has it, where that is what is asked.
    pub executor: Option<Executor>,
    pub spending: Spending,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spending {
    pub usage: Usage,
    pub cost: Cost,
    pub executions: u64,
}

const PAGE: u32 = 500;
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// A row is written within so long of the time that it bears.
const NEAR: Duration = Duration::from_secs(3_600);

impl App {
    /// What one tenant spent; with none given, what all of them did.
    pub async fn usage(
        &self,
        tenant: Option<&TenantId>,
        group_by: GroupBy,
        span: Span,
    ) -> Result<UsageReport, AppError> {
        let mut book = Book::new(group_by);
        if let Some(tenant) = tenant {
            self.tenant(tenant).await?;
            self.read_usage(tenant, span, &mut book).await?;
            return Ok(book.report());
        }
        let mut after = None;
        loop {
            let (tenants, next) = self.list_tenants(after, PAGE).await?;
            for tenant in &tenants {
                self.read_usage(&tenant.value.id, span, &mut book).await?;
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(book.report()),
            }
        }
    }

    async fn read_usage(
        &self,
        tenant: &TenantId,
        span: Span,
        book: &mut Book,
    ) -> Result<(), AppError> {
        let mut after = span.from.map(just_before);
        let last = span.to.map(|to| to + NEAR);
        loop {
            let query = RecordQuery { after, limit: PAGE, ..RecordQuery::of::<UsageLog>(tenant) };
            let (rows, next) = self.list_records::<UsageLog>(query).await?;
            for row in rows.iter().filter(|row| span.holds(row.value.at)) {
                book.enter(&row.value);
            }
            let is_over = rows.last().zip(last).is_some_and(|(row, last)| row.created_at > last);
            match next {
                Some(next) if !is_over => after = Some(next),
                _ => return Ok(()),
            }
        }
    }
}

impl Span {
    /// From what people write: an RFC 3339 time, or a date, which is a whole day in UTC.
    pub fn read(from: Option<&str>, to: Option<&str>) -> Result<Self, AppError> {
        let read = |field, text: Option<&str>, whole_day| {
            let moment = text.map(|text| moment(text, whole_day)).transpose();
            moment.map_err(|reason| AppError::invalid(field, reason))
        };
        let span = Self { from: read("from", from, Duration::ZERO)?, to: read("to", to, DAY)? };
        if span.from.zip(span.to).is_some_and(|(from, to)| to < from) {
            return Err(AppError::invalid("to", "is before `from`"));
        }
        Ok(span)
    }

    fn holds(self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at) && self.to.is_none_or(|to| at < to)
    }
}

/// Where rows of that time cannot have begun yet.
fn just_before(time: Timestamp) -> Position {
    let near = i64::try_from(NEAR.as_millis()).unwrap_or(i64::MAX);
    let created_at = Timestamp::from_millis(time.as_millis().saturating_sub(near));
    Position { created_at, id: String::new() }
}

/// A time, or so long after the start of a date.
fn moment(text: &str, into_day: Duration) -> Result<Timestamp, &'static str> {
    // What is as long as a date cannot be a time.
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
struct Book {
    group_by: GroupBy,
    /// Where the account of a key is; a type of subagents may be named like the main thread.
    places: HashMap<(bool, String), usize>,
    accounts: Vec<Account>,
    total: Spending,
    last_execution: Option<RunId>,
}

struct Account {
    group: UsageGroup,
    last_execution: Option<RunId>,
}

impl Book {
    fn new(group_by: GroupBy) -> Self {
        Self {
            group_by,
            places: HashMap::new(),
            accounts: Vec::new(),
            total: Spending::default(),
            last_execution: None,
        }
    }

    /// Rows of one execution were written together, so they come one after the other.
    fn enter(&mut self, row: &UsageLog) {
        self.total.add(row, &mut self.last_execution);
        let account = self.account(row);
        account.group.spending.add(row, &mut account.last_execution);
        if let Some(executor) = &mut account.group.executor {
            executor.clone_from(&row.executor);
        }
    }

    fn account(&mut self, row: &UsageLog) -> &mut Account {
        let key = key_of(self.group_by, row);
        let kind = (self.group_by == GroupBy::Subagent).then_some(row.row.kind);
        let known = (kind == Some(SpenderKind::Main), key.clone());
        let place = *self.places.entry(known).or_insert(self.accounts.len());
        if place == self.accounts.len() {
            let executor = (self.group_by == GroupBy::Executor).then(|| row.executor.clone());
            let group = UsageGroup { key, kind, executor, spending: Spending::default() };
            self.accounts.push(Account { group, last_execution: None });
        }
        &mut self.accounts[place]
    }

    fn report(self) -> UsageReport {
        let mut groups: Vec<_> = self.accounts.into_iter().map(|account| account.group).collect();
        let is_time = matches!(self.group_by, GroupBy::Day | GroupBy::Month);
        groups.sort_by(|a, b| {
            let dearer = b.spending.weight().cmp(&a.spending.weight());
            if is_time { a.key.cmp(&b.key) } else { dearer.then_with(|| a.key.cmp(&b.key)) }
        });
        UsageReport { group_by: self.group_by, groups, total: self.total }
    }
}

impl Spending {
    fn add(&mut self, row: &UsageLog, last_execution: &mut Option<RunId>) {
        self.usage += row.row.usage;
        self.cost += row.row.cost_usd;
        if last_execution.as_ref() != Some(&row.execution) {
            self.executions += 1;
            *last_execution = Some(row.execution.clone());
        }
    }

    /// What is free is ordered by its tokens.
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
    let start_of_time = |width: usize| row.at.to_string().chars().take(width).collect();
    match group_by {
        GroupBy::Model => row.row.model.clone(),
        GroupBy::Subagent => match row.row.kind {
            SpenderKind::Main => "main".to_owned(),
            SpenderKind::Subagent => row.row.subagent_type.clone().unwrap_or_default(),
        },
        GroupBy::Executor => row.executor.user_id.clone(),
        GroupBy::Conversation => row.conversation.to_string(),
        GroupBy::Day => start_of_time(10),
        GroupBy::Month => start_of_time(7),
        GroupBy::Tenant => row.tenant.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(from: &str, to: &str) -> Result<(i64, i64), String> {
        let span = Span::read(Some(from), Some(to)).map_err(|error| error.to_string())?;
        Ok((span.from.unwrap().as_millis(), span.to.unwrap().as_millis()))
    }

    #[test]
    fn a_date_is_a_whole_day_and_a_time_is_a_moment() {
        assert_eq!(read("1970-01-01", "1970-01-01"), Ok((0, 86_400_000)));
        assert_eq!(read("1970-01-01T00:00:01Z", "1970-01-01T09:00:01+09:00"), Ok((1_000, 1_000)));
        assert_eq!(Span::read(None, None).unwrap(), Span::default());
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
