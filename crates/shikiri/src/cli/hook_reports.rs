//! `shikiri hooks log` and `shikiri hooks stats`.

use clap::Args;
use shikiri_app::App;
use shikiri_model::hook::{HookLogRecord, HookStats, LogQuery, USUAL_LOG};
use shikiri_web::views::ListPage;

use super::hooks::Project;
use super::{JsonArgument, TenantArgument};
use crate::exit::Failure;
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::{one_line, short};

/// What a person is told in place of an empty log.
const NO_EVENTS: &str = "No events yet. Have Claude Code tell of them: shikiri hooks install";

#[derive(Args)]
pub(super) struct Log {
    #[command(flatten)]
    pub(super) project: Project,
    /// Only events of this session of Claude Code
    #[arg(long, value_name = "ID", visible_alias = "hook-session")]
    session: Option<String>,
    /// How many, the newest
    #[arg(long, value_name = "N", default_value_t = USUAL_LOG, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    #[command(flatten)]
    tenant: TenantArgument,
    #[command(flatten)]
    json: JsonArgument,
}

#[derive(Args)]
pub(super) struct Stats {
    #[command(flatten)]
    pub(super) project: Project,
    #[command(flatten)]
    tenant: TenantArgument,
    #[command(flatten)]
    json: JsonArgument,
}

impl Log {
    /// The newest last, as a log is read.
    pub(super) async fn run(&self, app: &App) -> Result<(), Failure> {
        let session_id = self.session.clone();
        let query = LogQuery { session_id, before: None, limit: self.limit };
        let (mut lines, _) = app.subagents.hook_log(&self.tenant.id, query).await?;
        lines.reverse();
        if self.json.json {
            return Output::stdout().json(&ListPage::<HookLogRecord>::new((lines, None)));
        }
        let rows: Vec<_> = lines.iter().map(line).collect();
        let columns = [
            TableColumn::time("time"),
            TableColumn::text("session").minor(),
            TableColumn::text("event"),
            TableColumn::text("hook"),
            TableColumn::text("agent").minor(),
            TableColumn::state("result"),
            TableColumn::text("ms"),
            TableColumn::text("details").minor(),
        ];
        Output::stdout().table(&columns, &rows, NO_EVENTS)
    }
}

impl Stats {
    pub(super) async fn run(&self, app: &App) -> Result<(), Failure> {
        let stats = app.subagents.hook_stats(&self.tenant.id).await?;
        if self.json.json {
            return Output::stdout().json(&stats);
        }
        show(&stats)
    }
}

fn line(line: &HookLogRecord) -> Vec<String> {
    let none = || "-".to_owned();
    let details = line.details.as_ref().map(|details| short(&details.to_string(), 120));
    vec![
        line.timestamp.to_string(),
        one_line(&line.session_id),
        one_line(&line.event_type),
        one_line(&line.hook_name),
        line.agent_id.as_deref().map_or_else(none, one_line),
        line.result.as_deref().map_or_else(none, one_line),
        line.duration_ms.map_or_else(none, |ms| ms.to_string()),
        details.unwrap_or_default(),
    ]
}

fn show(stats: &HookStats) -> Result<(), Failure> {
    let output = Output::stdout();
    let hooks: Vec<_> = stats
        .hooks
        .iter()
        .map(|hook| {
            vec![
                one_line(&hook.event_type),
                one_line(&hook.hook_name),
                hook.count.to_string(),
                hook.injected.to_string(),
                hook.blocked.to_string(),
                hook.average_ms.map_or_else(String::new, |ms| format!("{ms:.1}")),
                hook.max_ms.map_or_else(String::new, |ms| ms.to_string()),
            ]
        })
        .collect();
    let mut columns = TableColumn::texts(&["event", "hook"]);
    let figures = ["count", "injected", "blocked", "average ms", "max ms"];
    columns.extend(TableColumn::numbers(&figures));
    output.table(&columns, &hooks, NO_EVENTS)?;
    if stats.sessions.is_empty() && output.is_terminal() {
        return Ok(());
    }
    output.line("")?;
    let sessions: Vec<_> = stats
        .sessions
        .iter()
        .map(|session| {
            vec![
                one_line(&session.session_id),
                session.last_at.to_string(),
                session.count.to_string(),
                session.injected.to_string(),
                session.blocked.to_string(),
                session.active.to_string(),
                session.unprocessed.to_string(),
            ]
        })
        .collect();
    let mut columns = vec![TableColumn::text("session"), TableColumn::time("last")];
    columns.extend(TableColumn::numbers(&["events", "injected", "blocked", "active"]));
    columns.push(TableColumn::number("without convention").minor());
    output.table(&columns, &sessions, "")
}
