//! Text of strangers, made fit for a terminal: a server must not move the cursor, set the title or
//! write into the clipboard of the person who calls it, nor say what the person cannot see.

use crate::invisible::without_invisible;

/// What one line of a stranger may take on the screen, in characters.
pub const MAX_LINE: usize = 2_000;

/// Without control characters and invisible ones; line breaks and tabs stay.
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_escape(&mut rest),
            // CSI and OSC in one character.
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

/// The same on one line, cut at its bound.
pub fn clean_line(text: &str) -> String {
    let text = clean(text);
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((at, _)) = line.char_indices().nth(MAX_LINE) {
        line.truncate(at);
        line.push('…');
    }
    line
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// After ESC.
fn skip_escape(rest: &mut Rest<'_>) {
    match rest.next() {
        Some('[') => skip_parameters(rest),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(rest),
        // A character set is named by one more.
        Some('(' | ')' | '*' | '+' | '#' | ' ') => {
            rest.next();
        }
        _ => {}
    }
}

/// Up to the letter that ends a control sequence.
fn skip_parameters(rest: &mut Rest<'_>) {
    while rest.peek().is_some_and(|c| matches!(c, '\u{20}'..='\u{3f}')) {
        rest.next();
    }
    if rest.peek().is_some_and(|c| matches!(c, '\u{40}'..='\u{7e}')) {
        rest.next();
    }
}

/// Up to BEL or ST. One that is never ended ends with its line: it must not swallow the rest.
fn skip_string(rest: &mut Rest<'_>) {
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
            assert_eq!(clean(given), wanted, "{given:?}");
        }
    }

    #[test]
    fn a_line_is_one_line_and_no_longer_than_its_bound() {
        assert_eq!(clean_line(" a\n\tb\u{1b}[2K "), "a b");
        assert_eq!(clean_line(&"あ".repeat(3_000)).chars().count(), MAX_LINE + 1);
    }

    proptest! {
        #[test]
        fn nothing_but_text_comes_through(text in "[\\PC\u{1b}\u{9b}\u{9d}\u{7}\\[\\]0-9;mHJ\r\n]{0,200}") {
            let shown = clean(&text);
            prop_assert!(shown.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
            prop_assert_eq!(clean(&shown), shown);
        }
    }
}
