//! The status as JSON. Without data it has the same fields, empty.

use std::collections::BTreeMap;

use serde::Serialize;
use shikiri_app::{StatusReport, WaitingQuestion};
use shikiri_model::execution::{Cost, TokenUsage};
use shikiri_model::hook::{HookSessionState, LastToolUse};
use shikiri_model::ids::{NodeId, QuestionId, RunId, TenantId};
use shikiri_model::record::StoredDocument;
use shikiri_model::run::{NodeProcess, QuestionKind, Run, RunStatus, StatusCounts};
use shikiri_model::time::Timestamp;
use shikiri_runtime::run::{NodeState, NodeView, OpenQuestion, RunView};
use shikiri_subagents::{ClaudeSessionView, SubagentView};
use shikiri_tenancy::usage::{UsageGroup, UsageTotals};
use shikiri_web::views::{DialogueJson, ExecutionJson, LaneJson, RunJson, SubagentJson};

use super::server::ServerFinding;
use super::{Snapshot, today};

/// Entries of a list. What is left out is counted in `left_out`.
pub(super) const MOST_LISTED: usize = 50;

#[derive(Serialize)]
pub(super) struct StatusJson {
    project: String,
    tenant: TenantId,
    /// Null if there is no data yet.
    at: Option<Timestamp>,
    server: ServerFinding,
    nodes: Vec<NodeJson>,
    questions: Vec<OpenQuestionJson>,
    /// Runs and executions that failed today.
    failed: Vec<FailedRunJson>,
    /// Today.
    cancelled_dialogues: Vec<DialogueJson>,
    claude_sessions: Vec<ClaudeSessionJson>,
    subagents: Vec<WorkingSubagentJson>,
    runs: RunStatesJson<RunJson>,
    executions: RunStatesJson<ExecutionJson>,
    dialogues: Vec<DialogueJson>,
    lanes: Vec<LaneJson>,
    spend_today: SpendTodayJson,
    left_out: BTreeMap<&'static str, usize>,
}

#[derive(Serialize)]
struct NodeJson {
    id: NodeId,
    process: NodeProcess,
    state: &'static str,
    address: Option<String>,
    version: String,
    host: String,
    pid: u32,
    started_at: Timestamp,
}

#[derive(Serialize)]
struct OpenQuestionJson {
    run_id: RunId,
    agent: String,
    question_id: QuestionId,
    kind: QuestionKind,
    message: String,
    schema: serde_json::Value,
    /// Since when the run waits.
    since: Timestamp,
    expires_at: Option<Timestamp>,
    /// The command that answers it.
    command: String,
}

#[derive(Serialize)]
struct FailedRunJson {
    id: RunId,
    agent: String,
    code: Option<String>,
    message: Option<String>,
    ended_at: Option<Timestamp>,
    /// The command that shows it.
    command: String,
}

#[derive(Serialize)]
struct ClaudeSessionJson {
    session_id: String,
    state: HookSessionState,
    last_event: String,
    last_at: Timestamp,
    main_agent: MainAgentJson,
    active_subagents: usize,
    /// What its subagents spent, as far as it is known.
    usage: Option<TokenUsage>,
    cost_usd: Option<Cost>,
}

#[derive(Serialize)]
struct MainAgentJson {
    last_tool: Option<LastToolUse>,
}

#[derive(Serialize)]
struct WorkingSubagentJson {
    #[serde(flatten)]
    subagent: SubagentJson,
    last_tool: Option<LastToolUse>,
}

#[derive(Serialize)]
struct RunStatesJson<T> {
    by_state: BTreeMap<&'static str, u64>,
    /// Those that run or are in the queue.
    active: Vec<T>,
}

#[derive(Serialize)]
struct SpendTodayJson {
    /// The local date.
    day: Option<String>,
    from: Option<Timestamp>,
    #[serde(flatten)]
    total: SpentJson,
    by_model: Vec<SpentOnModelJson>,
}

#[derive(Serialize)]
struct SpentOnModelJson {
    model: String,
    #[serde(flatten)]
    spent: SpentJson,
}

#[derive(Default, Serialize)]
struct SpentJson {
    usage: TokenUsage,
    cost_usd: Cost,
    executions: u64,
}

impl StatusJson {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let report = snapshot.report.as_ref();
        let mut left_out = BTreeMap::new();
        let counts = report.map(|report| report.counts).unwrap_or_default();
        let active = report.map(|report| report.active.as_slice()).unwrap_or_default();
        let (executions, runs): (Vec<_>, Vec<_>) =
            active.iter().cloned().partition(|view| view.run.execution.is_some());
        macro_rules! listed {
            ($field:ident) => {
                listed(report.map(|report| &report.$field[..]), stringify!($field), &mut left_out)
            };
        }
        let mut status = Self {
            project: snapshot.project.clone(),
            tenant: snapshot.tenant.clone(),
            at: report.map(|report| report.at),
            server: snapshot.server.clone(),
            nodes: listed!(nodes),
            questions: listed!(questions),
            failed: listed!(failed),
            cancelled_dialogues: listed!(cancelled_dialogues),
            claude_sessions: listed!(claude_sessions),
            subagents: subagents(report, &mut left_out),
            runs: RunStatesJson {
                by_state: by_state(&counts.agents),
                active: runs.into_iter().map(RunJson::from).collect(),
            },
            executions: RunStatesJson {
                by_state: by_state(&counts.executions),
                active: executions.into_iter().map(|view| stored(view).into()).collect(),
            },
            dialogues: listed!(dialogues),
            lanes: listed!(lanes),
            spend_today: SpendTodayJson::of(report),
            left_out,
        };
        status.name_tenant_in_commands();
        // The report has not all of them either.
        let asked = report.map_or(0, |report| report.question_count);
        if asked > status.questions.len() {
            status.left_out.insert("questions", asked - status.questions.len());
        }
        status
    }
}

