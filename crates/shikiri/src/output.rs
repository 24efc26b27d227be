//! The program's stdout and stderr. If the reader is gone, the program ends quietly; nothing here
//! panics.

use std::io::{self, IsTerminal as _, Write as _};

use console::Term;
use serde::Serialize;
use shikiri_model::time::Timestamp;

use crate::env_vars;
use crate::exit::{Exit, Failure};
use crate::spinner::suspend_spinner;
use crate::table::{TableColumn, TableView, fit_table, state_style};
use crate::text::safe_json;
use crate::times::LocalTime;

/// For a terminal that does not report its width.
const USUAL_WIDTH: u16 = 80;

/// The style of a piece of text, on terminals with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    /// At work.
    Active,
    Warning,
    Bad,
}

#[derive(Clone, Copy, Debug)]
pub struct Output {
    colour: bool,
    is_terminal: bool,
}

impl Output {
    pub fn stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self { colour: colour_wanted() && is_terminal, is_terminal }
    }

    /// For output to stderr.
    pub fn stderr() -> Self {
        Self { colour: stderr_colour(), is_terminal: io::stderr().is_terminal() }
    }

    /// Without colours.
    pub fn plain() -> Self {
        Self { colour: false, is_terminal: false }
    }

    /// In colours, wherever it goes.
    #[cfg(test)]
    pub fn coloured() -> Self {
        Self { colour: true, is_terminal: true }
    }

    pub fn paint(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Active => "36",
            Style::Warning => "33",
            Style::Bad => "31",
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Writes a line and flushes it, into a pipe too.
    pub fn line(self, text: &str) -> Result<(), Failure> {
        self.piece(&format!("{text}\n"))
    }

    /// Writes part of a line and flushes it.
    pub fn piece(self, text: &str) -> Result<(), Failure> {
        suspend_spinner(|| {
            let mut stdout = io::stdout().lock();
            stdout.write_all(text.as_bytes())?;
            Ok(stdout.flush()?)
        })
    }

    /// A value as indented JSON.
    pub fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(&safe_json(&serde_json::to_string_pretty(value).map_err(not_json)?))
    }

    /// A value as one line of JSON, for streams of them.
    pub fn json_line(self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(&safe_json(&serde_json::to_string(value).map_err(not_json)?))
    }

    /// A table. A person who would see an empty one is told `empty` instead.
    pub fn table(
        self,
        columns: &[TableColumn],
        rows: &[Vec<String>],
        empty: &str,
    ) -> Result<(), Failure> {
        if rows.is_empty() && self.is_terminal {
            return self.line(empty);
        }
        let fitted = fit_table(columns, rows, &self.table_view());
        fitted.lines.iter().try_for_each(|line| self.line(line))?;
        if !fitted.left_out.is_empty() {
            let names = fitted.left_out.join(", ");
            note(&self.paint(Style::Dim, &format!("no room for: {names} (--json has them)")));
        }
        Ok(())
    }

    fn table_view(self) -> TableView {
        TableView {
            width: self.is_terminal.then(stdout_width),
            time: if self.is_terminal { LocalTime::of_terminal() } else { None },
            output: self,
        }
    }

    /// A time on a line of its own: local on a terminal, else RFC 3339 in UTC.
    pub fn time(self, at: Timestamp) -> String {
        self.local_time().map_or_else(|| at.to_string(), |local| local.whole(at))
    }

    /// The time of day of an event: local on a terminal, else in UTC.
    pub fn time_of_day(self, at: &str) -> String {
        let local = self.local_time().zip(at.parse().ok());
        let utc = || at.get(11..23).unwrap_or(at).to_owned();
        local.map_or_else(utc, |(local, at)| local.time_of_day(at))
    }

    fn local_time(self) -> Option<LocalTime> {
        if self.is_terminal { LocalTime::of_terminal() } else { None }
    }

    /// The word of a state in its colour.
    pub fn state(self, state: &str) -> String {
        self.paint(state_style(state), state)
    }

    /// Whether a person reads it at a terminal.
    pub fn is_terminal(self) -> bool {
        self.is_terminal
    }
}

/// The width of the terminal on stdout.
fn stdout_width() -> usize {
    let size = Term::stdout().size_checked().map_or(USUAL_WIDTH, |(_, columns)| columns);
    usize::from(size.max(1))
}

/// Prints a note to the person that is not part of the command's result.
pub fn note(text: &str) {
    // If stderr is gone, there is no reader to tell.
    let _ = suspend_spinner(|| writeln!(io::stderr().lock(), "{text}"));
}

/// The one line that explains a failure.
pub fn complain(failure: &Failure) {
    if let Failure::Told { line, .. } = failure {
        note(&format!("shikiri: {line}"));
    }
}

/// For logs, which go to stderr.
pub fn stderr_colour() -> bool {
    colour_wanted() && io::stderr().is_terminal()
}

fn colour_wanted() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set(env_vars::NO_COLOR.name).is_none()
        && set(env_vars::TERM.name).is_none_or(|term| term != "dumb")
}

fn not_json(error: serde_json::Error) -> Failure {
    Failure::told(Exit::Failed, format!("a value could not be written as JSON: {error}"))
}
