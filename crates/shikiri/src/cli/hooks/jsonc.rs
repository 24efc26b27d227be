//! JSON as people write settings: with comments and trailing commas. Each value keeps its position
//! in the text, so that a part can be edited while the rest stays as written.

use std::ops::Range;

use serde_json::Value;

/// Deeper nesting is not written by hand.
const DEEPEST: usize = 64;

/// What is wrong with a text, and on which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) what: String,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Object(Vec<Item>),
    Array(Vec<Item>),
    Plain(Value),
}

/// A member of an object, or an element of an array.
#[derive(Debug)]
pub(super) struct Item {
    /// Its start: the key's, if it has one.
    pub(super) start: usize,
    pub(super) key: Option<String>,
    pub(super) value: Node,
    /// The position of the comma after it.
    pub(super) comma: Option<usize>,
}

impl Node {
    pub(super) fn items(&self) -> &[Item] {
        match &self.kind {
            Kind::Object(items) | Kind::Array(items) => items,
            Kind::Plain(_) => &[],
        }
    }

    /// The index of a member in its object.
    pub(super) fn position(&self, key: &str) -> Option<usize> {
        self.items().iter().position(|item| item.key.as_deref() == Some(key))
    }

    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.position(key).map(|at| &self.items()[at].value)
    }

    /// The value without positions and comments.
    pub(super) fn to_value(&self) -> Value {
        let member = |item: &Item| Some((item.key.clone()?, item.value.to_value()));
        match &self.kind {
            Kind::Object(items) => Value::Object(items.iter().filter_map(member).collect()),
            Kind::Array(items) => items.iter().map(|item| item.value.to_value()).collect(),
            Kind::Plain(value) => value.clone(),
        }
    }
}

/// The line of a position, counted from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

pub(super) fn parse(text: &str) -> Result<Node, Fault> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    // Some editors start a file with a byte order mark.
    reader.take('\u{feff}');
    reader.skip()?;
    let node = reader.value()?;
    reader.skip()?;
    if reader.at < text.len() {
        return Err(reader.fault("nothing may follow the end"));
    }
    Ok(node)
}

/// The text without white space, to compare texts apart from their layout. Comments count.
pub(super) fn without_layout(text: &str) -> Result<String, Fault> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    let mut bare = String::new();
    while let Some(c) = reader.peek() {
        let start = reader.at;
        match c {
            '"' => drop(reader.string()?),
            '/' => drop(reader.comment()?),
            _ => reader.at += c.len_utf8(),
        }
        bare.push_str(text[start..reader.at].trim());
    }
    Ok(bare)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn fault(&self, what: &str) -> Fault {
        Fault { line: line_of(self.text, self.at), what: what.to_owned() }
    }

    /// Skips white space and comments.
    fn skip(&mut self) -> Result<(), Fault> {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            if !self.rest().starts_with('/') {
                return Ok(());
            }
            self.comment()?;
        }
    }

    fn comment(&mut self) -> Result<(), Fault> {
        let rest = self.rest();
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").ok_or_else(|| self.fault("a comment has no end"))? + 2
        } else {
            return Err(self.fault("a / begins no comment"));
        };
        self.at += length;
        Ok(())
    }

    fn value(&mut self) -> Result<Node, Fault> {
        let start = self.at;
        let kind = match self.peek() {
            Some('{') => Kind::Object(self.items('}', true)?),
            Some('[') => Kind::Array(self.items(']', false)?),
            Some('"') => Kind::Plain(Value::String(self.string()?)),
            Some(_) => Kind::Plain(self.word()?),
            None => return Err(self.fault("the text ends where a value should be")),
        };
        Ok(Node { span: start..self.at, kind })
    }

    fn items(&mut self, close: char, keys: bool) -> Result<Vec<Item>, Fault> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.fault("it is nested too deeply"));
        }
        let mut items: Vec<Item> = Vec::new();
        loop {
            self.skip()?;
            if self.take(close) {
                self.depth -= 1;
                return Ok(items);
            }
            if items.last().is_some_and(|item| item.comma.is_none()) {
                return Err(self.fault(&format!("a comma or {close} is missing")));
            }
            let start = self.at;
            let key = if keys { Some(self.key()?) } else { None };
            if key.is_some() && items.iter().any(|item| item.key == key) {
                let key = key.unwrap_or_default();
                return Err(self.fault(&format!("{key:?} stands twice in one object")));
            }
            let value = self.value()?;
            self.skip()?;
            let at = self.at;
            let comma = self.take(',').then_some(at);
            items.push(Item { start, key, value, comma });
        }
    }

    fn key(&mut self) -> Result<String, Fault> {
        if self.peek() != Some('"') {
            return Err(self.fault("a name in quotes is missing"));
        }
        let key = self.string()?;
        self.skip()?;
        if !self.take(':') {
            return Err(self.fault(&format!("a colon is missing after {key:?}")));
        }
        self.skip()?;
        Ok(key)
    }

    fn string(&mut self) -> Result<String, Fault> {
        let mut escaped = false;
        let end = self.rest().char_indices().skip(1).find(|(_, c)| {
            let ends = (*c == '"' && !escaped) || *c == '\n';
            escaped = *c == '\\' && !escaped;
            ends
        });
        let Some((length, '"')) = end else { return Err(self.fault("a string has no end")) };
        let read = serde_json::from_str(&self.rest()[..=length]);
        let text = read.map_err(|_| self.fault("a string is not well written"))?;
        self.at += length + 1;
        Ok(text)
    }

    /// A number, true, false or null.
    fn word(&mut self) -> Result<Value, Fault> {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let read = serde_json::from_str(&rest[..length]);
        let value = read.map_err(|_| self.fault("here is no value"))?;
        self.at += length;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comments_and_commas_too_many_are_read_over() {
        let text = "\u{feff}// first\n{ /* a */ \"a\": [1, -2.5e3, null,], // b\n \"b\\\"/\": \"//\",\n}\n";
        let node = parse(text).unwrap();
        assert_eq!(node.to_value(), json!({ "a": [1, -2.5e3, null], "b\"/": "//" }));
        assert_eq!(&text[node.items()[1].start..node.items()[1].value.span.end], r#""b\"/": "//""#);
        assert_eq!(
            without_layout(text).unwrap(),
            "\u{feff}// first{/* a */\"a\":[1,-2.5e3,null,],// b\"b\\\"/\":\"//\",}"
        );
    }

    #[test]
    fn what_is_broken_is_told_with_its_line() {
        let fault_text =
            |text: &str| parse(text).map_err(|f| format!("{}: {}", f.line, f.what)).unwrap_err();
        let cases = [
            ("", "1: the text ends where a value should be"),
            ("{\n  \"a\": 1\n  \"b\": 2\n}", "3: a comma or } is missing"),
            ("{\n\n\"a\" 1}", "3: a colon is missing after \"a\""),
            ("{a: 1}", "1: a name in quotes is missing"),
            ("[1, tru]", "1: here is no value"),
            ("[\"x\n\"]", "1: a string has no end"),
            ("[\"\\q\"]", "1: a string is not well written"),
            ("{\"a\": 1, \"a\": 2}", "1: \"a\" stands twice in one object"),
            ("/* x\n{}", "1: a comment has no end"),
            ("{} x", "1: nothing may follow the end"),
            ("[,]", "1: here is no value"),
        ];
        for (text, expected) in cases {
            assert_eq!(fault_text(text), expected, "{text}");
        }
        assert!(fault_text(&"[".repeat(100_000)).contains("nested too deeply"));
    }
}
