//! JSON-RPC messages in and out. They are read loosely typed, because what a method wants is
//! its own business, and written as text once, because the same bytes are logged and sent.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::rpc_error::RpcError;
use crate::unique_json::UniqueJson;

/// What a client sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClientMessage {
    Request(RpcRequest),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// An answer to a request of ours: its result, or its error.
    Response {
        id: Value,
        outcome: Result<Value, Value>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RpcRequest {
    /// A string or a whole number.
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Map<String, Value>,
}

/// A message that cannot be taken, with the id to answer it under as far as it can be read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MalformedMessage {
    pub(crate) id: Value,
    pub(crate) fault: RpcError,
}

impl RpcRequest {
    pub(crate) fn meta(&self) -> Option<&Map<String, Value>> {
        self.params.get("_meta").and_then(Value::as_object)
    }

    pub(crate) fn meta_value(&self, key: &str) -> Option<&Value> {
        self.meta().and_then(|meta| meta.get(key))
    }

    pub(crate) fn text(&self, name: &str) -> Result<&str, RpcError> {
        match self.params.get(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(RpcError::params(format!("{name}: must be a string"))),
            None => Err(RpcError::params(format!("{name}: is missing"))),
        }
    }
}

/// Reads one message. Batches belong to a revision that is no longer in use.
pub(crate) fn parse(body: &[u8]) -> Result<ClientMessage, MalformedMessage> {
    let refuse = |id: Value, fault| Err(MalformedMessage { id, fault });
    let value = match serde_json::from_slice(body) {
        Ok(UniqueJson(value)) => value,
        Err(error) if error.is_data() => {
            return refuse(Value::Null, RpcError::request(format!("the message: {error}")));
        }
        Err(error) => {
            return refuse(Value::Null, RpcError::parse(format!("the body is not JSON: {error}")));
        }
    };
    let mut message = match value {
        Value::Object(message) => message,
        Value::Array(_) => {
            return refuse(
                Value::Null,
                RpcError::request("send one message at a time: no batches"),
            );
        }
        _ => return refuse(Value::Null, RpcError::request("a message is a JSON object")),
    };
    let id = message.remove("id");
    let good_id = id.clone().filter(is_id).unwrap_or_default();
    if message.get("jsonrpc") != Some(&json!("2.0")) {
        return refuse(good_id, RpcError::request("jsonrpc: must be \"2.0\""));
    }
    let Some(method) = message.remove("method") else {
        return response(id, message);
    };
    let Value::String(method) = method else {
        return refuse(good_id, RpcError::request("method: must be a string"));
    };
    let params = match message.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return refuse(good_id, RpcError::params("params: must be an object")),
    };
    match id {
        None => Ok(ClientMessage::Notification { method, params }),
        Some(id) if is_id(&id) => Ok(ClientMessage::Request(RpcRequest { id, method, params })),
        Some(_) => refuse(
            Value::Null,
            RpcError::request("id: must be a whole number or a string of at most 1 KiB"),
        ),
    }
}

fn response(
    id: Option<Value>,
    mut message: Map<String, Value>,
) -> Result<ClientMessage, MalformedMessage> {
    let outcome = match (message.remove("result"), message.remove("error")) {
        (Some(result), None) => Ok(result),
        (None, Some(error)) => Err(error),
        _ => {
            let fault = RpcError::request("neither a request, a notification nor a response");
            return Err(MalformedMessage { id: id.filter(is_id).unwrap_or_default(), fault });
        }
    };
    Ok(ClientMessage::Response { id: id.unwrap_or_default(), outcome })
}

/// Ids are kept and repeated, so they are not of any length.
const MAX_ID: usize = 1_024;

pub(crate) fn is_id(id: &Value) -> bool {
    id.as_str().is_some_and(|text| text.len() <= MAX_ID) || id.is_i64() || id.is_u64()
}

/// A request's answer as text. What could not be read has no id (null), and MCP, unlike plain
/// JSON-RPC, then has the answer come without one.
pub(crate) fn reply(id: &Value, outcome: &Result<Value, RpcError>) -> String {
    let (name, value) = match outcome {
        Ok(result) => ("result", result.clone()),
        Err(fault) => ("error", fault.to_json()),
    };
    let mut reply = json!({ "jsonrpc": "2.0", name: value });
    if !id.is_null() {
        reply["id"] = id.clone();
    }
    text(&reply)
}

pub(crate) fn notification(method: &str, params: &Value) -> String {
    text(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

pub(crate) fn request(id: &str, method: &str, params: &Value) -> String {
    text(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

fn text(message: &Value) -> String {
    // A value that was JSON before prints without fail.
    serde_json::to_string(message).unwrap_or_default()
}

/// Text that is JSON already, to be put into a larger message as it is.
pub(crate) fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
