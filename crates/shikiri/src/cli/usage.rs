//! `shikiri usage`: tokens and cost.

use clap::{Args, ValueEnum};
use serde::Serialize;
use shikiri_app::App;
use shikiri_model::execution::{Cost, SpenderKind, TokenUsage};
use shikiri_model::ids::TenantId;
use shikiri_subagents::HookSpending;
use shikiri_tenancy::usage::{GroupBy, ReportPeriod, UsageGroup, UsageTotals};
use shikiri_web::views::{HookSpendingJson, UsageReportJson};

use super::JsonArgument;
use super::executions::note_built_in;
use crate::exit::Failure;
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::one_line;

#[derive(Args)]
pub(super) struct Arguments {
    /// What each line is about; days and months are those of UTC
    #[arg(long, default_value = "model")]
    by: By,
    /// From this time or day on, such as 2026-11-01 or 2026-11-01T12:00:00Z
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Up to this time, or to the end of this day
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Only what this tenant spent [default: all tenants]
    #[arg(long, value_name = "ID")]
    tenant: Option<TenantId>,
    #[command(flatten)]
    json: JsonArgument,
}

#[derive(Clone, Copy, ValueEnum)]
enum By {
    Model,
    Subagent,
    Executor,
    Conversation,
    Day,
    Month,
    Tenant,
}

pub(super) async fn run(app: &App, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { by, from, to, tenant, json } = arguments;
    let span = ReportPeriod::read(from.as_deref(), to.as_deref())?;
    let report = app.tenancy.usage(tenant.as_ref(), by.into(), span).await?;
    // Hooks of this machine tell for the local tenant.
    let of_hooks = tenant.unwrap_or_else(TenantId::local);
    let hooks = app.subagents.hook_spending(&of_hooks, span.from, span.to).await?;
    if json.json {
        let report = UsageReportJson::from(report);
        let claude_code = (hooks.sessions > 0).then(|| hooks.into());
        return Output::stdout().json(&UsageJson { report, claude_code });
    }
    let figures = |key: Vec<String>, spending: &UsageTotals| Figures {
        key,
        usage: spending.usage,
        cost: spending.cost,
    };
    let of = |group: &UsageGroup| {
        figures(vec![name(group), group.spending.executions.to_string()], &group.spending)
    };
    let total = vec!["total".to_owned(), report.total.executions.to_string()];
    let rows: Vec<_> =
        report.groups.iter().map(of).chain([figures(total, &report.total)]).collect();
    table(&[report.group_by.as_str(), "executions"], 1, &rows)?;
    show_hooks(&hooks)
}

/// What sessions of Claude Code spent that hooks told of. It is no part of the report, whose groups
/// are those of executions.
fn show_hooks(hooks: &HookSpending) -> Result<(), Failure> {
    let Some(total) = &hooks.total else { return Ok(()) };
    let unknown = || "?".to_owned();
    let cells = |key: &str, sessions: String, usage: &TokenUsage, cost: Option<Cost>| {
        let mut cells = vec![one_line(key), sessions];
        cells.extend(token_numbers(usage));
        cells.push(cost.map_or_else(unknown, |cost| dollars(cost, 4)));
        cells
    };
    let of_model = |(model, (usage, cost)): (&String, &(TokenUsage, Option<Cost>))| {
        cells(model, String::new(), usage, *cost)
    };
    let mut rows: Vec<_> = hooks.by_model.iter().map(of_model).collect();
    rows.push(cells("total", hooks.sessions.to_string(), &total.usage, total.cost));
    let mut columns = TableColumn::texts(&["claude code"]);
    columns.push(TableColumn::number("sessions").minor());
    columns.extend(TableColumn::numbers(&TOKENS));
    columns.push(TableColumn::number("cost usd").major());
    let output = Output::stdout();
    output.line("")?;
    output.table(&columns, &rows, "")?;
    note_built_in(total.built_in_of.iter().map(String::as_str));
    Ok(())
}

#[derive(Serialize)]
struct UsageJson {
    #[serde(flatten)]
    report: UsageReportJson,
    /// Sessions that hooks told of, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    claude_code: Option<HookSpendingJson>,
}

/// A subagent type may have the same name as the main thread.
fn name(group: &UsageGroup) -> String {
    let key = one_line(&group.key);
    match (group.kind, &group.executor) {
        (Some(SpenderKind::Subagent), _) if key == "main" => "main (subagent)".to_owned(),
        (_, Some(executor)) => match &executor.name {
            Some(name) => format!("{key} ({})", one_line(name)),
            None => key,
        },
        _ => key,
    }
}

/// A line of a bill: subject, tokens and cost.
pub(super) struct Figures {
    pub(super) key: Vec<String>,
    pub(super) usage: TokenUsage,
    pub(super) cost: Cost,
}

/// Numbers are aligned right, costs at their points. The first `names` columns are text.
pub(super) fn table(key: &[&'static str], names: usize, rows: &[Figures]) -> Result<(), Failure> {
    let decimals = rows.iter().map(|row| decimals(row.cost)).max().unwrap_or(0).max(4);
    let cells = |row: &Figures| {
        let mut cells = row.key.clone();
        cells.extend(token_numbers(&row.usage));
        cells.push(dollars(row.cost, decimals));
        cells
    };
    let (texts, counts) = key.split_at(names);
    let mut columns = TableColumn::texts(texts);
    columns.extend(TableColumn::numbers(counts).into_iter().map(TableColumn::minor));
    columns.extend(TableColumn::numbers(&TOKENS));
    columns.push(TableColumn::number("cost usd").major());
    Output::stdout().table(&columns, &rows.iter().map(cells).collect::<Vec<_>>(), "")
}

const TOKENS: [&str; 4] = ["input", "output", "cache write", "cache read"];

fn token_numbers(usage: &TokenUsage) -> [String; 4] {
    let written = usage.cache_write_5m_tokens.saturating_add(usage.cache_write_1h_tokens);
    let numbers = [usage.input_tokens, usage.output_tokens, written, usage.cache_read_tokens];
    numbers.map(|number| number.to_string())
}

/// All its decimals, but at least `least`.
pub(super) fn dollars(cost: Cost, least: usize) -> String {
    let decimals = decimals(cost).max(least);
    format!("{:.decimals$}", cost.dollars())
}

fn decimals(cost: Cost) -> usize {
    cost.dollars().to_string().split_once('.').map_or(0, |(_, part)| part.len())
}

impl From<By> for GroupBy {
    fn from(by: By) -> Self {
        match by {
            By::Model => Self::Model,
            By::Subagent => Self::Subagent,
            By::Executor => Self::Executor,
            By::Conversation => Self::Conversation,
            By::Day => Self::Day,
            By::Month => Self::Month,
            By::Tenant => Self::Tenant,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shikiri_model::execution::{ModelPrices, TokenPrice};

    #[test]
    fn a_cost_is_printed_with_all_its_digits() {
        let prices =
            ModelPrices { input: TokenPrice::from_micros(300_000), ..ModelPrices::default() };
        let cost =
            |input_tokens| prices.cost(&TokenUsage { input_tokens, ..TokenUsage::default() });
        assert_eq!(dollars(cost(1), 4), "0.0000003");
        assert_eq!(dollars(cost(10_000_000), 4), "3.0000");
        assert_eq!(dollars(Cost::default(), 4), "0.0000");
    }
}
