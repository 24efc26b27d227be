//! The pages of `docs/reference` that need no server: made from the command line's parser, from the
//! OpenAPI document, and from the comments of codes and events.

mod commands;
mod errors;
mod events;
mod rest;

use shikiri_testkit::table_cell;

/// The two paragraphs of a name's comment: what it means, and more.
fn paragraphs(comment: &str) -> (String, String) {
    let (meaning, more) = comment.split_once("\n\n").unwrap_or((comment, ""));
    (table_cell(meaning), table_cell(more))
}

/// Rows of a table from names with their comments.
fn rows(names: impl IntoIterator<Item = (&'static str, &'static str)>) -> String {
    let row = |(name, comment): (&str, &str)| {
        let (meaning, more) = paragraphs(comment);
        assert!(!meaning.is_empty() && !more.is_empty(), "{name}: two paragraphs are needed");
        format!("| `{name}` | {meaning} | {more} |\n")
    };
    names.into_iter().map(row).collect()
}
