//! A line of pieces in different styles that fits the width, and the words for times and numbers.

use std::time::Duration;

use console::{measure_text_width, truncate_str};

use crate::output::{Output, Style};
use crate::text::one_line;

/// A line that is being put together.
#[derive(Clone, Debug, Default)]
pub(super) struct StatusLine {
    pieces: Vec<(Style, String)>,
    /// At the right edge.
    right: String,
}

impl StatusLine {
    pub(super) fn new(style: Style, text: &str) -> Self {
        Self::default().add(style, text)
    }

    /// Adds a piece. The text may come from a model: it becomes one line without control
    /// characters. Spaces at its ends stay.
    #[must_use]
    pub(super) fn add(mut self, style: Style, text: &str) -> Self {
        let spaces = |count: usize| " ".repeat(count);
        let trimmed = text.trim();
        let before = text.len() - text.trim_start().len();
        let after = text.trim_start().len() - trimmed.len();
        self.pieces
            .push((style, format!("{}{}{}", spaces(before), one_line(trimmed), spaces(after))));
        self
    }

    #[must_use]
    pub(super) fn plain(self, text: &str) -> Self {
        self.add(Style::Plain, text)
    }

    #[must_use]
    pub(super) fn dim(self, text: &str) -> Self {
        self.add(Style::Dim, text)
    }

    #[must_use]
    pub(super) fn at_right(mut self, text: String) -> Self {
        self.right = text;
        self
    }

    /// The line in this width; what is too long ends in `…`.
    pub(super) fn show(&self, width: usize, output: Output) -> String {
        let right = measure_text_width(&self.right);
        let room = if right == 0 { width } else { width.saturating_sub(right + 2) };
        let (mut shown, mut taken) = (String::new(), 0);
        for (style, text) in &self.pieces {
            let is_cut = measure_text_width(text) > room - taken;
            let text = truncate_str(text, room - taken, "…");
            taken += measure_text_width(&text);
            shown.push_str(&output.paint(*style, &text));
            if is_cut || taken >= room {
                break;
            }
        }
        if right > 0 {
            shown.push_str(&" ".repeat(width.saturating_sub(taken + right)));
            shown.push_str(&output.paint(Style::Dim, &self.right));
        }
        shown.trim_end().to_owned()
    }
}

/// How long something lasts or is ago: `12 s`, `3 min`, `5 h`, `2 d`.
pub(super) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// `1 run`, `2 runs`.
pub(super) fn count(number: impl TryInto<u64>, thing: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {thing}{ending}", grouped(number))
}

/// `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_passes_the_width_and_keeps_its_right_end() {
        let line = StatusLine::new(Style::Plain, "  ")
            .add(Style::Bold, "秘密の名前がとても長い")
            .plain(" says \u{1b}[31mmuch\nmore")
            .at_right("12 s".to_owned());
        for width in [20, 30, 60] {
            let shown = line.show(width, Output::plain());
            assert!(measure_text_width(&shown) <= width && shown.ends_with("12 s"), "{shown}");
            assert!(!shown.contains('\u{1b}') && !shown.contains('\n'), "{shown}");
        }
        assert_eq!(line.show(20, Output::plain()), "  秘密の名前…   12 s");
    }

    #[test]
    fn times_and_numbers_are_short() {
        let of = |seconds| age(Duration::from_secs(seconds));
        assert_eq!([of(5), of(61), of(7_300), of(200_000)], ["5 s", "1 min", "2 h", "2 d"]);
        assert_eq!([grouped(12), grouped(1_234), grouped(1_234_567)], ["12", "1,234", "1,234,567"]);
        assert_eq!([count(1_u64, "run"), count(2_000_usize, "run")], ["1 run", "2,000 runs"]);
    }
}
