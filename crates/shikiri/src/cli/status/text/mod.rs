//! The status for people: what waits for them first, then everything else, in short sections.
//! Sections without content are one sentence together.

mod agents;
mod line;
mod waiting;
mod work;

use shikiri_app::StatusReport;
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;
use shikiri_runtime::run::NodeState;

use self::line::{StatusLine, age, count};
use super::Snapshot;
use super::server::{ServerFinding, ServerState};
use crate::output::{Output, Style};

/// Entries of a section.
const MOST_SHOWN: usize = 10;

/// The whole page, line by line.
pub(super) fn lines(snapshot: &Snapshot, width: usize, output: Output) -> Vec<String> {
    let mut page = Page { lines: Vec::new(), tenant: &snapshot.tenant, empty: Vec::new() };
    page.head(snapshot);
    match &snapshot.report {
        None => page.no_data(&snapshot.server),
        Some(report) => page.everything(report),
    }
    page.lines.iter().map(|line| line.show(width, output)).collect()
}

struct Page<'a> {
    lines: Vec<StatusLine>,
    tenant: &'a TenantId,
    /// What there is nothing of.
    empty: Vec<&'static str>,
}

impl Page<'_> {
    fn everything(&mut self, report: &StatusReport) {
        self.nodes(report);
        self.waiting(report);
        self.claude_sessions(report);
        self.runs(report);
        self.dialogues(report);
        self.lanes(report);
        self.spend(report);
        if !self.empty.is_empty() {
            self.gap();
            self.push(StatusLine::new(Style::Dim, &format!("None: {}.", self.empty.join(", "))));
        }
    }

    fn head(&mut self, snapshot: &Snapshot) {
        let head = StatusLine::new(Style::Bold, &snapshot.project);
        self.push(match snapshot.tenant == TenantId::local() {
            true => head,
            false => head.dim(&format!("  tenant {}", snapshot.tenant)),
        });
        self.push(server_line(&snapshot.server));
    }

    fn no_data(&mut self, server: &ServerFinding) {
        self.gap();
        self.push(StatusLine::default().plain("No Shikiri data here yet."));
        if server.state != ServerState::OtherProject {
            self.next("shikiri serve", "starts a server");
        }
        self.next("shikiri hooks install", "lets Claude Code tell what its agents do");
        self.next("shikiri run \"hello\"", "does one turn of a conversation");
    }

    /// A command that helps, and what it does.
    fn next(&mut self, command: &str, does: &str) {
        let line =
            StatusLine::new(Style::Bold, &format!("  {command:24}")).dim(&format!("  {does}"));
        self.push(line);
    }

    /// Nodes besides the server that the head shows.
    fn nodes(&mut self, report: &StatusReport) {
        let dead = report.nodes.iter().filter(|node| node.state == NodeState::Gone).count();
        let mut words = Vec::new();
        if report.nodes.len() > 1 || dead > 0 {
            for (process, thing) in
                [("server", "server"), ("mcp", "MCP process"), ("command", "command")]
            {
                let alive = report.nodes.iter().filter(|node| {
                    node.state == NodeState::Alive && node.node.process.as_str() == process
                });
                let alive = alive.count();
                if alive > 0 {
                    words.push(count(alive, thing));
                }
            }
        }
        if dead > 0 {
            words.push(format!("{dead} killed, their runs wait for another"));
        }
        if !words.is_empty() {
            self.push(StatusLine::new(Style::Dim, "nodes   ").plain(&words.join(", ")));
        }
    }

    fn gap(&mut self) {
        if self.lines.last().is_some() {
            self.lines.push(StatusLine::default());
        }
    }

    fn heading(&mut self, title: &str) {
        self.gap();
        self.push(StatusLine::new(Style::Bold, title));
    }

    fn push(&mut self, line: StatusLine) {
        self.lines.push(line);
    }

    /// Says what was left out, and the command that shows it.
    fn more(&mut self, total: usize, command: &str) {
        if total > MOST_SHOWN {
            let left = total - MOST_SHOWN;
            let text = format!("  and {left} more: {}", self.of_tenant(command));
            self.push(StatusLine::new(Style::Dim, &text));
        }
    }

    /// The command, about this tenant.
    fn of_tenant(&self, command: &str) -> String {
        match *self.tenant == TenantId::local() {
            true => command.to_owned(),
            false => format!("{command} --tenant {}", self.tenant),
        }
    }
}

fn server_line(server: &ServerFinding) -> StatusLine {
    let url = server.url.as_deref().unwrap_or("its address is not known");
    let version = server.version.as_deref().unwrap_or("?");
    let line = StatusLine::new(Style::Dim, "server  ");
    match server.state {
        ServerState::Running => {
            line.add(Style::Good, "running").plain(&format!(" at {url}, version {version}"))
        }
        ServerState::NotAnswering => line
            .add(Style::Bad, "does not answer")
            .plain(&format!(" at {url}, but holds its lease")),
        ServerState::Killed => {
            let text = format!(": it was at {url}; `shikiri serve` starts it again");
            line.add(Style::Bad, "killed").plain(&text)
        }
        ServerState::OtherProject => {
            let text = format!("; {url} is another project's server: choose --listen");
            line.add(Style::Warning, "none").plain(&text)
        }
        ServerState::OtherProgram => {
            let text = format!("; another program answers at {url}: choose --listen");
            line.add(Style::Warning, "none").plain(&text)
        }
        ServerState::None => line.plain("none; `shikiri serve` starts one"),
    }
}

fn ago(now: Timestamp, then: Timestamp) -> String {
    age(now.since(then))
}
