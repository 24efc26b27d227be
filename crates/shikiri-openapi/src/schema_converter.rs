//! Schemas of a document as schemas of a tool: JSON Schema as 3.1 has it, with what they refer to
//! beside them. References are not written out, so a schema that refers to itself has an end and one
//! that doubles at every step does not grow.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value, json};

use crate::error::ApiDocumentError;
use crate::tool_names::{UniqueNames, argument_name};

/// References that may follow one another.
const MAX_HOPS: usize = 16;
/// Values in one tool's schema. What is referred to beyond that is left open.
const MAX_VALUES: usize = 4_000;
const MAX_DESCRIPTION: usize = 1_000;

/// Keywords that hold one schema, several, or several by name.
const ONE: [&str; 8] =
    ["items", "additionalProperties", "not", "propertyNames", "contains", "if", "then", "else"];
const LIST: [&str; 4] = ["oneOf", "anyOf", "allOf", "prefixItems"];
const NAMED: [&str; 2] = ["properties", "patternProperties"];
/// Keywords that are taken as they are.
const PLAIN: [&str; 18] = [
    "type",
    "enum",
    "const",
    "title",
    "default",
    "format",
    "required",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
];

/// A document whose parts refer to one another.
#[derive(Clone, Copy)]
pub(crate) struct RefResolver<'d> {
    pub(crate) root: &'d Value,
    /// 3.0 says some things in its own way.
    pub(crate) is_old: bool,
}

impl<'d> RefResolver<'d> {
    /// What a part is, after all its references.
    pub(crate) fn resolve(
        &self,
        mut part: &'d Value,
        at: &str,
    ) -> Result<&'d Value, ApiDocumentError> {
        for _ in 0..MAX_HOPS {
            match part.get("$ref") {
                Some(Value::String(to)) => part = self.find(to, at)?,
                Some(_) => return Err(ApiDocumentError::wrong(at, "its $ref is no text")),
                None => return Ok(part),
            }
        }
        Err(ApiDocumentError::wrong(at, "its $ref leads through more than 16 others"))
    }

    fn find(&self, to: &str, at: &str) -> Result<&'d Value, ApiDocumentError> {
        let Some(pointer) = to.strip_prefix('#') else {
            let shown: String = to.chars().take(200).collect();
            let reason =
                format!("its $ref {shown:?} leads out of the document: put what it means into it");
            return Err(ApiDocumentError::wrong(at, reason));
        };
        let found = self.root.pointer(pointer);
        let found = found
            .or_else(|| self.root.pointer(&crate::parameter_encoding::percent_decode(pointer)));
        found.ok_or_else(|| {
            let shown: String = to.chars().take(200).collect();
            ApiDocumentError::wrong(at, format!("its $ref {shown:?} leads nowhere"))
        })
    }
}

/// The schemas of one tool in the making.
pub(crate) struct SchemaConverter<'d> {
    parts: RefResolver<'d>,
    names: UniqueNames,
    /// By the reference: its name here.
    known: BTreeMap<String, String>,
    waiting: VecDeque<(String, &'d Value)>,
    left: usize,
}

impl<'d> SchemaConverter<'d> {
    pub(crate) fn new(parts: RefResolver<'d>) -> Self {
        Self {
            parts,
            names: UniqueNames::default(),
            known: BTreeMap::new(),
            waiting: VecDeque::new(),
            left: MAX_VALUES,
        }
    }

    pub(crate) fn convert(
        &mut self,
        schema: &'d Value,
        at: &str,
    ) -> Result<Value, ApiDocumentError> {
        let Value::Object(fields) = schema else {
            return match schema {
                Value::Bool(_) => Ok(schema.clone()),
                _ => Err(ApiDocumentError::wrong(at, "a schema is an object")),
            };
        };
        self.left = self.left.saturating_sub(1);
        let mut converted = Map::new();
        if let Some(to) = fields.get("$ref") {
            let to =
                to.as_str().ok_or_else(|| ApiDocumentError::wrong(at, "its $ref is no text"))?;
            match self.register_reference(to, at)? {
                Some(name) => converted.insert("$ref".to_owned(), json!(format!("#/$defs/{name}"))),
                None => {
                    converted.insert("description".to_owned(), json!("(too large to be shown)"))
                }
            };
            if self.parts.is_old {
                return Ok(Value::Object(converted));
            }
        }
        for (key, value) in fields {
            if let Some(value) = self.keyword(key, value, at)? {
                converted.insert(key.clone(), value);
            }
        }
        drop_read_only(fields, &mut converted, self.parts);
        if self.parts.is_old {
            upgrade_from_3_0(fields, &mut converted);
        }
        Ok(Value::Object(converted))
    }

