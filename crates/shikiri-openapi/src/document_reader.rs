//! A text as a document: JSON, or else YAML. Bounded before anything is made of it.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::ApiDocumentError;
use crate::yaml_loader;

/// Of the text.
const MAX_TEXT: usize = 10 * 1024 * 1024;
/// Values in the document, with what aliases repeat.
pub(crate) const MAX_NODES: usize = 500_000;
/// How deep they may be nested; serde_json stops a little later.
pub(crate) const MAX_DEPTH: usize = 100;

pub(crate) fn read(text: &str) -> Result<Value, ApiDocumentError> {
    if text.len() > MAX_TEXT {
        let reason = "the document has more than 10 MiB".to_owned();
        return Err(ApiDocumentError::Unreadable { line: 1, reason });
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // YAML may begin with a brace as well, but hardly with quotes after it.
    let inside = text.trim_start().strip_prefix('{').map(str::trim_start);
    match inside {
        Some(inside) if inside.starts_with(['"', '}']) => json(text),
        _ => yaml_loader::read(text),
    }
}

fn json(text: &str) -> Result<Value, ApiDocumentError> {
    let left = Cell::new(MAX_NODES);
    let mut reader = serde_json::Deserializer::from_str(text);
    let seed = BoundedValueSeed { left: &left, depth: 0 };
    let read = seed.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    read.map_err(|error| {
        let full = error.to_string();
        let reason = full.rsplit_once(" at line ").map_or(full.as_str(), |(reason, _)| reason);
        ApiDocumentError::Unreadable { line: error.line().max(1), reason: reason.to_owned() }
    })
}

pub(crate) const TOO_MANY: &str = "the document has more than 500,000 values";
pub(crate) const TOO_DEEP: &str = "the document is nested deeper than 100 levels";

/// Reads a value, and counts what it is made of.
#[derive(Clone, Copy)]
struct BoundedValueSeed<'a> {
    left: &'a Cell<usize>,
    depth: usize,
}

impl BoundedValueSeed<'_> {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(TOO_DEEP));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        let Some(left) = self.left.get().checked_sub(1) else {
            return Err(de::Error::custom(TOO_MANY));
        };
        self.left.set(left);
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inside = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inside)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let inside = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            map.insert(key, fields.next_value_seed(inside)?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn json_is_read_and_what_is_wrong_has_a_line() {
        assert_eq!(read("\u{feff} {\"a\": [1, \"値\"]}").unwrap()["a"][1], "値");
        // A JSON document of YAML's kind.
        assert_eq!(read("{a: [1, 値]}").unwrap()["a"][1], "値");
        assert_eq!(fault("{\n \"a\": 1\n \"b\": 2}"), "line 3: expected `,` or `}`");
        assert!(fault("{\"a\": 1").starts_with("line 1: EOF"), "{}", fault("{\"a\": 1"));
    }

    #[test]
    fn depth_and_size_have_bounds() {
        let deep = format!("{{\"a\":\n{}{}}}", "[".repeat(100), "]".repeat(100));
        assert_eq!(fault(&deep), format!("line 2: {TOO_DEEP}"));
        let wide = format!("{{\"a\":\n[{}1]}}", "1,".repeat(MAX_NODES));
        assert_eq!(fault(&wide), format!("line 2: {TOO_MANY}"));
        let long = format!("{{\"a\": \"{}\"}}", "x".repeat(MAX_TEXT));
        assert_eq!(fault(&long), "line 1: the document has more than 10 MiB");
    }
}
