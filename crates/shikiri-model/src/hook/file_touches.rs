//! Which agents used a file, by the outcomes of their tool calls.

use serde::Serialize;

use crate::macros::text_enum;
use crate::time::Timestamp;

use super::decide::HookEvaluation;
use super::hook_rows::HookRowChange;

/// The length in characters to which commands are kept.
const KEPT_COMMAND: usize = 300;

/// A call of a tool that named a file, or whose shell line plainly wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTouch {
    pub session_id: String,
    /// None for the main agent.
    pub agent_id: Option<String>,
    pub agent_type: Option<String>,
    /// The role at that time.
    pub role: Option<String>,
    pub tool: String,
    /// Absolute, after links.
    pub path: String,
    /// As seen from the project, or from the worktree that the file is in.
    pub name: Option<String>,
    /// The file was removed or moved, with all that was in it.
    pub removed: bool,
    /// The shell line.
    pub command: Option<String>,
    pub outcome: TouchOutcome,
    pub at: Timestamp,
}

text_enum! {
    #[derive(Default)]
    pub enum TouchOutcome {
        #[default]
        Done = "done",
        Failed = "failed",
    }
}

/// Selects the calls that used a file, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileTouchQuery {
    /// The file's paths: as written, and after links.
    pub paths: Vec<String>,
    /// As seen from the project.
    pub name: Option<String>,
    pub limit: u32,
}

impl FileTouchQuery {
    /// The folders around the file. Who removed one of them removed the file.
    pub fn folders(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for path in &self.paths {
            let ends = path.match_indices('/').map(|(at, _)| &path[..at]);
            found.extend(ends.filter(|folder| !folder.is_empty()).map(str::to_owned));
        }
        found
    }
}

/// A call as it was kept, with the agent's role as it is known now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileTouchRecord {
    pub session_id: String,
    pub agent_id: Option<String>,
    pub agent_type: Option<String>,
    pub role: Option<String>,
    pub tool: String,
    pub path: String,
    pub name: Option<String>,
    pub removed: bool,
    pub command: Option<String>,
    pub outcome: TouchOutcome,
    pub timestamp: Timestamp,
}

impl HookEvaluation<'_> {
    /// `PostToolUse` and `PostToolUseFailure`: notes the files or the command, and the outcome.
    pub(super) fn record_touches(&mut self) {
        let Some(tool) = self.payload.tool_name.clone().filter(|_| self.payload.is_tool_result())
        else {
            return;
        };
        if self.payload.is_spawn_call() || self.payload.is_search() || tool.contains('\0') {
            return;
        }
        let outcome = match self.payload.event.as_str() {
            "PostToolUse" => TouchOutcome::Done,
            _ => TouchOutcome::Failed,
        };
        let command = self.payload.input("command").map(|command| {
            let plain = command.chars().filter(|c| *c != '\0');
            plain.take(KEPT_COMMAND).collect::<String>()
        });
        let touches = self.touches(&tool, outcome, command.as_deref());
        self.detail("tool", tool);
        self.detail("outcome", outcome.as_str());
        if let Some(command) = command {
            self.detail("command", command);
        } else if let Some(touch) = touches.first() {
            self.detail("path", touch.name.as_deref().unwrap_or(&touch.path));
        }
        for touch in touches {
            self.change(HookRowChange::Touch(touch));
        }
    }

    fn touches(&self, tool: &str, outcome: TouchOutcome, command: Option<&str>) -> Vec<FileTouch> {
        let kind = self.payload.agent_type.as_deref();
        let of_type = || kind.and_then(|kind| self.conventions.role_named(kind));
        let known = self.known.agent.as_ref().filter(|_| self.payload.agent_id.is_some());
        let role = known.and_then(|agent| agent.role.as_deref()).or_else(of_type);
        let targets = self
            .targets()
            .iter()
            .filter(|target| !target.path.contains('\0') && !target.path.starts_with("/dev/"));
        let mut found: Vec<FileTouch> = Vec::new();
        for target in targets {
            let path = self.real_path(&target.path);
            if found.iter().any(|touch| touch.path == path) {
                continue;
            }
            found.push(FileTouch {
                session_id: self.payload.session_id.clone(),
                agent_id: self.payload.agent_id.clone(),
                agent_type: kind.map(str::to_owned),
                role: role.map(str::to_owned),
                tool: tool.to_owned(),
                name: self.name_in_project(&target.path),
                path,
                removed: target.removes,
                command: command.filter(|_| target.is_shell_write).map(str::to_owned),
                outcome,
                at: self.now,
            });
        }
        found
    }
}
