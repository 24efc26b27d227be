//! The shape of a JSON document: names and types without values, so that ids and times do not matter.

use serde_json::{Map, Value};

/// Objects keep their names; an array is the shape of all its items together; any other value is the
/// name of its type.
pub(super) fn json_shape(value: &Value) -> Value {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "boolean".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(items) => {
            let merged = items.iter().map(json_shape).reduce(|one, other| merge(&one, &other));
            Value::Array(merged.into_iter().collect())
        }
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), json_shape(value))).collect()
        }
    }
}

/// A shape that covers both: `string|null` where they differ.
pub(super) fn merge(one: &Value, other: &Value) -> Value {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => merge_fields(one, other),
        (Value::Array(one), Value::Array(other)) => {
            let merged = one.iter().chain(other).cloned();
            Value::Array(merged.reduce(|one, other| merge(&one, &other)).into_iter().collect())
        }
        (Value::String(one), Value::String(other)) => {
            let mut names: Vec<&str> = one.split('|').chain(other.split('|')).collect();
            names.sort_unstable();
            names.dedup();
            names.join("|").into()
        }
        // Null and something that has parts.
        (Value::String(_), parts) | (parts, _) => parts.clone(),
    }
}

fn merge_fields(one: &Map<String, Value>, other: &Map<String, Value>) -> Value {
    let mut merged = one.clone();
    for (name, shape) in other {
        let shape = one.get(name).map_or_else(|| shape.clone(), |first| merge(first, shape));
        merged.insert(name.clone(), shape);
    }
    merged.into()
}

pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}
