//! The result of a task, for other tasks and the synthesis.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most bytes of a result. It is stored again with every change of the plan's run.
const MAX_RESULT: usize = 1024 * 1024;
/// The most names that an error about an unknown name lists.
const MAX_NAMES: usize = 12;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanTaskResult {
    /// All texts of the result, with placeholders for other content.
    pub text: String,
    /// The structured result, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
}

impl PlanTaskResult {
    /// Reads a tool's result.
    pub fn read(result: &Map<String, Value>) -> Result<Self, String> {
        let empty = Vec::new();
        let content = result.get("content").and_then(Value::as_array).unwrap_or(&empty);
        let texts: Vec<_> = content.iter().filter_map(text_of).collect();
        let text = match texts.is_empty() {
            true => content.iter().map(named).collect::<Vec<_>>().join("\n"),
            false => texts.join("\n"),
        };
        let structured = result.get("structuredContent").filter(|value| !value.is_null()).cloned();
        let size = text.len() + structured.as_ref().map_or(0, |value| value.to_string().len());
        if size > MAX_RESULT {
            return Err(format!("its answer has {size} bytes; a plan takes {MAX_RESULT}"));
        }
        Ok(Self { text, structured })
    }

    /// The value at a path of the structured result, or of the text read as JSON. Without a path,
    /// the whole text.
    pub fn value_at_path(&self, path: &[&str]) -> Result<Value, String> {
        if path.is_empty() {
            return Ok(Value::String(self.text.clone()));
        }
        let read = || serde_json::from_str(&self.text).ok();
        let Some(whole) = self.structured.clone().or_else(read) else {
            return Err(format!("its result is plain text, which has no `{}`", path.join(".")));
        };
        let mut at = &whole;
        for (depth, part) in path.iter().enumerate() {
            let next = match at {
                Value::Object(fields) => fields.get(*part),
                Value::Array(items) => part.parse::<usize>().ok().and_then(|n| items.get(n)),
                _ => None,
            };
            at = next.ok_or_else(|| {
                let has = names(at);
                format!("its result has no `{}`{has}", path[..=depth].join("."))
            })?;
        }
        Ok(at.clone())
    }
}

fn text_of(block: &Value) -> Option<&str> {
    let is_text = block.get("type").is_none_or(|kind| kind == "text");
    block.get("text").filter(|_| is_text).and_then(Value::as_str)
}

/// The placeholder of content that is not text.
fn named(block: &Value) -> String {
    let field = |key: &str| block.get(key).and_then(Value::as_str);
    let kind = field("type").unwrap_or("something");
    let what = field("uri").or(field("mimeType")).unwrap_or("no text");
    format!("[{kind}: {what}]")
}

/// The names that exist instead.
fn names(value: &Value) -> String {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let names: Vec<_> = fields.keys().take(MAX_NAMES).map(String::as_str).collect();
            format!("; it has {}", names.join(", "))
        }
        Value::Array(items) => format!("; it is a list of {}", items.len()),
        _ => String::new(),
    }
}
