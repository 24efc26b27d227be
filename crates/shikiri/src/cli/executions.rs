//! `shikiri executions list|show`.

use std::collections::BTreeSet;

use clap::Subcommand;
use serde_json::Value;
use shikiri_app::App;
use shikiri_model::execution::{PRICES_AS_OF, PriceList, ToolCall, UsageRow, built_in_prices};
use shikiri_model::ids::{ConversationId, RunId, TenantId};
use shikiri_model::record::{RecordQuery, StoredDocument};
use shikiri_model::run::Run;
use shikiri_web::views::{ExecutionJson, ListPage};

use super::id_argument::IdArgument;
use super::parts::{none_yet, present, sheet, tell_of_more};
use super::usage::{Figures, dollars, table};
use super::{CommonArguments, JsonArgument};
use crate::exit::Failure;
use crate::output::{Output, note};
use crate::table::TableColumn;
use crate::text::{one_line, short};

#[derive(Subcommand)]
pub(super) enum Command {
    /// Show executions, newest first
    List {
        /// Only this conversation's
        #[arg(long, value_name = "ID")]
        conversation: Option<IdArgument<ConversationId>>,
        /// Show at most this many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show one execution: its answer, its tools, its bill
    Show {
        /// Its id, a unique ending of it, or @last for the newest
        execution: IdArgument<RunId>,
        #[command(flatten)]
        common: CommonArguments,
    },
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::List { conversation, limit, common } => {
            let is_filtered = conversation.is_some();
            let (runs, has_more) = match conversation {
                Some(id) => {
                    let id = id.resolve(app, &common.tenant.id).await?;
                    let (runs, next) =
                        app.executions.list_executions(&common.tenant.id, &id, None, limit).await?;
                    (runs, next.is_some())
                }
                None => newest(app, &common.tenant.id, limit as usize).await?,
            };
            list(runs, has_more, is_filtered, common.json)
        }
        Command::Show { execution, common } => {
            let runs = RecordQuery::of::<Run>(&common.tenant.id);
            let is_execution = |id: &str| id.starts_with("exe_");
            let execution = execution.resolve_among(app, runs, is_execution).await?;
            let stored = app.executions.execution(&common.tenant.id, &execution).await?;
            if common.json.json {
                return Output::stdout().json(&ExecutionJson::from(stored));
            }
            let tools = app.executions.execution_tools(&common.tenant.id, &execution).await?;
            let (_, rows) = app.executions.execution_usage(&common.tenant.id, &execution).await?;
            show(&stored, &tools, &rows, &app.tenancy.prices().await?)
        }
    }
}

/// The newest executions over all conversations, and whether there are more.
async fn newest(
    app: &App,
    tenant: &TenantId,
    limit: usize,
) -> Result<(Vec<StoredDocument<Run>>, bool), Failure> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let (runs, next) = app.runtime.list_runs(tenant, None, after, 200).await?;
        found.extend(runs.into_iter().filter(|run| run.value.execution.is_some()));
        match next {
            Some(next) if found.len() <= limit => after = Some(next),
            _ => break,
        }
    }
    let has_more = found.len() > limit;
    found.truncate(limit);
    Ok((found, has_more))
}

fn list(
    runs: Vec<StoredDocument<Run>>,
    has_more: bool,
    is_filtered: bool,
    json: JsonArgument,
) -> Result<(), Failure> {
    let output = Output::stdout();
    if json.json {
        return output.json(&ListPage::<ExecutionJson>::new((runs, None)));
    }
    let row = |stored: &StoredDocument<Run>| {
        let run = &stored.value;
        let execution = run.execution.as_ref()?;
        Some(vec![
            run.id.to_string(),
            run.status.as_str().to_owned(),
            execution.turn.to_string(),
            stored.created_at.to_string(),
            dollars(execution.total_cost_usd, 4),
            execution.conversation.to_string(),
            short(run.input["user_input"].as_str().unwrap_or_default(), 40),
        ])
    };
    let rows: Vec<_> = runs.iter().filter_map(row).collect();
    let columns = [
        TableColumn::id("id"),
        TableColumn::state("status"),
        TableColumn::text("turn"),
        TableColumn::time("created"),
        TableColumn::text("cost usd"),
        TableColumn::id("conversation").minor(),
        TableColumn::text("input"),
    ];
    let empty = none_yet("executions", is_filtered, "run \"Hello\"");
    output.table(&columns, &rows, &empty)?;
    tell_of_more(has_more);
    Ok(())
}

