//! JSON whose objects have each name once. Parsers disagree about which of two values counts, so
//! one program could act on another value than the one that was checked.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value in which no object names anything twice, read in one pass.
pub(crate) struct UniqueJson(pub(crate) Value);

impl<'de> Deserialize<'de> for UniqueJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

/// Characters of a name that are repeated to its sender.
const MAX_SHOWN: usize = 100;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(UniqueJson(item)) = items.next_element()? {
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            if read.contains_key(&name) {
                let shown: String = name.chars().take(MAX_SHOWN).collect();
                return Err(A::Error::custom(format_args!("{shown:?} is named twice")));
            }
            let UniqueJson(value) = entries.next_value()?;
            read.insert(name, value);
        }
        Ok(Value::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Value, serde_json::Error> {
        serde_json::from_str::<UniqueJson>(text).map(|read| read.0)
    }

    #[test]
    fn what_has_each_name_once_is_read_as_it_is() {
        for text in [
            "null",
            "true",
            "-1",
            "18446744073709551615",
            "1.5",
            "1e400",
            "\"\\ud83d\\ude00\"",
            r#"{"a":[{"a":{"a":1}},{"A":2}],"A":3}"#,
            "[",
            r#"{"a":1"#,
        ] {
            let plain = serde_json::from_str::<Value>(text);
            assert_eq!(read(text).ok(), plain.ok(), "{text}");
        }
    }

    #[test]
    fn a_name_that_stands_twice_is_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"x":{"b":[],"b":{}}}]"#, r#"{"a":1,"\u0061":2}"#] {
            let refused = read(text).unwrap_err();
            assert!(refused.to_string().contains("twice"), "{refused}");
            assert!(refused.is_data(), "{refused}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(&deep).unwrap_err().to_string().contains("recursion"));
    }
}
