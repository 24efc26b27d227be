//! Edits to JSON text that keep everything else as it was written: indent, line ends, comments.

use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};

use super::jsonc::{Item, Kind, Node};

/// Appends a value to one of the text's objects or arrays.
pub(super) fn append(
    text: &str,
    root: &Node,
    container: &Node,
    key: Option<&str>,
    value: &impl Serialize,
) -> String {
    let layout = Layout::of(text, root);
    let close = container.span.end - 1;
    let Some(last) = container.items().last() else {
        return fill(text, &layout, container, key, value);
    };
    // After the last content, which may be a comment.
    let at = text[..close].trim_end().len();
    let mut piece = if text[last.value.span.end..close].contains('\n') {
        let base = indent_at(text, last.start);
        format!("{}{base}{}", layout.newline, layout.lines(key, value, base))
    } else {
        format!("{}{}", layout.gap, layout.one_line(key, value))
    };
    let mut comma = ",";
    if last.comma.is_some() {
        // The container ends its items with a comma, so this one gets it too.
        piece.push_str(std::mem::take(&mut comma));
    }
    let end = last.value.span.end;
    [&text[..end], comma, &text[end..at], &piece, &text[at..]].concat()
}

/// Puts the first value into an object or an array.
fn fill(
    text: &str,
    layout: &Layout<'_>,
    container: &Node,
    key: Option<&str>,
    value: &impl Serialize,
) -> String {
    let (open, close) = (container.span.start + 1, container.span.end - 1);
    let base = indent_at(text, container.span.start);
    let inside = text[open..close].trim_end();
    let at = open + inside.len();
    if layout.is_one_line {
        return [&text[..at], &layout.one_line(key, value), &text[at..]].concat();
    }
    let inner = format!("{base}{}", layout.indent);
    let lines = layout.lines(key, value, &inner);
    let newline = layout.newline;
    [&text[..at], newline, &inner, &lines, newline, base, &text[close..]].concat()
}

/// Removes one item of a container from the text.
pub(super) fn remove(text: &str, container: &Node, index: usize) -> String {
    let items = container.items();
    let item = &items[index];
    let (mut start, mut end) = (text[..item.start].trim_end().len(), item.value.span.end);
    if let Some(comma) = item.comma {
        end = comma + 1;
    }
    let rest = text[end..].trim_start_matches([' ', '\t']);
    if text[start..item.start].contains('\n') && !rest.starts_with(['\r', '\n']) {
        // A comment may come before it, and what follows would become part of that comment.
        (start, end) = (item.start, text.len() - rest.len());
    }
    let before = match previous(items, index).filter(|_| item.comma.is_none()) {
        Some(comma) => [&text[..comma], &text[comma + 1..start]].concat(),
        None => text[..start].to_owned(),
    };
    let (open, close) = (container.span.start + 1, container.span.end - 1);
    if items.len() == 1 && before[open..].trim().is_empty() && text[end..close].trim().is_empty() {
        return [&text[..open], &text[close..]].concat();
    }
    [&before, &text[end..]].concat()
}

/// The comma before the last item, which is removed with it.
fn previous(items: &[Item], index: usize) -> Option<usize> {
    items[..index].last()?.comma
}

/// How a text is laid out.
struct Layout<'a> {
    newline: &'static str,
    indent: &'a str,
    /// Everything is on one line.
    is_one_line: bool,
    /// The gap between items on one line.
    gap: &'static str,
}

impl<'a> Layout<'a> {
    fn of(text: &'a str, root: &Node) -> Self {
        let first = root.items().first();
        let indent = first.map_or("", |item| indent_at(text, item.start));
        let is_one_line = first.is_some() && !text[root.span.clone()].contains('\n');
        Self {
            newline: if text.contains("\r\n") { "\r\n" } else { "\n" },
            indent: if indent.is_empty() { "  " } else { indent },
            is_one_line,
            gap: if is_one_line && !text.contains("\": ") { "" } else { " " },
        }
    }

