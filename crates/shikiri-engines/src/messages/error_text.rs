//! Texts of errors from outside, in a form for messages and logs.

use std::error::Error;

/// The texts of an error and of all its causes.
pub(crate) fn join_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&cause| cause.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A text on one line, without control characters, of at most `max_chars` characters.
pub(super) fn on_one_line(text: &str, max_chars: usize) -> String {
    let words = text.split(|c: char| c.is_control() || c.is_whitespace());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    line.chars().take(max_chars).collect()
}
