//! Reads `.shikiri/conventions.toml`.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use shikiri_model::hook::{Conventions, OnError};

use crate::allowed_files;

/// A hand-written file is smaller.
const MOST_BYTES: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum ConventionsError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is larger than 1 MiB", .0.display())]
    TooLarge(PathBuf),
    #[error("{} is not written in UTF-8", .0.display())]
    NotUtf8(PathBuf),
    #[error("{}: {source}", path.display())]
    Invalid { path: PathBuf, source: ConventionsSyntaxError },
}

/// An error in the text of a conventions file.
#[derive(Debug, thiserror::Error)]
pub struct ConventionsSyntaxError {
    /// From 1; None if the error has no position.
    pub line: Option<usize>,
    pub message: String,
}

impl fmt::Display for ConventionsSyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// Empty conventions if there is no file.
pub fn load(path: &Path) -> Result<Conventions, ConventionsError> {
    let text = match allowed_files::read_start(path, MOST_BYTES + 1) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Conventions::default()),
        Err(source) => {
            return Err(ConventionsError::Unreadable { path: path.to_owned(), source });
        }
    };
    if text.len() as u64 > MOST_BYTES {
        return Err(ConventionsError::TooLarge(path.to_owned()));
    }
    let text = String::from_utf8(text).map_err(|_| ConventionsError::NotUtf8(path.to_owned()))?;
    parse(&text).map_err(|source| ConventionsError::Invalid { path: path.to_owned(), source })
}

/// What holds of a file that cannot be used: only what becomes of tool calls then, and whether agents
/// may change it. Both are read from its lines, as nothing else in it can be relied on.
pub fn broken(path: &Path, problem: &ConventionsError) -> Conventions {
    let text = allowed_files::read_start(path, MOST_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let is_denied = value_of(&text, "on_error").is_some_and(|it| it.eq_ignore_ascii_case("deny"));
    Conventions {
        on_error: if is_denied { OnError::Deny } else { OnError::Allow },
        protect_conventions: value_of(&text, "protect_conventions") != Some("false"),
        problem: Some(problem.to_string()),
        ..Conventions::default()
    }
}

/// The value of the first line `key = value`, without quotes and comment.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let is_quote = |c: char| matches!(c, '"' | '\'') || c.is_whitespace();
    let values = text.lines().filter_map(|line| line.split_once('='));
    let mut values = values.filter(|(name, _)| name.trim_matches(is_quote) == key);
    values.next().map(|(_, value)| value.split('#').next().unwrap_or(value).trim_matches(is_quote))
}

pub fn parse(text: &str) -> Result<Conventions, ConventionsSyntaxError> {
    toml::from_str(text).map_err(|error| ConventionsSyntaxError {
        line: error.span().map(|span| text[..span.start].matches('\n').count() + 1),
        message: error.message().to_owned(),
    })
}
