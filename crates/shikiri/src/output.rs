//! The program's stdout and stderr. If the reader is gone, the program ends quietly; nothing here
//! panics.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::env_vars;
use crate::exit::{Exit, Failure};
use crate::text::safe_json;

/// The style of a piece of text, on terminals with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Warning,
    Bad,
}

#[derive(Clone, Copy, Debug)]
pub struct Output {
    colour: bool,
}

impl Output {
    pub fn stdout() -> Self {
        Self { colour: colour_wanted() && io::stdout().is_terminal() }
    }

    /// For output to stderr.
    pub fn stderr() -> Self {
        Self { colour: stderr_colour() }
    }

    /// Without colours.
    pub fn plain() -> Self {
        Self { colour: false }
    }

    pub fn paint(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Warning => "33",
            Style::Bad => "31",
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Writes a line and flushes it, into a pipe too.
    pub fn line(self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{text}")?;
        Ok(stdout.flush()?)
    }

    /// Writes part of a line and flushes it.
    pub fn piece(self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }

    /// A value as indented JSON.
    pub fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(&safe_json(&serde_json::to_string_pretty(value).map_err(not_json)?))
    }

    /// A value as one line of JSON, for streams of them.
    pub fn json_line(self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(&safe_json(&serde_json::to_string(value).map_err(not_json)?))
    }

    /// Columns under their names; nothing is cut, so that ids can be copied.
    pub fn table(self, head: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        self.figures(head, rows, head.len())
    }

    /// A table whose columns from `names` on are numbers, aligned right.
    pub fn figures(self, head: &[&str], rows: &[Vec<String>], names: usize) -> Result<(), Failure> {
        let width_of = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widths = cells.map(|cell| cell.chars().count());
            widths.chain(head.get(column).map(|name| name.len())).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width_of).collect();
        let align = |cells: &[String]| {
            let columns = cells.iter().zip(&widths).enumerate();
            let padded = columns.map(|(column, (cell, width))| match column < names {
                true => format!("{cell:width$}"),
                false => format!("{cell:>width$}"),
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let names: Vec<String> = head.iter().map(|name| (*name).to_uppercase()).collect();
        self.line(&self.paint(Style::Dim, &align(&names)))?;
        rows.iter().try_for_each(|row| self.line(&align(row)))
    }
}

/// Prints a note to the person that is not part of the command's result.
pub fn note(text: &str) {
    // If stderr is gone, there is no reader to tell.
    let _ = writeln!(io::stderr().lock(), "{text}");
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
