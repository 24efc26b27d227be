//! YAML 1.2 as far as a JSON value can say it: read event by event, so that neither depth nor
//! aliases cost more than the bounds allow.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Number, Value};

use crate::document_reader::{MAX_DEPTH, MAX_NODES, TOO_DEEP, TOO_MANY};
use crate::error::ApiDocumentError;

/// Reads a YAML document. Depth and size are bounded.
pub fn read(text: &str) -> Result<Value, ApiDocumentError> {
    let mut loader = YamlLoader::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        let (event, span) = next.map_err(|error| unreadable(&error))?;
        let line = span.start.line();
        loader.take(event).map_err(|reason| ApiDocumentError::Unreadable { line, reason })?;
    }
    let nothing =
        || ApiDocumentError::Unreadable { line: 1, reason: "there is no document".to_owned() };
    loader.root.ok_or_else(nothing)
}

fn unreadable(error: &ScanError) -> ApiDocumentError {
    let reason = match error.info() {
        "recursion limit exceeded" => TOO_DEEP.to_owned(),
        info => info.to_owned(),
    };
    ApiDocumentError::Unreadable { line: error.marker().line(), reason }
}

#[derive(Default)]
struct YamlLoader {
    stack: Vec<YamlFrame>,
    /// What an alias repeats, and of how many values it is.
    anchors: HashMap<usize, (Value, usize)>,
    nodes: usize,
    root: Option<Value>,
}

/// A list or map that is not at its end yet.
struct YamlFrame {
    anchor: usize,
    /// Values before it.
    before: usize,
    node: YamlNode,
}

enum YamlNode {
    List(Vec<Value>),
    Map { map: Map<String, Value>, key: Option<String> },
}

