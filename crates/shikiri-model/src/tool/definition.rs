//! What a server says of one of its tools, without what a reader cannot see.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::host::{clean, clean_line};
use crate::invisible::has_invisible;

const MAX_NAME: usize = 256;
/// Keys of a schema whose texts are for readers. All other texts in it belong to the arguments.
const TEXT_KEYS: [&str; 5] = ["title", "description", "$comment", "enumNames", "errorMessage"];
/// A schema that is nested deeper is nobody's.
const MAX_DEPTH: usize = 64;

/// What is shown of a tool, to people and to models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Definition {
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
    pub shown: Definition,
    /// Of all that the server said, with what is not shown.
    pub fingerprint: String,
}

impl ToolDefinition {
    /// The definition in an entry of `tools/list`. The error says why the tool is left out.
    pub fn read(tool: &Value) -> Result<Self, String> {
        let text = |key: &str| tool.get(key).and_then(Value::as_str);
        let schema = tool.get("inputSchema").cloned();
        let said = Definition {
            title: text("title").map(str::to_owned),
            description: text("description").unwrap_or_default().to_owned(),
            input_schema: schema.unwrap_or_else(|| serde_json::json!({ "type": "object" })),
            annotations: tool.get("annotations").cloned().unwrap_or_default(),
        };
        Self::new(text("name").unwrap_or_default(), said)
    }

    /// The definition of a tool that is described in these words. The name is sent back to the
    /// server as it is, so one that holds what cannot be seen is refused.
    pub fn new(name: &str, said: Definition) -> Result<Self, String> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err("a tool without a name is left out".to_owned());
        }
        let left_out = |why: &str| format!("the tool {:?} is left out: {why}", clean_line(name));
        if clean_line(name) != name {
            return Err(left_out("its name cannot be printed"));
        }
        if !said.input_schema.is_object() {
            return Err(left_out("its schema is no object"));
        }
        let fingerprint = fingerprint(name, &said);
        let mut shown = Definition {
            title: said.title.as_deref().map(clean),
            description: clean(&said.description),
            ..said
        };
        clean_schema(&mut shown.input_schema).map_err(|why| left_out(&why))?;
        clean_all(&mut shown.annotations, 0);
        Ok(Self { name: name.to_owned(), shown, fingerprint })
    }
}

/// Cleans the texts of a schema. What has to be sent back as it is (names of arguments, values of a
/// choice) stays, so a schema where invisible characters stand in those is refused.
pub fn clean_schema(schema: &mut Value) -> Result<(), String> {
    clean_at(schema, 0)
}

fn clean_at(schema: &mut Value, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err("its schema is nested too deep".to_owned());
    }
    match schema {
        Value::String(text) if has_invisible(text) => {
            Err(format!("its schema has invisible characters in {:?}", clean_line(text)))
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| clean_at(item, depth + 1)),
        Value::Object(fields) => {
            if let Some(key) = fields.keys().find(|key| has_invisible(key)) {
                let key = clean_line(key);
                return Err(format!("its schema has invisible characters in {key:?}"));
            }
            fields.iter_mut().try_for_each(|(key, value)| {
                // An argument may be called `title`: then a schema stands there, and no text.
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

/// Cleans every text, and leaves out what is nested too deep.
fn clean_all(value: &mut Value, depth: usize) {
    match value {
        _ if depth > MAX_DEPTH => *value = Value::Null,
        Value::String(text) => *text = clean(text),
        Value::Array(items) => items.iter_mut().for_each(|item| clean_all(item, depth + 1)),
        Value::Object(fields) => {
            let cleaned = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                clean_all(&mut value, depth + 1);
                (clean_line(&key), value)
            });
            *fields = cleaned.collect();
        }
        _ => {}
    }
}

/// The same for the same words, in whatever order a server writes the keys.
fn fingerprint(name: &str, said: &Definition) -> String {
    let all = serde_json::json!([
        name,
        said.title,
        said.description,
        sorted(&said.input_schema),
        sorted(&said.annotations)
    ]);
    let digest = Sha256::digest(all.to_string().as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
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
        let wanted = Definition {
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
            let told = told.unwrap_err();
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