fn show(
    stored: &StoredDocument<Run>,
    tools: &[ToolCall],
    rows: &[UsageRow],
    prices: &PriceList,
) -> Result<(), Failure> {
    let run = &stored.value;
    let Some(execution) = &run.execution else { return Ok(()) };
    let output = Output::stdout();
    let result = run.result.as_ref().and_then(|result| result["result"].as_str());
    let executor = &execution.executor;
    let lines = [
        ("execution", Some(run.id.to_string())),
        ("conversation", Some(execution.conversation.to_string())),
        ("turn", Some(execution.turn.to_string())),
        ("status", Some(output.state(run.status.as_str()))),
        ("model", Some(format!("{} ({})", execution.model_id, execution.engine.as_str()))),
        ("executor", Some(one_line(&executor.user_id))),
        ("input", run.input["user_input"].as_str().map(|text| short(text, 200))),
        ("result", result.map(|text| short(text, 200))),
        ("error", run.error.as_ref().map(|e| short(&format!("{}: {}", e.code, e.message), 200))),
        ("created", Some(output.time(stored.created_at))),
        ("ended", run.ended_at.map(|at| output.time(at))),
    ];
    sheet(&present(lines))?;
    if !tools.is_empty() {
        output.line("")?;
        let rows: Vec<_> = tools.iter().map(tool_row).collect();
        let columns = [
            TableColumn::text("tool"),
            TableColumn::text("ms"),
            TableColumn::state("end"),
            TableColumn::text("input").minor(),
        ];
        output.table(&columns, &rows, "")?;
    }
    if rows.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let of = |row: &UsageRow| {
        let who = row.subagent_type.as_deref().unwrap_or("main");
        Figures {
            key: vec![one_line(who), one_line(&row.model)],
            usage: row.usage,
            cost: row.cost_usd,
        }
    };
    let total = Figures {
        key: vec!["total".to_owned(), String::new()],
        usage: execution.usage,
        cost: execution.total_cost_usd,
    };
    let figures: Vec<_> = rows.iter().map(of).chain([total]).collect();
    table(&["who", "model"], 2, &figures)?;
    note_built_in(rows.iter().filter(|row| is_built_in(row, prices)).map(|row| row.model.as_str()));
    Ok(())
}

/// Whether a row was billed by the built-in prices.
fn is_built_in(row: &UsageRow, prices: &PriceList) -> bool {
    let built_in = built_in_prices(&row.model).map(|built_in| built_in.cost(&row.usage));
    prices.is_built_in(&row.model) && built_in == Some(row.cost_usd)
}

/// Says of which models the prices are the built-in ones.
pub(super) fn note_built_in<'a>(models: impl Iterator<Item = &'a str>) {
    let models: BTreeSet<_> = models.map(one_line).collect();
    if !models.is_empty() {
        let models = models.into_iter().collect::<Vec<_>>().join(", ");
        note(&format!("built-in prices as of {PRICES_AS_OF}: {models}"));
    }
}

fn tool_row(call: &ToolCall) -> Vec<String> {
    let end = match call.is_error {
        None => "open",
        Some(true) => "error",
        Some(false) => "ok",
    };
    let indent = if call.parent_tool_use_id.is_some() { "  " } else { "" };
    let input = match &call.tool_input {
        Value::Null => String::new(),
        input => short(&input.to_string(), 60),
    };
    vec![
        format!("{indent}{}", one_line(&call.tool_name)),
        call.duration_ms.map(|ms| ms.to_string()).unwrap_or_default(),
        end.to_owned(),
        input,
    ]
}
