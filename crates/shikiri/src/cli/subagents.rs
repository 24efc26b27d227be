//! `shikiri subagents`: the tree of subagents, and their cost.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::Serialize;
use shikiri_app::App;
use shikiri_model::hook::{HookSessionQuery, RoleSource, SubagentQuery, SubagentRecord};
use shikiri_model::ids::TenantId;
use shikiri_subagents::{HookSessionView, SubagentSpending, SubagentView};
use shikiri_web::views::{HookSessionJson, ListPage, SubagentJson};

use super::executions::note_built_in;
use super::parts::all_pages;
use super::usage::dollars;
use super::{JsonArgument, TenantArgument};
use crate::exit::Failure;
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::one_line;
use crate::wiring::Access;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Only subagents of this session of Claude Code [default: the last one that had any]
    #[arg(long, value_name = "ID", visible_alias = "session")]
    hook_session: Option<String>,
    /// Subagents of all sessions
    #[arg(long, conflicts_with = "hook_session")]
    all: bool,
    #[command(flatten)]
    tenant: TenantArgument,
    #[command(flatten)]
    json: JsonArgument,
}

/// The sessions whose lines are shown with `--all`.
const SESSIONS: u32 = 200;

#[derive(Serialize)]
struct SubagentsJson {
    #[serde(flatten)]
    page: ListPage<SubagentJson>,
    /// Oldest first.
    sessions: Vec<HookSessionJson>,
}

#[derive(Subcommand)]
enum Command {
    /// Say what a subagent is there for; it gets that role's conventions with its next tool call
    Role {
        /// The subagent's id
        agent: String,
        /// The role, as the conventions name it
        role: String,
        #[command(flatten)]
        tenant: TenantArgument,
    },
    /// Forget the subagents of a session
    Forget {
        /// The session's id in Claude Code
        session: String,
        #[command(flatten)]
        tenant: TenantArgument,
    },
}

impl Arguments {
    pub(super) fn access(&self) -> Access {
        match self.command {
            None => Access::Read,
            Some(Command::Role { .. } | Command::Forget { .. }) => Access::Write,
        }
    }
}

pub(super) async fn run(app: &App, arguments: Arguments) -> Result<(), Failure> {
    let output = Output::stdout();
    match &arguments.command {
        Some(Command::Role { agent, role, tenant }) => {
            let view = app.subagents.set_role(&tenant.id, agent, role).await?;
            let role = view.subagent.role.unwrap_or_default();
            output.line(&format!("{} is {}", one_line(agent), one_line(&role)))
        }
        Some(Command::Forget { session, tenant }) => {
            let count = app.subagents.forget_hook_session(&tenant.id, session).await?;
            output.line(&format!("{count} subagents are forgotten"))
        }
        None => show(app, arguments).await,
    }
}

async fn show(app: &App, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { hook_session, all, tenant, json, .. } = arguments;
    let session_id = match hook_session {
        None if !all => newest_session(app, &tenant.id).await?,
        named => named,
    };
    let mut views = all_pages(async |after| {
        let session_id = session_id.clone();
        let query = SubagentQuery { session_id, after, limit: 200, ..SubagentQuery::default() };
        app.subagents.subagents(&tenant.id, query).await
    })
    .await?;
    let sessions = sessions(app, &tenant.id, session_id).await?;
    if json.json {
        let page = ListPage::<SubagentJson>::new((views, None));
        let sessions = sessions.into_iter().map(HookSessionJson::from).collect();
        return Output::stdout().json(&SubagentsJson { page, sessions });
    }
    views.reverse();
    let mut rows: Vec<_> = sessions.iter().map(session_cells).collect();
    rows.extend(tree(&views).iter().map(|(depth, view)| cells(*depth, view)));
    rows.extend(sessions.iter().map(total_cells));
    let columns = [
        TableColumn::text("agent"),
        TableColumn::text("type"),
        TableColumn::text("role"),
        TableColumn::text("source").minor(),
        TableColumn::text("confidence").minor(),
        TableColumn::state("state"),
        TableColumn::number("seconds"),
        TableColumn::number("tokens"),
        TableColumn::number("cost usd").major(),
    ];
    let empty = "No subagents yet. Have Claude Code tell of them: shikiri hooks install";
    Output::stdout().table(&columns, &rows, empty)?;
    let spent = views.iter().filter_map(|view| view.spent.as_ref());
    let built_in_of = spent.flat_map(|spent| spent.built_in_of.iter().map(String::as_str));
    note_built_in(built_in_of);
    Ok(())
}

