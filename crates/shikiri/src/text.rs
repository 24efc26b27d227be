//! Makes text from models and users safe to print: terminals obey control characters, and people
//! cannot see invisible ones.

use std::fmt::Write as _;

use shikiri_model::invisible_chars::classify_chars;

/// Each character, and whether it is a control character or an invisible one.
fn judged(text: &str) -> impl Iterator<Item = (char, bool)> {
    classify_chars(text).map(|(c, is_invisible)| (c, is_invisible || c.is_control()))
}

/// One line, with control characters made visible instead of obeyed.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        for (c, is_unsafe) in judged(word) {
            if is_unsafe {
                line.extend(c.escape_unicode());
            } else {
                line.push(c);
            }
        }
    }
    line
}

/// Text of several lines, with control characters made visible instead of obeyed.
pub fn safe_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for (c, is_unsafe) in judged(text) {
        if is_unsafe && !matches!(c, '\n' | '\t') {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// One line of at most `width` characters.
pub fn short(text: &str, width: usize) -> String {
    let line = one_line(text);
    if line.chars().count() <= width {
        return line;
    }
    let kept: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// The start and the end of a line that is too long.
pub fn cut_middle(line: &str, width: usize) -> String {
    let count = line.chars().count();
    if count <= width {
        return line.to_owned();
    }
    let half = width.saturating_sub(3) / 2;
    let start = line.chars().take(half);
    let end = line.chars().skip(count - half);
    start.chain(" … ".chars()).chain(end).collect()
}

/// JSON text with everything escaped that a terminal would obey. JSON's own line breaks stay.
pub fn safe_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for (c, is_unsafe) in judged(json) {
        if is_unsafe && c != '\n' {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                // Writing to a String cannot fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(
            one_line("a\u{1b}[31m\r\nb\u{9b}2J \u{202e}c"),
            "a\\u{1b}[31m b\\u{9b}2J \\u{202e}c"
        );
        assert_eq!(one_line("日本 語 👨‍👩‍👧"), "日本 語 👨‍👩‍👧");
        assert_eq!(one_line("a\u{e0041}\u{200b}b"), "a\\u{e0041}\\u{200b}b");
    }

    #[test]
    fn lines_and_tabs_of_a_text_stay() {
        assert_eq!(safe_text("a\tb\n\u{1b}[2J\rc"), "a\tb\n\\u{1b}[2J\\u{d}c");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "text": "\u{9b}2J\u{7f}\u{1b}\n\u{202e}\u{e0041}👨‍👩‍👧" });
        let safe = safe_json(&value.to_string());
        assert!(judged(&safe).all(|(_, is_unsafe)| !is_unsafe) && safe.contains("👨‍👩‍👧"), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }

    #[test]
    fn long_lines_are_cut() {
        assert_eq!(short("abcdef", 4), "abc…");
        assert_eq!(short("abcd", 4), "abcd");
    }
}
