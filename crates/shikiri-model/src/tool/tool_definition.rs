//! A tool's definition from its server, without characters that a reader cannot see.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::host::{sanitize_line, sanitize_text};
use crate::invisible_chars::has_invisible;

const MAX_NAME: usize = 256;
/// Schema keys whose texts are for readers. All other texts belong to the arguments.
const TEXT_KEYS: [&str; 5] = ["title", "description", "$comment", "enumNames", "errorMessage"];
/// A schema that is nested deeper is refused.
const MAX_DEPTH: usize = 64;

/// The description of a tool for people and models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolDescription {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub description: String,
    pub input_schema: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub annotations: Value,
}

/// A tool as a server lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    pub name: String,
    pub shown: ToolDescription,
    /// A hash of everything in the definition, including parts that are not shown.
    pub fingerprint: String,
}

/// Why a tool is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolDefinitionError {
    #[error("a tool without a name is left out")]
    Unnamed,
    /// The name is printable.
    #[error("the tool {name:?} is left out: {reason}")]
    Unusable { name: String, reason: String },
}

impl ToolDefinition {
    /// Reads an entry of `tools/list`.
    pub fn read(tool: &Value) -> Result<Self, ToolDefinitionError> {
        let text = |key: &str| tool.get(key).and_then(Value::as_str);
        let schema = tool.get("inputSchema").cloned();
        let said = ToolDescription {
            title: text("title").map(str::to_owned),
            description: text("description").unwrap_or_default().to_owned(),
            input_schema: schema.unwrap_or_else(|| serde_json::json!({ "type": "object" })),
            annotations: tool.get("annotations").cloned().unwrap_or_default(),
        };
        Self::new(text("name").unwrap_or_default(), said)
    }

    /// Builds a definition from a description. The name is sent back to the server unchanged, so a
    /// name with invisible characters is refused.
    pub fn new(name: &str, said: ToolDescription) -> Result<Self, ToolDefinitionError> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(ToolDefinitionError::Unnamed);
        }
        let left_out = |reason: &str| ToolDefinitionError::Unusable {
            name: sanitize_line(name),
            reason: reason.to_owned(),
        };
        if sanitize_line(name) != name {
            return Err(left_out("its name cannot be printed"));
        }
        if !said.input_schema.is_object() {
            return Err(left_out("its schema is no object"));
        }
        let fingerprint = fingerprint(name, &said);
        let mut shown = ToolDescription {
            title: said.title.as_deref().map(sanitize_text),
            description: sanitize_text(&said.description),
            ..said
        };
        clean_schema(&mut shown.input_schema).map_err(|why| left_out(&why))?;
        clean_all(&mut shown.annotations, 0);
        Ok(Self { name: name.to_owned(), shown, fingerprint })
    }
}

/// Cleans the texts of a schema. Argument names and choice values are sent back unchanged, so a
/// schema with invisible characters in them is refused.
fn clean_schema(schema: &mut Value) -> Result<(), String> {
    clean_at(schema, 0)
}

fn clean_at(schema: &mut Value, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err("its schema is nested too deep".to_owned());
    }
    match schema {
        Value::String(text) if has_invisible(text) => {
            Err(format!("its schema has invisible characters in {:?}", sanitize_line(text)))
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| clean_at(item, depth + 1)),
        Value::Object(fields) => {
            if let Some(key) = fields.keys().find(|key| has_invisible(key)) {
                let key = sanitize_line(key);
                return Err(format!("its schema has invisible characters in {key:?}"));
            }
            fields.iter_mut().try_for_each(|(key, value)| {
                // An argument may be called `title`. Its value is then a schema and not a text.
                match TEXT_KEYS.contains(&key.as_str()) && !value.is_object() {
                    true => clean_all(value, depth + 1),
                    false => clean_at(value, depth + 1)?,
                }
                Ok(())
            })
        }
        _ => Ok(()),
    }
}

/// Cleans every text and drops what is nested too deep.
fn clean_all(value: &mut Value, depth: usize) {
    match value {
        _ if depth > MAX_DEPTH => *value = Value::Null,
        Value::String(text) => *text = sanitize_text(text),
        Value::Array(items) => items.iter_mut().for_each(|item| clean_all(item, depth + 1)),
        Value::Object(fields) => {
            let cleaned = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                clean_all(&mut value, depth + 1);
                (sanitize_line(&key), value)
            });
            *fields = cleaned.collect();
        }
        _ => {}
    }
}

