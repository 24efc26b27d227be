//! What commands about things with records have in common.

use clap::ValueEnum;
use shikiri_app::AppError;
use shikiri_model::models;
use shikiri_model::record::Position;

use crate::exit::Failure;
use crate::output::{Output, Style};

/// Of models, servers and skills.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Status {
    Active,
    Inactive,
}

impl From<Status> for models::Status {
    fn from(status: Status) -> Self {
        match status {
            Status::Active => Self::Active,
            Status::Inactive => Self::Inactive,
        }
    }
}

/// All pages of a list.
pub(super) async fn all_pages<T>(
    page: impl AsyncFn(Option<Position>) -> Result<(Vec<T>, Option<Position>), AppError>,
) -> Result<Vec<T>, Failure> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (items, next) = page(after).await?;
        all.extend(items);
        match next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

/// One thing: a name and a value on each line.
pub(super) fn sheet(lines: &[(&str, String)]) -> Result<(), Failure> {
    let output = Output::stdout();
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in lines {
        let name = output.paint(Style::Dim, &format!("{name:width$}"));
        output.line(format!("{name}  {value}").trim_end())?;
    }
    Ok(())
}

/// A text that may be absent, as a person is told of it.
pub(super) fn or_none(text: Option<&str>) -> String {
    text.map_or_else(|| "none".to_owned(), crate::text::one_line)
}

/// An empty word takes something away.
pub(super) fn emptied(text: Option<String>) -> Option<Option<String>> {
    text.map(|text| Some(text).filter(|text| !text.is_empty()))
}

/// `NAME=VALUE`, or `NAME` alone for the value of that environment variable: what is on a command
/// line can be seen by others.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    if let Some((name, value)) = text.split_once('=') {
        return Ok((name.to_owned(), value.to_owned()));
    }
    let value = std::env::var(text)
        .map_err(|_| format!("write {text}=VALUE, or set the environment variable {text}"))?;
    Ok((text.to_owned(), value))
}
