//! Changed tools of a server, as people read them.

use shikiri_model::host::clean_line;
use shikiri_model::tool::ToolChange;

/// Tools that one line names.
const MAX_NAMED: usize = 10;

/// One line that says which tools are not what they were.
pub(crate) fn changes_line(server: &str, changes: &[ToolChange]) -> String {
    let mut named: Vec<_> = changes.iter().take(MAX_NAMED).map(ToolChange::in_short).collect();
    if changes.len() > MAX_NAMED {
        named.push(format!("and {} more", changes.len() - MAX_NAMED));
    }
    clean_line(&format!("shikiri: {server} has other tools than before: {}", named.join(", ")))
}

/// What a server said of a tool before, and what it says now.
pub(crate) fn difference(server: &str, change: &ToolChange) -> String {
    let mut lines = change.lines();
    let head = clean_line(&format!("shikiri: {server} changed what it says of a tool:"));
    lines.insert(0, head);
    lines.join("\n")
}
