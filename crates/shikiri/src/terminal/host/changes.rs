//! Changes of a server's tools, for people.

use shikiri_model::host::sanitize_line;
use shikiri_model::tool::ToolChange;

/// Tools that are named in one line.
const MAX_NAMED: usize = 10;

/// One line with the names of the changed tools.
pub(crate) fn changes_line(server: &str, changes: &[ToolChange]) -> String {
    let mut named: Vec<_> = changes.iter().take(MAX_NAMED).map(ToolChange::in_short).collect();
    if changes.len() > MAX_NAMED {
        named.push(format!("and {} more", changes.len() - MAX_NAMED));
    }
    sanitize_line(&format!("shikiri: {server} has other tools than before: {}", named.join(", ")))
}

/// The former and the current definition of a tool.
pub(crate) fn difference(server: &str, change: &ToolChange) -> String {
    let mut lines = change.lines();
    let head = sanitize_line(&format!("shikiri: {server} changed what it says of a tool:"));
    lines.insert(0, head);
    lines.join("\n")
}
