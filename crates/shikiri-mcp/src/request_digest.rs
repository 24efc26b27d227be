//! A digest that tells one request from another.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::message::RpcRequest;

/// Method, name and arguments, however they are ordered.
pub(crate) fn digest(request: &RpcRequest) -> String {
    let mut text = request.method.clone();
    for name in ["name", "arguments"] {
        text.push('\0');
        if let Some(value) = request.params.get(name) {
            canonical(value, &mut text);
        }
    }
    digest_of(&text)
}

/// Of a value, however its fields are ordered.
pub(crate) fn digest_of_value(value: &Value) -> String {
    let mut text = String::new();
    canonical(value, &mut text);
    digest_of(&text)
}

pub(crate) fn digest_of(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.keys().collect();
            names.sort();
            text.push('{');
            for name in names {
                text.push_str(&Value::String(name.clone()).to_string());
                text.push(':');
                canonical(&fields[name], text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(method: &str, params: Value) -> RpcRequest {
        let params = crate::catalogue::object(params);
        RpcRequest { id: json!(1), method: method.to_owned(), params }
    }

    #[test]
    fn a_request_is_the_same_however_its_arguments_are_ordered_and_no_other() {
        let first =
            request("tools/call", json!({ "name": "a", "arguments": { "x": 1, "y": [2] } }));
        let mut same = first.clone();
        same.id = json!("other");
        same.params.insert("requestState".to_owned(), json!("s"));
        same.params
            .insert("arguments".to_owned(), serde_json::from_str(r#"{"y":[2],"x":1}"#).unwrap());
        assert_eq!(digest(&first), digest(&same));
        for other in [
            request("prompts/get", json!({ "name": "a", "arguments": { "x": 1, "y": [2] } })),
            request("tools/call", json!({ "name": "b", "arguments": { "x": 1, "y": [2] } })),
            request("tools/call", json!({ "name": "a", "arguments": { "x": 1, "y": [3] } })),
            request("tools/call", json!({ "name": "a", "arguments": { "x": "1", "y": [2] } })),
            request("tools/call", json!({ "name": "a" })),
        ] {
            assert_ne!(digest(&first), digest(&other), "{other:?}");
        }
    }
}
