//! Whether arguments fit a tool's schema, as far as that can be told without doubt. The API itself
//! is the judge of the rest.

use serde_json::Value;

use crate::parameter_encoding::text;

const MAX_DEPTH: usize = 32;

/// What is wrong with a value, and where; None if nothing is known to be.
pub(crate) fn find_mismatch(
    schema: &Value,
    root: &Value,
    value: &Value,
    at: &str,
) -> Option<String> {
    find_mismatch_at_depth(schema, root, value, at, 0)
}

fn find_mismatch_at_depth(
    schema: &Value,
    root: &Value,
    value: &Value,
    at: &str,
    depth: usize,
) -> Option<String> {
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some(to) = schema.get("$ref").and_then(Value::as_str) {
        let found = root.pointer(to.strip_prefix('#')?)?;
        return find_mismatch_at_depth(found, root, value, at, depth + 1);
    }
    let kinds = kinds(schema);
    if !kinds.is_empty() && !kinds.iter().any(|kind| is_of(value, kind)) {
        return Some(format!("{at} must be of type {}, not {}", kinds.join(" or "), named(value)));
    }
    if let Some(Value::Array(allowed)) = schema.get("enum")
        && !allowed.iter().any(|one| one == value || is_same_number(one, value))
    {
        let shown: Vec<String> = allowed.iter().take(30).map(Value::to_string).collect();
        return Some(format!("{at} must be one of {}", shown.join(", ")));
    }
    match value {
        Value::Object(fields) => {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let mut missing =
                required.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name));
            if let Some(name) = missing.next() {
                return Some(format!("{at} lacks the field {name:?}"));
            }
            let known = schema.get("properties").and_then(Value::as_object)?;
            known.iter().find_map(|(name, inner)| {
                let field = fields.get(name)?;
                find_mismatch_at_depth(inner, root, field, &format!("{at}.{name}"), depth + 1)
            })
        }
        Value::Array(items) => {
            let inner = schema.get("items")?;
            let mut items = items.iter().enumerate();
            items.find_map(|(number, item)| {
                find_mismatch_at_depth(inner, root, item, &format!("{at}[{number}]"), depth + 1)
            })
        }
        _ => None,
    }
}

/// The same for a value that becomes a part of the URL, where a number may be given as text.
pub(crate) fn find_mismatch_as_text(
    schema: &Value,
    root: &Value,
    value: &Value,
    at: &str,
) -> Option<String> {
    let wrong = find_mismatch(schema, root, value, at)?;
    let read = value.as_str().and_then(|said| serde_json::from_str::<Value>(said).ok());
    let read = read.filter(|read| read.is_number() || read.is_boolean());
    // A number where text is wanted: in a URL there is no difference.
    let as_text = (value.is_number() || value.is_boolean()).then(|| Value::String(text(value)));
    let fits = |value: &Value| find_mismatch(schema, root, value, at).is_none();
    if read.as_ref().is_some_and(fits) || as_text.as_ref().is_some_and(fits) {
        return None;
    }
    Some(wrong)
}

fn kinds(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        "array" => value.is_array(),
        "object" => value.is_object(),
        // What is not known is not judged.
        _ => true,
    }
}

fn is_same_number(one: &Value, other: &Value) -> bool {
    matches!((one.as_f64(), other.as_f64()), (Some(one), Some(other)) if one == other)
}

fn named(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
