//! The files that a tool call is about, and the names under which rules know them.

use serde_json::Value;

use super::conventions::Conventions;
use super::decide::HookEvaluation;
use super::hook_input::HookInput;
use super::shell_commands::ShellLine;

/// Fields of a tool's input that name a file.
const PATH_FIELDS: [&str; 3] = ["file_path", "notebook_path", "path"];
/// Fields of other servers' tools.
const MCP_FIELDS: [&str; 3] = ["source", "destination", "paths"];
/// Tools whose path is a folder to search.
const SEARCHES: [&str; 3] = ["Glob", "Grep", "LS"];

/// The folder in which Claude Code keeps the worktrees of agents.
const WORKTREES: &str = ".claude/worktrees/";

/// More files of one call are not looked at.
const MOST_TARGETS: usize = 256;

/// A call may name a file through links, and in a worktree of the project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// Folders besides the project's from which rules see a path: the project's after links, and
    /// worktrees of its repository.
    pub roots: Vec<String>,
    /// Paths, and where they lead after links.
    pub real: Vec<(String, String)>,
}

/// A file that a tool call names, or that its shell line writes.
#[derive(Clone, Debug)]
pub(super) struct ToolTarget {
    /// Absolute, as written: after a link, `..` leads to the folder above its target.
    pub(super) path: String,
    pub(super) is_shell_write: bool,
    /// It is removed or moved, with all that is in it.
    pub(super) removes: bool,
}

/// The paths of a call that are to be resolved before the decision. Empty if nothing depends on
/// them.
pub fn paths_of_call(
    payload: &HookInput,
    conventions: &Conventions,
    project: Option<&str>,
) -> Vec<String> {
    let is_before = payload.event == "PreToolUse";
    let rules = conventions.rules.iter().any(|rule| !rule.paths.is_empty());
    if !(payload.is_tool_result() || is_before && (rules || conventions.protect_conventions)) {
        return Vec::new();
    }
    let line = payload.input("command").map(ShellLine::parse).unwrap_or_default();
    targets(payload, &line, project).into_iter().map(|target| target.path).collect()
}

/// The files of a call: those that it names, then those that its shell line writes.
fn targets(payload: &HookInput, line: &ShellLine, project: Option<&str>) -> Vec<ToolTarget> {
    let cwd = payload.cwd.as_deref().or(project).unwrap_or("/");
    let mut found = Vec::new();
    let mut add = |path: &str, is_shell_write, removes| {
        let path = absolute(cwd, path);
        let target = ToolTarget { path, is_shell_write, removes };
        found.push(target);
    };
    let is_mcp = payload.tool_name.as_deref().is_some_and(|name| name.starts_with("mcp__"));
    let fields = PATH_FIELDS.iter().chain(MCP_FIELDS.iter().filter(|_| is_mcp));
    for value in fields.filter_map(|field| payload.tool_input.get(*field)) {
        let texts = match value {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        let texts = texts.iter().filter_map(Value::as_str).filter(|text| !text.is_empty());
        texts.for_each(|text| add(text, false, false));
    }
    for write in &line.writes {
        add(&write.path, true, write.removes);
        // A `cd` in a subshell does not change the folder of what follows.
        if let Some(folder) = &write.folder {
            add(&format!("{folder}/{}", write.path), true, write.removes);
        }
    }
    found.truncate(MOST_TARGETS);
    found
}

impl HookInput {
    /// Whether the event reports the outcome of a tool call.
    pub(super) fn is_tool_result(&self) -> bool {
        matches!(self.event.as_str(), "PostToolUse" | "PostToolUseFailure")
    }

    /// Whether the tool searches a folder instead of using a file.
    pub(super) fn is_search(&self) -> bool {
        self.tool_name.as_deref().is_some_and(|name| SEARCHES.contains(&name))
    }
}

impl HookEvaluation<'_> {
    pub(super) fn shell_line(&self) -> &ShellLine {
        let line = || self.payload.input("command").map(ShellLine::parse).unwrap_or_default();
        self.shell_line.get_or_init(line)
    }

    pub(super) fn targets(&self) -> &[ToolTarget] {
        let project = self.evidence.project.as_deref();
        self.targets.get_or_init(|| targets(self.payload, self.shell_line(), project))
    }

    /// The names of a path: as written, and where it leads if that differs. The first name of each
    /// is absolute, the others are relative to the project or to a worktree of it.
    pub(super) fn names(&self, path: &str) -> Vec<Vec<String>> {
        let (written, real) = (without_dots(path), self.real_path(path));
        let mut found = vec![self.names_from_roots(&written)];
        if real != written {
            found.push(self.names_from_roots(&real));
        }
        found
    }

    /// Where a path leads after links, as far as that is known.
    pub(super) fn real_path(&self, path: &str) -> String {
        let known = self.evidence.paths.real.iter().find(|(from, _)| from == path);
        known.map_or_else(|| without_dots(path), |(_, real)| real.clone())
    }

    fn names_from_roots(&self, path: &str) -> Vec<String> {
        let project = self.evidence.project.as_deref().or(self.payload.cwd.as_deref());
        let project = project.map(without_dots);
        let names = names_inside(path, project.iter().chain(&self.evidence.paths.roots));
        [path.to_owned()].into_iter().chain(names).collect()
    }

    pub(super) fn name_in_project(&self, path: &str) -> Option<String> {
        let names = self.names_from_roots(&self.real_path(path));
        names.into_iter().skip(1).min_by_key(String::len)
    }
}

/// The path as the project knows it, also for the copy of a file in a worktree. None outside of
/// these folders.
pub fn name_in_project(path: &str, roots: &[String]) -> Option<String> {
    names_inside(path, roots).into_iter().min_by_key(String::len)
}

/// The path as seen from each of these folders, and from the worktrees in them.
fn names_inside<'a>(path: &str, roots: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for inside in roots.into_iter().filter_map(|root| path_inside(root, path)) {
        let in_worktree = inside.strip_prefix(WORKTREES).and_then(|rest| rest.split_once('/'));
        for name in [Some(inside), in_worktree.map(|(_, rest)| rest)].into_iter().flatten() {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

fn path_inside<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    match path.strip_prefix(root)? {
        "" => Some("."),
        inside => inside.strip_prefix('/'),
    }
}

fn absolute(cwd: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{cwd}/{path}") }
}

/// The path without `.` and `..`, computed from its text.
fn without_dots(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_do_not_hide_a_path() {
        assert_eq!(without_dots("/p/docs/../src/./a.rs"), "/p/src/a.rs");
        assert_eq!(without_dots("/../../x"), "/x");
    }
}
