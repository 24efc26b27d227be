//! Shows a person the requests of a project's file, and asks for agreement.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use super::agreement::{EntryChange, FileTrust};
use super::request::FileRequest;
use crate::text::one_line;

/// The question: the entries, or their difference to the agreed ones.
pub(super) fn text(root: &Path, request: &FileRequest, trust: &FileTrust) -> String {
    let name = one_line(&root.join(request.file.name()).display().to_string());
    let (head, lines) = match trust {
        FileTrust::Changed(changes) => {
            (format!("shikiri: {name} has changed since you agreed to it:"), changed_lines(changes))
        }
        _ => (format!("shikiri: {name} asks for what needs your agreement:"), entry_lines(request)),
    };
    let question = "Allow this in this folder, as long as the file stays as it is? [y/N] ";
    format!("{head}\n{}\n{question}", lines.join("\n"))
}

pub fn entry_lines(request: &FileRequest) -> Vec<String> {
    request.entries.iter().map(|entry| format!("  {}", entry.text)).collect()
}

pub fn changed_lines(changes: &[EntryChange]) -> Vec<String> {
    if changes.is_empty() {
        return vec!["  what it asks for looks the same; something else in it changed".to_owned()];
    }
    let line = |change: &EntryChange| match change {
        // Read from our own file, but originally foreign text.
        EntryChange::Removed(entry) => format!("  - {}", one_line(entry)),
        EntryChange::Added(entry) => format!("  + {}", one_line(entry)),
    };
    changes.iter().map(line).collect()
}

/// Only a clear yes counts. None if no person is at the terminal.
pub fn ask_at_terminal(question: &str) -> Option<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    let mut stderr = io::stderr().lock();
    stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush()).ok()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).ok()?;
    Some(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
