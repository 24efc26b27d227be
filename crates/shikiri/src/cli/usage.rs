//! `shikiri usage`: tokens and cost.

use clap::{Args, ValueEnum};
use shikiri_app::App;
use shikiri_model::execution::{Cost, SpenderKind, TokenUsage};
use shikiri_model::ids::TenantId;
use shikiri_tenancy::usage::{GroupBy, ReportPeriod, UsageGroup, UsageTotals};
use shikiri_web::views::UsageReportJson;

use super::JsonArgument;
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
    if json.json {
        return Output::stdout().json(&UsageReportJson::from(report));
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
    table(&[report.group_by.as_str(), "executions"], 1, &rows)
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
        let usage = &row.usage;
        let written = usage.cache_write_5m_tokens.saturating_add(usage.cache_write_1h_tokens);
        let numbers = [usage.input_tokens, usage.output_tokens, written, usage.cache_read_tokens];
        let mut cells = row.key.clone();
        cells.extend(numbers.map(|number| number.to_string()));
        cells.push(dollars(row.cost, decimals));
        cells
    };
    let (texts, counts) = key.split_at(names);
    let tokens = ["input", "output", "cache write", "cache read"];
    let mut columns = TableColumn::texts(texts);
    columns.extend(TableColumn::numbers(counts).into_iter().map(TableColumn::minor));
    columns.extend(TableColumn::numbers(&tokens));
    columns.push(TableColumn::number("cost usd").major());
    Output::stdout().table(&columns, &rows.iter().map(cells).collect::<Vec<_>>(), "")
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
