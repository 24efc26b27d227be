//! Makes untrusted text safe for a terminal: a server must not move the cursor, set the title,
//! write to the clipboard, or show text that a person cannot see.

use crate::invisible_chars::without_invisible;

/// The most characters of one line of untrusted text.
pub const MAX_LINE: usize = 2_000;

/// The text without control characters and invisible characters. Line breaks and tabs stay.
pub fn sanitize_text(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_escape(&mut rest),
            // CSI and OSC as one character.
            '\u{9b}' => skip_parameters(&mut rest),
            '\u{9d}' | '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => skip_string(&mut rest),
            '\n' | '\t' => clean.push(c),
            '\r' if rest.peek() == Some(&'\n') => {}
            '\r' => clean.push('\n'),
            c if c.is_control() => {}
            c => clean.push(c),
        }
    }
    without_invisible(&clean)
}

/// The text on one line, cut at the limit.
pub fn sanitize_line(text: &str) -> String {
    let text = sanitize_text(text);
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((at, _)) = line.char_indices().nth(MAX_LINE) {
        line.truncate(at);
        line.push('…');
    }
    line
}

type RemainingChars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Skips the sequence after ESC.
fn skip_escape(rest: &mut RemainingChars<'_>) {
    match rest.next() {
        Some('[') => skip_parameters(rest),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(rest),
        // A character set takes one more character.
        Some('(' | ')' | '*' | '+' | '#' | ' ') => {
            rest.next();
        }
        _ => {}
    }
}

/// Skips up to the letter that ends a control sequence.
fn skip_parameters(rest: &mut RemainingChars<'_>) {
    while rest.peek().is_some_and(|c| matches!(c, '\u{20}'..='\u{3f}')) {
        rest.next();
    }
    if rest.peek().is_some_and(|c| matches!(c, '\u{40}'..='\u{7e}')) {
        rest.next();
    }
}

/// Skips up to BEL or ST. A sequence without an end stops at its line, so that it does not swallow
/// the rest.
fn skip_string(rest: &mut RemainingChars<'_>) {
    while let Some(c) = rest.peek().copied() {
        if c == '\n' {
            return;
        }
        rest.next();
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                if rest.peek() == Some(&'\\') {
                    rest.next();
                }
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_steers_a_terminal_is_taken_out_and_the_words_stay() {
        for (given, wanted) in [
            ("plain 日本語 👍", "plain 日本語 👍"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]52;c;aGk=\u{1b}\\after", "after"),
            ("\u{1b}]8;;http://evil\u{7}link\u{1b}]8;;\u{7}", "link"),
            ("\u{9b}2Jgone", "gone"),
            ("\u{9d}0;t\u{9c}x", "x"),
            ("\u{1b}Pq#0\u{1b}\\x", "x"),
            ("\u{1b}cx", "x"),
            ("\u{1b}(0x", "x"),
            ("a\rb", "a\nb"),
            ("a\r\nb", "a\nb"),
            ("a\u{8}\u{7f}b\0", "ab"),
            ("safe\u{202e}gnp.exe", "safegnp.exe"),
            ("hid\u{e0068}\u{e0069}den\u{200b}", "hidden"),
            ("\u{1b}[1m👨‍👩‍👧\u{1b}[0m", "👨‍👩‍👧"),
            ("\u{1b}]0;never ended\nnext", "\nnext"),
            ("\u{1b}[", ""),
            ("\u{1b}", ""),
        ] {
            assert_eq!(sanitize_text(given), wanted, "{given:?}");
        }
    }

    #[test]
    fn a_line_is_one_line_and_no_longer_than_its_bound() {
        assert_eq!(sanitize_line(" a\n\tb\u{1b}[2K "), "a b");
        assert_eq!(sanitize_line(&"あ".repeat(3_000)).chars().count(), MAX_LINE + 1);
    }

    proptest! {
        #[test]
        fn nothing_but_text_comes_through(text in "[\\PC\u{1b}\u{9b}\u{9d}\u{7}\\[\\]0-9;mHJ\r\n]{0,200}") {
            let shown = sanitize_text(&text);
            prop_assert!(shown.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
            prop_assert_eq!(sanitize_text(&shown), shown);
        }
    }
}