    fn one_line(&self, key: Option<&str>, value: &impl Serialize) -> String {
        named(key, self.gap, &serde_json::to_string(value).unwrap_or_default())
    }

    /// The value on lines of its own; the first is indented already.
    fn lines(&self, key: Option<&str>, value: &impl Serialize, base: &str) -> String {
        let mut bytes = Vec::new();
        let formatter = PrettyFormatter::with_indent(self.indent.as_bytes());
        // Writing text and lists of text to memory cannot fail.
        let _ = value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter));
        let pretty = String::from_utf8_lossy(&bytes);
        named(key, " ", &pretty.replace('\n', &format!("{}{base}", self.newline)))
    }
}

fn named(key: Option<&str>, gap: &str, value: &str) -> String {
    match key {
        Some(key) => format!("{}:{gap}{value}", serde_json::Value::from(key)),
        None => value.to_owned(),
    }
}

/// The white space at the start of the line.
fn indent_at(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = &text[start..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

impl Node {
    /// Whether values can be added by key.
    pub(super) fn is_object(&self) -> bool {
        matches!(self.kind, Kind::Object(_))
    }

    pub(super) fn is_array(&self) -> bool {
        matches!(self.kind, Kind::Array(_))
    }
}

#[cfg(test)]
mod tests {
    use super::super::jsonc::parse;
    use super::*;

    fn appended(text: &str, value: i32) -> String {
        let root = parse(text).unwrap();
        append(text, &root, &root, root.is_object().then_some("new"), &value)
    }

    /// Adding and removing a value restores the text.
    #[test]
    fn a_text_keeps_its_layout() {
        let cases = [
            ("{}", "{\n  \"new\": 7\n}"),
            ("{}\n", "{\n  \"new\": 7\n}\n"),
            ("{\"a\":1}", "{\"a\":1,\"new\":7}"),
            ("{ \"a\": 1 }\n", "{ \"a\": 1, \"new\": 7 }\n"),
            (
                "{\n\t\"a\": {\n\t\t\"b\": 1\n\t}\n}",
                "{\n\t\"a\": {\n\t\t\"b\": 1\n\t},\n\t\"new\": 7\n}",
            ),
            ("{\r\n    \"a\": 1\r\n}\r\n", "{\r\n    \"a\": 1,\r\n    \"new\": 7\r\n}\r\n"),
            ("{\n  \"a\": 1, // one\n}", "{\n  \"a\": 1, // one\n  \"new\": 7,\n}"),
            ("{\n  \"a\": 1 // one\n}", "{\n  \"a\": 1, // one\n  \"new\": 7\n}"),
            ("[1, 2]", "[1, 2, 7]"),
            ("[\n  1,\n  2\n  /* end */\n]", "[\n  1,\n  2,\n  /* end */\n  7\n]"),
        ];
        for (text, expected) in cases {
            let text = text.replace("[1, 2]", "[\"x\", {\"y\": 1}]");
            let expected = expected.replace("[1, 2, 7]", "[\"x\", {\"y\": 1}, 7]");
            let with = appended(&text, 7);
            assert_eq!(with, expected);
            let root = parse(&with).unwrap();
            assert_eq!(remove(&with, &root, root.items().len() - 1), text);
        }
    }

    #[test]
    fn nothing_becomes_part_of_a_comment() {
        let removed = |text: &str, index| {
            let without = remove(text, &parse(text).unwrap(), index);
            parse(&without).unwrap();
            without
        };
        assert_eq!(removed("[ // c\n 1, 2]", 0), "[ // c\n 2]");
        assert_eq!(removed("[1, // c\n 2]", 1), "[1 // c\n ]");
        assert_eq!(removed("[\n  // c\n  1,\n  2\n]", 0), "[\n  // c\n  2\n]");
        assert_eq!(removed("[\n  1 // c\n]", 0), "[\n  // c\n]");
        let text = "{ // only this\n}";
        assert_eq!(appended(text, 7), "{ // only this\n  \"new\": 7\n}");
    }
}