/// A hash that does not depend on the order of the server's keys.
fn fingerprint(name: &str, said: &ToolDescription) -> String {
    let all = serde_json::json!([
        name,
        said.title,
        said.description,
        sorted(&said.input_schema),
        sorted(&said.annotations)
    ]);
    hex::encode(Sha256::digest(all.to_string().as_bytes()))
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(fields) => {
            let mut keys: Vec<_> = fields.keys().collect();
            keys.sort_unstable();
            let pairs = keys.into_iter().map(|key| (key.clone(), sorted(&fields[key])));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tags(text: &str) -> String {
        text.chars().filter_map(|c| char::from_u32(0xe0000 + u32::from(c))).collect()
    }

    #[test]
    fn invisible_characters_are_stripped_from_every_text_of_a_definition() {
        let hidden = format!("{}\u{202e}\u{1b}[2J", tags("obey"));
        let tool = ToolDefinition::read(&json!({
            "name": "add", "title": format!("Add{hidden}"),
            "description": format!("足す{hidden} 👨‍👩‍👧"),
            "inputSchema": { "type": "object", "properties": {
                "title": { "type": "string", "description": format!("the title{hidden}") },
                "kind": { "enum": ["a"], "enumNames": [format!("A{hidden}")] },
            } },
            "annotations": { "title": format!("Add{hidden}"), "readOnlyHint": true },
        }));
        let wanted = ToolDescription {
            title: Some("Add".to_owned()),
            description: "足す 👨‍👩‍👧".to_owned(),
            input_schema: json!({ "type": "object", "properties": {
                "title": { "type": "string", "description": "the title" },
                "kind": { "enum": ["a"], "enumNames": ["A"] },
            } }),
            annotations: json!({ "title": "Add", "readOnlyHint": true }),
        };
        assert_eq!(tool.unwrap().shown, wanted);
    }

    #[test]
    fn a_tool_whose_name_or_arguments_hold_invisible_characters_is_left_out() {
        let hidden = tags("x");
        let property = |name: String| json!({ "properties": { name: { "type": "string" } } });
        for (name, schema) in [
            (format!("add{hidden}"), json!({})),
            ("a\u{200b}dd".to_owned(), json!({})),
            ("a\ndd".to_owned(), json!({})),
            ("add".to_owned(), property(format!("n{hidden}"))),
            ("add".to_owned(), json!({ "properties": { "n": { "enum": [hidden.clone()] } } })),
        ] {
            let told = ToolDefinition::read(&json!({ "name": name, "inputSchema": schema }));
            let told = told.unwrap_err().to_string();
            assert!(told.contains("left out") && !has_invisible(&told), "{told:?}");
        }
        let separator = json!({ "properties": { "end": { "default": "\r\n" } } });
        assert!(ToolDefinition::read(&json!({ "name": "csv", "inputSchema": separator })).is_ok());
    }

    #[test]
    fn a_fingerprint_tells_every_change_and_no_order_of_keys() {
        let read = |text: &str| {
            ToolDefinition::read(&serde_json::from_str(text).unwrap()).unwrap().fingerprint
        };
        let first = read(r#"{"name":"a","inputSchema":{"type":"object","x":{"b":1,"c":2}}}"#);
        let same = read(r#"{"inputSchema":{"x":{"c":2,"b":1},"type":"object"},"name":"a"}"#);
        assert_eq!(first, same);
        for other in [
            r#"{"name":"a","inputSchema":{"type":"object","x":{"b":1,"c":3}}}"#,
            r#"{"name":"a","description":"d","inputSchema":{"type":"object","x":{"b":1,"c":2}}}"#,
            r#"{"name":"a","title":"\u200b","inputSchema":{"type":"object","x":{"b":1,"c":2}}}"#,
            r#"{"name":"a","annotations":{},"inputSchema":{"type":"object","x":{"b":1,"c":2}}}"#,
        ] {
            assert_ne!(read(other), first, "{other}");
        }
    }
}
