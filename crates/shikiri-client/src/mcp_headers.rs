//! The newer era's headers of a request, for gateways that route it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::transport::http::RequestHeaders;

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// `Mcp-Method`, `Mcp-Name` and, for a tool that marked some of its arguments, `Mcp-Param-…`.
pub(crate) fn request_headers(
    method: &str,
    params: &Value,
    schema: Option<&Value>,
) -> RequestHeaders {
    let mut extra = vec![("Mcp-Method".to_owned(), method.to_owned())];
    let named_by = match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    };
    let name = named_by.and_then(|key| params.get(key)).and_then(Value::as_str);
    if let Some(name) = name {
        extra.push(("Mcp-Name".to_owned(), safe(name)));
    }
    if let Some(schema) = schema {
        let arguments = params.get("arguments").unwrap_or(&Value::Null);
        for (suffix, value) in marked(schema, arguments) {
            extra.push((format!("Mcp-Param-{suffix}"), safe(&value)));
        }
    }
    extra
}

/// The arguments that a schema marks, at any depth, as texts.
fn marked<'a>(schema: &'a Value, arguments: &Value) -> Vec<(&'a str, String)> {
    let mut found = Vec::new();
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return found;
    };
    for (name, property) in properties {
        let Some(value) = arguments.get(name) else { continue };
        let text = match value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            _ => None,
        };
        if let (Some(suffix), Some(text)) = (property["x-mcp-header"].as_str(), text) {
            found.push((suffix, text));
        }
        found.extend(marked(property, value));
    }
    found
}

/// Why a tool's marks are invalid. Such a tool is not offered.
pub(crate) fn find_invalid_mark(schema: &Value) -> Option<String> {
    let mut seen = Vec::new();
    unfit_in(schema, &mut seen)
}

fn unfit_in(schema: &Value, seen: &mut Vec<String>) -> Option<String> {
    let properties = schema.get("properties").and_then(Value::as_object)?;
    for (name, property) in properties {
        if let Some(mark) = property.get("x-mcp-header") {
            let Some(suffix) = mark.as_str() else {
                return Some(format!("x-mcp-header of {name:?} is no text"));
            };
            if suffix.is_empty() || !suffix.bytes().all(is_token) {
                return Some(format!("x-mcp-header of {name:?} is no name of a header"));
            }
            let is_plain = property["type"]
                .as_str()
                .is_some_and(|kind| matches!(kind, "string" | "integer" | "boolean"));
            if !is_plain {
                return Some(format!("x-mcp-header of {name:?} marks what is no plain value"));
            }
            let lower = suffix.to_ascii_lowercase();
            if seen.contains(&lower) {
                return Some(format!("x-mcp-header {suffix:?} is given twice"));
            }
            seen.push(lower);
        }
        if let Some(problem) = unfit_in(property, seen) {
            return Some(problem);
        }
    }
    None
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Encodes a value so that it can be sent as a header.
fn safe(value: &str) -> String {
    let is_printable = value.bytes().all(|b| (0x20..=0x7e).contains(&b));
    let keeps_its_edges = value.trim() == value;
    let looks_wrapped = value.starts_with(PREFIX) && value.ends_with(SUFFIX);
    if is_printable && keeps_its_edges && !looks_wrapped {
        return value.to_owned();
    }
    format!("{PREFIX}{}{SUFFIX}", STANDARD.encode(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn marked_arguments_become_headers_that_survive() {
        let schema = json!({ "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "deep": { "type": "object", "properties": { "n": { "type": "integer", "x-mcp-header": "N" } } },
            "plain": { "type": "string" },
        } });
        let params = json!({ "name": "探す", "arguments": { "region": " 東 ", "deep": { "n": 5 }, "plain": "x" } });
        let extra = request_headers("tools/call", &params, Some(&schema));
        let shown: Vec<_> = extra.iter().map(|(n, v)| format!("{n}: {v}")).collect();
        assert_eq!(
            shown,
            [
                "Mcp-Method: tools/call",
                "Mcp-Name: =?base64?5o6i44GZ?=",
                "Mcp-Param-N: 5",
                "Mcp-Param-Region: =?base64?IOadsSA=?=",
            ]
        );
        assert_eq!(safe("=?base64?x?="), "=?base64?PT9iYXNlNjQ/eD89?=");
    }

    #[test]
    fn marks_that_cannot_be_followed_are_named() {
        let bad = |property: Value| find_invalid_mark(&json!({ "properties": { "a": property } }));
        assert_eq!(bad(json!({ "type": "string", "x-mcp-header": "A" })), None);
        for property in [
            json!({ "type": "string", "x-mcp-header": "" }),
            json!({ "type": "string", "x-mcp-header": "a b" }),
            json!({ "type": "string", "x-mcp-header": 1 }),
            json!({ "type": "object", "x-mcp-header": "A" }),
            json!({ "type": "number", "x-mcp-header": "A" }),
        ] {
            assert!(bad(property.clone()).is_some(), "{property}");
        }
        let twice = json!({ "properties": {
            "a": { "type": "string", "x-mcp-header": "X" }, "b": { "type": "string", "x-mcp-header": "x" } } });
        assert!(find_invalid_mark(&twice).is_some());
    }
}
