//! A body whose fields can stand beside the other arguments: an object with known fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::error::ApiDocumentError;
use crate::schema_converter::RefResolver;

/// How deep `allOf` may be nested.
const MAX_DEPTH: usize = 16;
/// Words by which a schema says more than which fields there are.
const CHOICES: [&str; 5] = ["oneOf", "anyOf", "not", "if", "patternProperties"];

#[derive(Default)]
pub(crate) struct BodyFields<'d> {
    pub(crate) properties: BTreeMap<&'d str, &'d Value>,
    pub(crate) required: BTreeSet<&'d str>,
}

/// The fields of a body; None if it is anything but an object with known fields.
pub(crate) fn fields<'d>(
    parts: RefResolver<'d>,
    schema: &'d Value,
    at: &str,
) -> Result<Option<BodyFields<'d>>, ApiDocumentError> {
    let mut fields = BodyFields::default();
    let is_flat = collect_fields(parts, schema, at, 0, &mut fields)?;
    Ok((is_flat && !fields.properties.is_empty()).then_some(fields))
}

fn collect_fields<'d>(
    parts: RefResolver<'d>,
    schema: &'d Value,
    at: &str,
    depth: usize,
    fields: &mut BodyFields<'d>,
) -> Result<bool, ApiDocumentError> {
    let schema = parts.resolve(schema, at)?;
    let kind = schema.get("type");
    let is_object = kind.is_none_or(|kind| kind == "object");
    let is_open = schema.get("additionalProperties").is_some_and(Value::is_object);
    let has_choice = CHOICES.iter().any(|word| schema.get(word).is_some());
    let may_be_null = schema.get("nullable") == Some(&Value::Bool(true));
    if !is_object || is_open || has_choice || may_be_null || depth > MAX_DEPTH {
        return Ok(false);
    }
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        if !collect_fields(parts, part, at, depth + 1, fields)? {
            return Ok(false);
        }
    }
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let resolved = parts.resolve(field, &format!("{at}/properties/{name}"))?;
        let is_read_only = |it: &Value| it.get("readOnly") == Some(&Value::Bool(true));
        if !is_read_only(field) && !is_read_only(resolved) {
            fields.properties.insert(name, field);
        }
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    fields.required.extend(required.filter_map(Value::as_str));
    Ok(true)
}