impl YamlLoader {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                Err("there is a second document".to_owned())
            }
            Event::Scalar(text, style, anchor, tag) => {
                if self.takes_key() {
                    return self.key(text.into_owned(), style);
                }
                self.count(1)?;
                let is_text =
                    style != ScalarStyle::Plain || tag.is_some_and(|tag| names_text(&tag));
                let value = if is_text { text.into_owned().into() } else { plain(&text) };
                self.complete(value, anchor, 1)
            }
            Event::SequenceStart(anchor, _) => self.open(anchor, YamlNode::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                self.open(anchor, YamlNode::Map { map: Map::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => {
                if self.takes_key() {
                    return Err("a key must be text".to_owned());
                }
                // One that is still open would repeat itself.
                let found = self.anchors.get(&anchor).cloned();
                let (value, size) = found.ok_or("an alias stands inside what it repeats")?;
                self.count(size)?;
                if self.stack.len() + depth(&value) > MAX_DEPTH {
                    return Err(TOO_DEEP.to_owned());
                }
                self.complete(value, 0, size)
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, more: usize) -> Result<(), String> {
        self.nodes += more;
        if self.nodes > MAX_NODES { Err(TOO_MANY.to_owned()) } else { Ok(()) }
    }

    fn takes_key(&self) -> bool {
        matches!(self.stack.last(), Some(YamlFrame { node: YamlNode::Map { key: None, .. }, .. }))
    }

    fn key(&mut self, text: String, style: ScalarStyle) -> Result<(), String> {
        let Some(YamlFrame { node: YamlNode::Map { map, key }, .. }) = self.stack.last_mut() else {
            return Ok(());
        };
        if text == "<<" && style == ScalarStyle::Plain {
            return Err("merging with << is not understood: write the fields out".to_owned());
        }
        if map.contains_key(&text) {
            return Err(format!("the key {text:?} is there twice"));
        }
        *key = Some(text);
        Ok(())
    }

    fn open(&mut self, anchor: usize, node: YamlNode) -> Result<(), String> {
        if self.takes_key() {
            return Err("a key must be text".to_owned());
        }
        if self.stack.len() == MAX_DEPTH {
            return Err(TOO_DEEP.to_owned());
        }
        let before = self.nodes;
        self.count(1)?;
        self.stack.push(YamlFrame { anchor, before, node });
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        let value = match frame.node {
            YamlNode::List(items) => Value::Array(items),
            YamlNode::Map { map, .. } => Value::Object(map),
        };
        self.complete(value, frame.anchor, self.nodes - frame.before)
    }

    /// A value is whole: it goes where it belongs.
    fn complete(&mut self, value: Value, anchor: usize, size: usize) -> Result<(), String> {
        if anchor != 0 {
            // The copy is kept, so it counts.
            self.count(size)?;
            self.anchors.insert(anchor, (value.clone(), size));
        }
        match self.stack.last_mut().map(|frame| &mut frame.node) {
            None => self.root = Some(value),
            Some(YamlNode::List(items)) => items.push(value),
            Some(YamlNode::Map { map, key }) => {
                if let Some(key) = key.take() {
                    map.insert(key, value);
                }
            }
        }
        Ok(())
    }
}

fn names_text(tag: &Tag) -> bool {
    tag.is_yaml_core_schema() && tag.suffix == "str"
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// A word without quotes, by the core schema.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    number(text).map_or_else(|| text.into(), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let based = |digits: &str, base| u64::from_str_radix(digits, base).ok().map(Number::from);
    if let Some(digits) = text.strip_prefix("0x") {
        return based(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return based(digits, 8);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if let Ok(whole) = unsigned.parse::<i64>() {
        return Some(whole.into());
    }
    if let Ok(whole) = unsigned.parse::<u64>() {
        return Some(whole.into());
    }
    let is_decimal = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    if !digits.chars().all(is_decimal) || !digits.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    unsigned.parse::<f64>().ok().and_then(Number::from_f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn words_are_what_the_core_schema_says() {
        let text = "a: [~, null, true, False, 12, -3, 0x1f, 0o17, 1.5, -1e3, .5]\n\
                    b: ['12', \"true\", yes, no, 1.2.3, 2024-01-01, v1, '', 値, +, ., 1_000]\n\
                    200: !!str 12\n\
                    c: |\n  line\n  次\n";
        let expected = json!({
            "a": [null, null, true, false, 12, -3, 31, 15, 1.5, -1000.0, 0.5],
            "b": ["12", "true", "yes", "no", "1.2.3", "2024-01-01", "v1", "", "値", "+", ".", "1_000"],
            "200": "12",
            "c": "line\n次\n",
        });
        assert_eq!(read(text).unwrap(), expected);
        assert_eq!(read("a: &x {b: 1}\nc: *x\n").unwrap(), json!({ "a": {"b": 1}, "c": {"b": 1} }));
    }

    #[test]
    fn what_is_wrong_has_a_line() {
        assert_eq!(fault("a: 1\nb: 2\na: 3\n"), "line 3: the key \"a\" is there twice");
        assert!(fault("a: 1\n b: 2\n").starts_with("line 2: "), "{}", fault("a: 1\n b: 2\n"));
        assert!(fault("a: [1, 2\nb: 3\n").starts_with("line "));
        assert!(fault("a: 1\n---\nb: 1\n").ends_with("there is a second document"));
        assert_eq!(fault("a: 1\n? [x]\n: 1\n"), "line 2: a key must be text");
        assert!(fault("b: &b {a: 1}\na:\n  <<: *b\n").starts_with("line 3: merging"));
        assert_eq!(fault(""), "line 1: there is no document");
        assert_eq!(fault("a: &a\n  b: *a\n"), "line 2: an alias stands inside what it repeats");
    }

    #[test]
    fn a_bomb_is_refused_before_it_goes_off() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let before = format!("*a{}, ", level - 1).repeat(10);
            laughs.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        let started = std::time::Instant::now();
        assert!(fault(&laughs).ends_with(TOO_MANY), "{}", fault(&laughs));
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
        let deep: String = (0..200).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
        assert_eq!(fault(&deep), format!("line 101: {TOO_DEEP}"));
        let flow = format!("a: {}", "[".repeat(300));
        assert!(fault(&flow).ends_with(TOO_DEEP), "{}", fault(&flow));
        // Depth by aliases: each level repeats the one before.
        let mut stairs = "a0: &a0 [x]\n".to_owned();
        for level in 1..150 {
            stairs.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert!(fault(&stairs).ends_with(TOO_DEEP), "{}", fault(&stairs));
    }
}
