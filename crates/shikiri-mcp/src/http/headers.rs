//! Headers against the body: a proxy that routes by headers must see what the body says.

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::JsonObject;
use serde_json::Value;
use shikiri_model::lane::{LANE_HEADER, read_lane_handle};

use super::{HttpRefusal, refusal_without_id, single};
use crate::message::RpcRequest;
use crate::rpc_error::RpcError;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const PARAMETER_PREFIX: &str = "mcp-param-";

/// The client must take all of these.
pub(super) fn accepts(headers: &HeaderMap, wanted: &[&str]) -> Result<(), HttpRefusal> {
    let accept: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).collect();
    if accept.is_empty() {
        return Ok(());
    }
    let offered: Vec<&str> = accept
        .iter()
        .flat_map(|line| line.split(','))
        .map(|part| part.split(';').next().unwrap_or_default().trim())
        .collect();
    let takes = |kind: &str| {
        let group = kind.split('/').next().unwrap_or_default();
        offered.iter().any(|offer| {
            offer.eq_ignore_ascii_case(kind) || *offer == "*/*" || *offer == format!("{group}/*")
        })
    };
    if wanted.iter().all(|kind| takes(kind)) {
        return Ok(());
    }
    let fault = RpcError::request(format!("Accept: must name {}", wanted.join(" and ")));
    Err(refusal_without_id(StatusCode::NOT_ACCEPTABLE, &fault))
}

pub(super) fn is_json(headers: &HeaderMap) -> Result<(), HttpRefusal> {
    let kind = single(headers, &header::CONTENT_TYPE)?.unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let fault = RpcError::request("Content-Type: must be application/json");
    Err(refusal_without_id(StatusCode::UNSUPPORTED_MEDIA_TYPE, &fault))
}

/// The name that the caller gives itself for its chats.
pub(super) fn lane(headers: &HeaderMap) -> Result<Option<String>, RpcError> {
    let Some(name) = text(headers, &HeaderName::from_static(LANE_HEADER))? else { return Ok(None) };
    let bad = || RpcError::header("Shikiri-Lane: must be 1 to 64 characters");
    read_lane_handle(&name).ok_or_else(bad).map(Some)
}

/// `Mcp-Method`, `Mcp-Name` and `Mcp-Param-…` must say what the body says.
pub(super) fn check(
    headers: &HeaderMap,
    request: &RpcRequest,
    tool_schema: Option<&JsonObject>,
) -> Result<(), RpcError> {
    let method = text(headers, &METHOD)?;
    let method = method.ok_or_else(|| RpcError::header("Mcp-Method: is missing"))?;
    if method != request.method {
        return Err(differs("Mcp-Method", &method, &request.method));
    }
    let named_by = match request.method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return Ok(()),
    };
    if let Some(Value::String(name)) = request.params.get(named_by) {
        let header = text(headers, &NAME)?;
        let header = header.ok_or_else(|| RpcError::header("Mcp-Name: is missing"))?;
        if header != *name {
            return Err(differs("Mcp-Name", &header, name));
        }
    }
    match tool_schema {
        Some(schema) => check_parameters(headers, request, schema),
        None => Ok(()),
    }
}

fn check_parameters(
    headers: &HeaderMap,
    request: &RpcRequest,
    schema: &JsonObject,
) -> Result<(), RpcError> {
    let none = Value::Null;
    let arguments = request.params.get("arguments").unwrap_or(&none);
    let mut marked = Vec::new();
    collect(schema.get("properties"), arguments, &mut marked);
    for (suffix, value) in marked {
        let name = format!("{PARAMETER_PREFIX}{}", suffix.to_ascii_lowercase());
        let Ok(header) = name.parse::<HeaderName>() else { continue };
        match (value.and_then(as_text), text(headers, &header)?) {
            (Some(value), Some(header)) if same(&value, &header) => {}
            (None, None) => {}
            (Some(value), Some(header)) => return Err(differs(&name, &header, &value)),
            (Some(_), None) => return Err(RpcError::header(format!("{name}: is missing"))),
            (None, Some(_)) => {
                return Err(RpcError::header(format!("{name}: the body has no such argument")));
            }
        }
    }
    Ok(())
}

/// The marked properties, however deep, each with its value if the arguments have one.
fn collect<'a>(
    properties: Option<&'a Value>,
    arguments: &'a Value,
    marked: &mut Vec<(&'a str, Option<&'a Value>)>,
) {
    let Some(Value::Object(properties)) = properties else { return };
    for (name, property) in properties {
        let value = arguments.get(name).filter(|value| !value.is_null());
        if let Some(suffix) = property["x-mcp-header"].as_str() {
            marked.push((suffix, value));
        }
        collect(property.get("properties"), value.unwrap_or(&Value::Null), marked);
    }
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

/// 1 and 1.0 are one number.
fn same(value: &str, header: &str) -> bool {
    value == header
        || matches!((value.parse::<f64>(), header.parse::<f64>()), (Ok(a), Ok(b)) if a == b)
}

fn differs(name: &str, header: &str, body: &str) -> RpcError {
    let short = |text: &str| text.chars().take(100).collect::<String>();
    RpcError::header(format!("{name}: is {:?}, but the body says {:?}", short(header), short(body)))
}

/// A header's value; what cannot stand in a header is written as `=?base64?…?=`.
fn text(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, RpcError> {
    let mut values = headers.get_all(name).iter();
    let (Some(first), second) = (values.next(), values.next()) else { return Ok(None) };
    if second.is_some() {
        return Err(RpcError::header(format!("{name}: was sent twice")));
    }
    let bad = || RpcError::header(format!("{name}: is not text"));
    let value = first.to_str().map_err(|_| bad())?.trim();
    let Some(coded) = value.strip_prefix("=?base64?").and_then(|v| v.strip_suffix("?=")) else {
        return Ok(Some(value.to_owned()));
    };
    let bytes = STANDARD.decode(coded).map_err(|_| bad())?;
    String::from_utf8(bytes).map(Some).map_err(|_| bad())
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