    fn keyword(
        &mut self,
        key: &str,
        value: &'d Value,
        at: &str,
    ) -> Result<Option<Value>, ApiDocumentError> {
        let mut inside =
            |value: &'d Value, part: &str| self.convert(value, &format!("{at}/{part}"));
        let converted = match (key, value) {
            ("description", Value::String(text)) => json!(short(text, MAX_DESCRIPTION)),
            (_, Value::Array(items)) if LIST.contains(&key) => {
                let items = items.iter().map(|item| inside(item, key));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            (_, Value::Object(named)) if NAMED.contains(&key) => {
                let fields = named.iter().map(|(name, field)| {
                    Ok((name.clone(), inside(field, &format!("{key}/{name}"))?))
                });
                Value::Object(fields.collect::<Result<_, ApiDocumentError>>()?)
            }
            _ if ONE.contains(&key) => inside(value, key)?,
            _ if PLAIN.contains(&key) => {
                self.left = self.left.saturating_sub(size(value));
                value.clone()
            }
            _ => return Ok(None),
        };
        Ok(Some(converted))
    }

    /// The name of what is referred to; None if there is no room for it.
    fn register_reference(
        &mut self,
        to: &str,
        at: &str,
    ) -> Result<Option<String>, ApiDocumentError> {
        if let Some(name) = self.known.get(to) {
            return Ok(Some(name.clone()));
        }
        let found = self.parts.find(to, at)?;
        if self.left == 0 {
            return Ok(None);
        }
        let wish = argument_name(to.rsplit('/').next().unwrap_or(to));
        let name = self.names.claim_unique([wish]);
        self.known.insert(to.to_owned(), name.clone());
        self.waiting.push_back((name.clone(), found));
        Ok(Some(name))
    }

    /// What was referred to, by its name.
    pub(crate) fn definitions(mut self) -> Result<Map<String, Value>, ApiDocumentError> {
        let mut definitions = Map::new();
        while let Some((name, schema)) = self.waiting.pop_front() {
            let at = format!("the schema {name}");
            definitions.insert(name, self.convert(schema, &at)?);
        }
        Ok(definitions)
    }
}

/// Removes read-only fields, which a client must not send.
fn drop_read_only(
    from: &Map<String, Value>,
    converted: &mut Map<String, Value>,
    parts: RefResolver<'_>,
) {
    let Some(Value::Object(fields)) = from.get("properties") else { return };
    let is_read_only = |schema: &Value| {
        let resolved = parts.resolve(schema, "").unwrap_or(schema);
        [schema, resolved].iter().any(|it| it.get("readOnly") == Some(&Value::Bool(true)))
    };
    let gone: Vec<&String> =
        fields.iter().filter(|(_, schema)| is_read_only(schema)).map(|(name, _)| name).collect();
    if let Some(Value::Object(kept)) = converted.get_mut("properties") {
        kept.retain(|name, _| !gone.contains(&name));
    }
    if let Some(Value::Array(required)) = converted.get_mut("required") {
        required.retain(|name| !gone.iter().any(|gone| name == gone.as_str()));
    }
}

/// What 3.0 says in its own way: null as a value, and limits that are not part of the range.
fn upgrade_from_3_0(from: &Map<String, Value>, schema: &mut Map<String, Value>) {
    for (limit, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        match from.get(exclusive) {
            Some(Value::Bool(true)) => {
                schema.remove(exclusive);
                if let Some(value) = schema.remove(limit) {
                    schema.insert(exclusive.to_owned(), value);
                }
            }
            Some(Value::Bool(false)) => {
                schema.remove(exclusive);
            }
            _ => {}
        }
    }
    if from.get("nullable") != Some(&Value::Bool(true)) {
        return;
    }
    if let Some(Value::String(kind)) = schema.get("type") {
        let kinds = json!([kind, "null"]);
        schema.insert("type".to_owned(), kinds);
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(Value::Array(choices)) = schema.get_mut(choice) {
            choices.push(json!({ "type": "null" }));
        }
    }
    // `allOf` with one part is how 3.0 makes a reference nullable.
    if let Some(all) = schema.remove("allOf") {
        schema.insert("anyOf".to_owned(), json!([{ "allOf": all }, { "type": "null" }]));
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

pub(crate) fn short(text: &str, most: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
#[path = "schema_converter_tests.rs"]
mod tests;