/// The session with the newest subagent, or the newest of all if none had any.
async fn newest_session(app: &App, tenant: &TenantId) -> Result<Option<String>, Failure> {
    let newest = SubagentQuery { limit: 1, ..SubagentQuery::default() };
    let (found, _) = app.subagents.subagents(tenant, newest).await?;
    if let Some(view) = found.into_iter().next() {
        return Ok(Some(view.subagent.session_id));
    }
    let newest = HookSessionQuery { limit: 1, ..HookSessionQuery::default() };
    let found = app.subagents.hook_sessions(tenant, newest).await?;
    Ok(found.into_iter().next().map(|view| view.session.session_id))
}

/// The session, or the newest ones, oldest first.
async fn sessions(
    app: &App,
    tenant: &TenantId,
    session_id: Option<String>,
) -> Result<Vec<HookSessionView>, Failure> {
    let query = HookSessionQuery { session_id, limit: SESSIONS, ..HookSessionQuery::default() };
    let mut sessions = app.subagents.hook_sessions(tenant, query).await?;
    sessions.reverse();
    Ok(sessions)
}

/// Each subagent below the one that spawned it, in order of start. Subagents with an unknown parent
/// are at the top level.
fn tree(views: &[SubagentView]) -> Vec<(usize, &SubagentView)> {
    let mut children: BTreeMap<Option<&str>, Vec<&SubagentView>> = BTreeMap::new();
    let known: Vec<&str> = views.iter().map(|view| view.subagent.agent_id.as_str()).collect();
    for view in views {
        let parent = view.subagent.parent_agent_id.as_deref();
        children.entry(parent.filter(|id| known.contains(id))).or_default().push(view);
    }
    let (mut ordered, mut open) = (Vec::new(), Vec::new());
    // Those without a parent come first. After them, only those in a cycle of parents are left.
    while let Some((_, roots)) = children.pop_first() {
        open.extend(roots.into_iter().rev().map(|view| (0, view)));
        while let Some((depth, view)) = open.pop() {
            ordered.push((depth, view));
            let below = children.remove(&Some(view.subagent.agent_id.as_str()));
            open.extend(below.into_iter().flatten().rev().map(|view| (depth + 1, view)));
        }
    }
    ordered
}

fn cells(depth: usize, view: &SubagentView) -> Vec<String> {
    let SubagentRecord { agent_id, agent_type, role, role_source, confidence, .. } = &view.subagent;
    let branch = if depth == 0 { String::new() } else { "  ".repeat(depth - 1) + "└ " };
    let ending = view.subagent.end_reason.as_deref().map(|why| format!(" ({})", one_line(why)));
    let state = view.subagent.state.as_str();
    let spent = view.spent.as_ref();
    vec![
        format!("{branch}{}", one_line(agent_id)),
        one_line(agent_type),
        role.as_deref().map_or_else(unknown, one_line),
        role_source.map_or("", RoleSource::as_str).to_owned(),
        confidence.as_str().to_owned(),
        format!("{state}{}", ending.unwrap_or_default()),
        format!("{:.1}", view.duration_ms as f64 / 1_000.0),
        tokens(spent),
        cost(spent),
    ]
}

/// The line of a session's main agent.
fn session_cells(view: &HookSessionView) -> Vec<String> {
    let state = if view.session.ended_at.is_some() { "ended" } else { "active" };
    let kind = view.session.agent_type.as_deref().map_or_else(|| "main".to_owned(), one_line);
    let agent = one_line(&view.session.session_id);
    let mut cells = vec![agent, kind, String::new(), String::new(), String::new()];
    cells.extend([state.to_owned(), String::new()]);
    cells.extend([tokens(view.spent.as_ref()), cost(view.spent.as_ref())]);
    cells
}

/// The line of a session's total.
fn total_cells(view: &HookSessionView) -> Vec<String> {
    let mut cells = vec![one_line(&view.session.session_id), "total".to_owned()];
    cells.extend(vec![String::new(); 5]);
    cells.extend([tokens(view.total.as_ref()), cost(view.total.as_ref())]);
    cells
}

fn tokens(spent: Option<&SubagentSpending>) -> String {
    spent.map_or_else(unknown, |spent| {
        let usage = &spent.usage;
        let written = usage.cache_write_5m_tokens.saturating_add(usage.cache_write_1h_tokens);
        let parts = [usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, written];
        parts.iter().fold(0_u64, |sum, part| sum.saturating_add(*part)).to_string()
    })
}

fn cost(spent: Option<&SubagentSpending>) -> String {
    spent.and_then(|spent| spent.cost).map_or_else(unknown, |cost| dollars(cost, 4))
}

fn unknown() -> String {
    "?".to_owned()
}
