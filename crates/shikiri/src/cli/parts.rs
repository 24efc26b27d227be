//! Helpers that commands for records share.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use shikiri_model::record::RecordPosition;
use shikiri_runtime::AppError;
use shikiri_web::views::{ListPage, Word};

use super::JsonArgument;
use crate::exit::Failure;
use crate::output::{Output, Style, note};
use crate::table::TableColumn;

/// Parses one of the values of a model's enum.
pub(super) fn word<T: Word>() -> impl TypedValueParser<Value = T> {
    one_of(T::ALL.iter().map(|value| (value.word(), *value)))
}

/// Parses one of these values. An underscore may be typed as a hyphen.
pub(super) fn one_of<T: Copy + Send + Sync + 'static>(
    words: impl IntoIterator<Item = (impl Into<String>, T)>,
) -> impl TypedValueParser<Value = T> {
    let words: Vec<(String, T)> =
        words.into_iter().map(|(word, value)| (word.into(), value)).collect();
    let hyphened = |word: &str| word.replace('_', "-");
    let shown =
        words.iter().map(|(word, _)| PossibleValue::new(word.clone()).alias(hyphened(word)));
    PossibleValuesParser::new(shown.collect::<Vec<_>>()).try_map(move |given| {
        let found = words.iter().find(|(word, _)| *word == given || hyphened(word) == given);
        found.map(|(_, value)| *value).ok_or("is none of the words")
    })
}

/// All pages of a list.
pub(super) async fn all_pages<T>(
    page: impl AsyncFn(Option<RecordPosition>) -> Result<(Vec<T>, Option<RecordPosition>), AppError>,
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

/// What a person is told in place of an empty list: how to make its first entry, unless only some
/// entries were asked for.
pub(super) fn none_yet(what: &str, is_filtered: bool, command: &str) -> String {
    match is_filtered {
        true => format!("No {what} like that."),
        false => format!("No {what} yet. Make the first one: shikiri {command}"),
    }
}

/// Prints a page of records: as JSON, or as a table with a row for each.
pub(super) fn print_page<V: From<R> + Serialize, R>(
    page: (Vec<R>, Option<RecordPosition>),
    json: JsonArgument,
    columns: &[TableColumn],
    empty: &str,
    row: impl Fn(&R) -> Vec<String>,
) -> Result<(), Failure> {
    let output = Output::stdout();
    if json.json {
        return output.json(&ListPage::<V>::new(page));
    }
    output.table(columns, &page.0.iter().map(row).collect::<Vec<_>>(), empty)?;
    tell_of_more(page.1.is_some());
    Ok(())
}

pub(super) fn tell_of_more(is_more: bool) {
    if is_more {
        note("there are more: raise --limit");
    }
}

/// Prints a record: as JSON, or as a sheet.
pub(super) fn print_record<V: From<R> + Serialize, R>(
    record: R,
    json: JsonArgument,
    lines: impl FnOnce(&R) -> Vec<(&str, String)>,
) -> Result<(), Failure> {
    if json.json {
        return Output::stdout().json(&V::from(record));
    }
    sheet(&lines(&record))
}

/// Prints a created record: as JSON, or its id alone on stdout, so that a script can read it.
pub(super) fn print_id<V: From<R> + Serialize, R>(
    record: R,
    json: JsonArgument,
    id: impl FnOnce(&R) -> &str,
) -> Result<(), Failure> {
    match json.json {
        true => Output::stdout().json(&V::from(record)),
        false => Output::stdout().line(id(&record)),
    }
}

/// One thing: a name and a value on each line.
pub(super) fn sheet(lines: &[(&str, String)]) -> Result<(), Failure> {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    sheet_of_width(width, lines)
}

pub(super) fn sheet_of_width(width: usize, lines: &[(&str, String)]) -> Result<(), Failure> {
    let output = Output::stdout();
    for (name, value) in lines {
        let name = output.paint(Style::Dim, &format!("{name:width$}"));
        output.line(format!("{name}  {value}").trim_end())?;
    }
    Ok(())
}

/// The lines that have a value.
pub(super) fn present<'a>(
    lines: impl IntoIterator<Item = (&'a str, Option<String>)>,
) -> Vec<(&'a str, String)> {
    lines.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// An optional text for people.
pub(super) fn or_none(text: Option<&str>) -> String {
    text.map_or_else(|| "none".to_owned(), crate::text::one_line)
}

/// An empty value clears the field.
pub(super) fn emptied(text: Option<String>) -> Option<Option<String>> {
    text.map(|text| Some(text).filter(|text| !text.is_empty()))
}

/// `NAME=VALUE`, or `NAME` alone for the value of that environment variable: other users can see a
/// command line.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    if let Some((name, value)) = text.split_once('=') {
        return Ok((name.to_owned(), value.to_owned()));
    }
    let value = std::env::var(text)
        .map_err(|_| format!("write {text}=VALUE, or set the environment variable {text}"))?;
    Ok((text.to_owned(), value))
}