impl StatusJson {
    /// Commands are about the tenant `local` unless they name another.
    fn name_tenant_in_commands(&mut self) {
        if self.tenant == TenantId::local() {
            return;
        }
        let asked = self.questions.iter_mut().map(|question| &mut question.command);
        for command in asked.chain(self.failed.iter_mut().map(|run| &mut run.command)) {
            command.push_str(&format!(" --tenant {}", self.tenant));
        }
    }
}

fn listed<T: Clone, J: From<T>>(
    all: Option<&[T]>,
    name: &'static str,
    left_out: &mut BTreeMap<&'static str, usize>,
) -> Vec<J> {
    let all = all.unwrap_or_default();
    if all.len() > MOST_LISTED {
        left_out.insert(name, all.len() - MOST_LISTED);
    }
    all.iter().take(MOST_LISTED).cloned().map(J::from).collect()
}

/// The subagents of the listed sessions.
fn subagents(
    report: Option<&StatusReport>,
    left_out: &mut BTreeMap<&'static str, usize>,
) -> Vec<WorkingSubagentJson> {
    let sessions = report.map(|report| report.claude_sessions.as_slice()).unwrap_or_default();
    let of_session = |session: &ClaudeSessionView| {
        let tools = session.activity.subagent_tools.clone();
        let with_tool = session.subagents.clone().into_iter();
        with_tool.map(move |view| (tools.get(&view.subagent.agent_id).cloned(), view))
    };
    let all: Vec<_> = sessions.iter().flat_map(of_session).collect();
    listed(Some(&all), "subagents", left_out)
}

fn by_state(counts: &StatusCounts) -> BTreeMap<&'static str, u64> {
    RunStatus::ALL.iter().map(|status| (status.as_str(), counts.of(*status))).collect()
}

fn stored(view: RunView) -> StoredDocument<Run> {
    let RunView { run: value, created_at, updated_at, .. } = view;
    StoredDocument { version: 0, attempts: 0, created_at, updated_at, value }
}

impl From<NodeView> for NodeJson {
    fn from(NodeView { node, state, started_at }: NodeView) -> Self {
        Self {
            id: node.id,
            process: node.process,
            state: state_word(state),
            address: node.address,
            version: node.version,
            host: node.host,
            pid: node.pid,
            started_at,
        }
    }
}

pub(super) fn state_word(state: NodeState) -> &'static str {
    match state {
        NodeState::Alive => "alive",
        NodeState::Gone => "gone",
    }
}

impl From<WaitingQuestion> for OpenQuestionJson {
    fn from(WaitingQuestion { open, since }: WaitingQuestion) -> Self {
        let command = answer_command(&open);
        let OpenQuestion { run, agent, question } = open;
        Self {
            run_id: run,
            agent,
            question_id: question.id,
            kind: question.kind,
            message: question.message,
            schema: question.schema,
            since,
            expires_at: question.expires_at,
            command,
        }
    }
}

/// The command that answers a question.
pub(super) fn answer_command(open: &OpenQuestion) -> String {
    format!("shikiri runs answer {}", open.run)
}

impl From<StoredDocument<Run>> for FailedRunJson {
    fn from(stored: StoredDocument<Run>) -> Self {
        let command = show_command(&stored.value);
        let Run { id, agent, error, ended_at, .. } = stored.value;
        let (code, message) = error.map(|error| (error.code, error.message)).unzip();
        Self { id, agent, code, message, ended_at, command }
    }
}

/// The command that shows a run or an execution.
pub(super) fn show_command(run: &Run) -> String {
    let kind = if run.execution.is_some() { "executions" } else { "runs" };
    format!("shikiri {kind} show {}", run.id)
}

impl From<ClaudeSessionView> for ClaudeSessionJson {
    fn from(session: ClaudeSessionView) -> Self {
        let (spent, active_subagents) = (session.spent(), session.count_active());
        let activity = session.activity;
        Self {
            session_id: activity.session_id,
            state: activity.state,
            last_event: activity.last_event,
            last_at: activity.last_at,
            main_agent: MainAgentJson { last_tool: activity.main_tool },
            active_subagents,
            usage: spent.as_ref().map(|spent| spent.usage),
            cost_usd: spent.and_then(|spent| spent.cost),
        }
    }
}

impl From<(Option<LastToolUse>, SubagentView)> for WorkingSubagentJson {
    fn from((last_tool, view): (Option<LastToolUse>, SubagentView)) -> Self {
        Self { subagent: view.into(), last_tool }
    }
}

impl SpendTodayJson {
    fn of(report: Option<&StatusReport>) -> Self {
        let spend = report.and_then(|report| report.spend.as_ref());
        let model = |group: &UsageGroup| SpentOnModelJson {
            model: group.key.clone(),
            spent: group.spending.into(),
        };
        Self {
            day: report.map(|report| today::date(report.at)),
            from: report.map(|report| today::began_at(report.at)),
            total: spend.map(|spend| spend.total.into()).unwrap_or_default(),
            by_model: spend.map(|s| s.groups.iter().map(model).collect()).unwrap_or_default(),
        }
    }
}

impl From<UsageTotals> for SpentJson {
    fn from(UsageTotals { usage, cost, executions }: UsageTotals) -> Self {
        Self { usage, cost_usd: cost, executions }
    }
}
