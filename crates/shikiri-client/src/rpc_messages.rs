//! JSON-RPC messages, loosely typed: a server's message is untrusted.

use serde_json::{Map, Value, json};
use shikiri_model::host::sanitize_line;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ServerMessage {
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Notice {
        method: String,
        params: Value,
    },
    /// An answer to our request. Our ids are texts.
    Answer {
        id: String,
        outcome: Result<Value, ServerRpcError>,
    },
}

/// A JSON-RPC error.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerRpcError {
    pub code: i64,
    pub message: String,
    pub data: Value,
}

impl ServerRpcError {
    pub fn shown(&self) -> String {
        format!("{} (code {})", sanitize_line(&self.message), self.code)
    }
}

pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const INTERNAL_ERROR: i64 = -32603;
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

impl ServerMessage {
    /// None if it is not a message.
    pub(crate) fn parse(value: Value) -> Option<Self> {
        let Value::Object(mut fields) = value else { return None };
        let params =
            |fields: &mut Map<String, Value>| fields.remove("params").unwrap_or(Value::Null);
        let id = fields.remove("id").filter(|id| !id.is_null());
        match (fields.remove("method"), id) {
            (Some(Value::String(method)), Some(id)) if id.is_string() || id.is_number() => {
                Some(Self::Request { id, method, params: params(&mut fields) })
            }
            (Some(Value::String(method)), None) => {
                Some(Self::Notice { method, params: params(&mut fields) })
            }
            (None, Some(id)) => {
                let outcome = match (fields.remove("result"), fields.remove("error")) {
                    (Some(result), None) => Ok(result),
                    (None, Some(error)) => Err(ServerRpcError::parse(&error)),
                    _ => return None,
                };
                Some(Self::Answer { id: key(&id)?, outcome })
            }
            _ => None,
        }
    }
}

impl ServerRpcError {
    pub(crate) fn parse(error: &Value) -> Self {
        let message = error.get("message").and_then(Value::as_str).unwrap_or("no message");
        Self {
            code: error.get("code").and_then(Value::as_i64).unwrap_or(0),
            message: message.to_owned(),
            data: error.get("data").cloned().unwrap_or(Value::Null),
        }
    }
}

/// An id as a text.
pub(crate) fn key(id: &Value) -> Option<String> {
    match id {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(crate) fn request(id: &str, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(crate) fn notice(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

pub(crate) fn answer(id: &Value, outcome: Result<Value, (i64, String)>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err((code, message)) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_told_by_what_it_has_and_anything_else_is_none() {
        let parse = |value: Value| ServerMessage::parse(value);
        assert!(matches!(
            parse(json!({ "id": 1, "method": "ping" })),
            Some(ServerMessage::Request { .. })
        ));
        assert!(matches!(parse(json!({ "method": "x" })), Some(ServerMessage::Notice { .. })));
        let answer = parse(json!({ "id": 7, "result": {} }));
        assert_eq!(
            answer,
            Some(ServerMessage::Answer { id: "7".to_owned(), outcome: Ok(json!({})) })
        );
        let Some(ServerMessage::Answer { outcome: Err(error), .. }) =
            parse(json!({ "id": "a", "error": { "code": -1, "message": "\u{1b}[2J駄目" } }))
        else {
            panic!("no error")
        };
        assert_eq!(error.shown(), "駄目 (code -1)");
        for odd in [
            json!([]),
            json!("text"),
            json!({}),
            json!({ "id": null, "result": 1 }),
            json!({ "id": {}, "method": "x" }),
            json!({ "id": 1, "result": 1, "error": {} }),
            json!({ "method": 1 }),
        ] {
            assert_eq!(parse(odd.clone()), None, "{odd}");
        }
    }
}
