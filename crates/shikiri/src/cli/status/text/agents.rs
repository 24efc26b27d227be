//! The sessions of Claude Code: main agent and subagents, and what each does.

use shikiri_app::StatusReport;
use shikiri_model::execution::{Cost, TokenUsage};
use shikiri_model::hook::{HookSessionState, LastToolUse};
use shikiri_model::time::Timestamp;
use shikiri_subagents::{ClaudeSessionView, SubagentSpending, SubagentView};

use super::line::{StatusLine, grouped};
use super::{MOST_SHOWN, Page, ago};
use crate::cli::usage::dollars;
use crate::output::Style;

impl Page<'_> {
    pub(super) fn claude_sessions(&mut self, report: &StatusReport) {
        if report.claude_sessions.is_empty() {
            return self.empty.push("sessions of Claude Code");
        }
        self.heading("Claude Code");
        for session in report.claude_sessions.iter().take(MOST_SHOWN) {
            self.claude_session(session, report.at);
        }
    }

    fn claude_session(&mut self, session: &ClaudeSessionView, now: Timestamp) {
        let activity = &session.activity;
        let (style, word) = match activity.state {
            HookSessionState::Working => (Style::Good, "working"),
            HookSessionState::Idle => (Style::Warning, "waits for a prompt"),
            HookSessionState::Ended => (Style::Dim, "ended"),
        };
        let line = StatusLine::new(Style::Plain, &format!("  session {} ", activity.session_id));
        let line = line.add(style, word).dim(&format!(", {} ago", ago(now, activity.last_at)));
        self.push(line.at_right(session.spent().map(|s| spending(&s)).unwrap_or_default()));
        let subagents: Vec<_> = session.subagents.iter().take(MOST_SHOWN).collect();
        let main = StatusLine::new(Style::Dim, branch(subagents.is_empty())).plain("main agent");
        self.push(with_tool(main, activity.main_tool.as_ref(), now));
        let last = subagents.len().saturating_sub(1);
        for (at, view) in subagents.iter().enumerate() {
            let tool = activity.subagent_tools.get(&view.subagent.agent_id);
            self.push(subagent(view, tool, at == last, now));
        }
        let command = format!("shikiri subagents --session {}", activity.session_id);
        self.more(session.subagents.len(), &command);
    }
}

fn subagent(
    view: &SubagentView,
    tool: Option<&LastToolUse>,
    is_last: bool,
    now: Timestamp,
) -> StatusLine {
    let agent = &view.subagent;
    let name = agent.role.as_deref().unwrap_or(&agent.agent_type);
    let line = StatusLine::new(Style::Dim, branch(is_last)).plain(name);
    let line = line.dim(&format!(" {}", agent.agent_id));
    let line = match agent.ended_at.filter(|_| !agent.is_active()) {
        None => with_tool(line, tool, now).dim(&format!(", runs {}", ago(now, agent.created_at))),
        Some(at) => {
            let how = agent.end_reason.as_deref().unwrap_or("ended");
            line.plain("  ").dim(&format!("{how} {} ago", ago(now, at)))
        }
    };
    line.at_right(view.spent.as_ref().map(spending).unwrap_or_default())
}

fn branch(is_last: bool) -> &'static str {
    if is_last { "  └ " } else { "  ├ " }
}

fn with_tool(line: StatusLine, tool: Option<&LastToolUse>, now: Timestamp) -> StatusLine {
    match tool {
        Some(used) => line
            .plain("  ")
            .add(Style::Bold, &used.tool)
            .dim(&format!(" {} ago", ago(now, used.at))),
        None => line.dim("  no tool yet"),
    }
}

fn spending(spent: &SubagentSpending) -> String {
    tokens_and_cost(&spent.usage, spent.cost)
}

/// `2,200 tokens  $0.0090`.
pub(super) fn tokens_and_cost(usage: &TokenUsage, cost: Option<Cost>) -> String {
    let parts = [
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_write_5m_tokens,
        usage.cache_write_1h_tokens,
        usage.cache_read_tokens,
    ];
    let sum = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
    let cost = cost.map_or_else(|| "$?".to_owned(), |cost| format!("${}", dollars(cost, 4)));
    format!("{} tokens  {cost}", grouped(sum))
}
