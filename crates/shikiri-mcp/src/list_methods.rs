//! What there is: tools, resources, prompts, and what their arguments may be.

use serde_json::{Value, json};

use crate::mcp_caller::{McpCaller, ProtocolEra};
use crate::message::RpcRequest;
use crate::rpc_error::RpcError;
use crate::server::{McpService, cached};
use crate::tool_visibility::ToolVisibility;

/// Items of one page.
const PAGE: usize = 100;
/// The specification allows no more.
const MAX_COMPLETIONS: usize = 100;

pub(crate) async fn tools(
    mcp: &McpService,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<Value, RpcError> {
    let visibility = ToolVisibility::for_caller(&mcp.app, caller).await?;
    let all = mcp.catalogue.tools.values().filter(|tool| visibility.includes(tool.permission));
    let all = all.filter(|tool| caller.tools.includes(tool.group));
    let all = all.map(|tool| tool.definition.clone());
    Ok(cached(page("tools", all.collect(), request)?, scope(caller)))
}

pub(crate) fn prompts(
    mcp: &McpService,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<Value, RpcError> {
    let all = mcp.catalogue.prompts(caller);
    let all = all.map(|prompt| serde_json::to_value(prompt.definition()).unwrap_or_default());
    Ok(cached(page("prompts", all.collect(), request)?, scope(caller)))
}

pub(crate) fn templates(
    mcp: &McpService,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<Value, RpcError> {
    let all = mcp.catalogue.sources(caller).flat_map(|source| source.templates());
    let all = all.map(|template| serde_json::to_value(template).unwrap_or_default());
    Ok(cached(page("resourceTemplates", all.collect(), request)?, scope(caller)))
}

/// What a session is visibility is not for others.
fn scope(caller: &McpCaller) -> &'static str {
    if caller.session.is_some() { "private" } else { "public" }
}

/// A part of a list that is in memory; its cursor is a position.
fn page(name: &str, all: Vec<Value>, request: &RpcRequest) -> Result<Value, RpcError> {
    let start = match cursor(request)? {
        None => 0,
        Some(cursor) => cursor.parse().ok().filter(|n| *n < all.len()).ok_or_else(bad_cursor)?,
    };
    let end = all.len().min(start + PAGE);
    let mut result = json!({ name: &all[start..end] });
    if end < all.len() {
        result["nextCursor"] = json!(end.to_string());
    }
    Ok(result)
}

fn cursor(request: &RpcRequest) -> Result<Option<&str>, RpcError> {
    match request.params.get("cursor") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(cursor)) => Ok(Some(cursor)),
        Some(_) => Err(bad_cursor()),
    }
}

pub(crate) fn bad_cursor() -> RpcError {
    RpcError::params("cursor: was not given out for this list")
}

/// One source after the other; a cursor says which, and where in it.
pub(crate) async fn resources(
    mcp: &McpService,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<Value, RpcError> {
    let (number, inner) = match cursor(request)? {
        None => (0, None),
        Some(cursor) => {
            let (number, inner) = cursor.split_once(':').ok_or_else(bad_cursor)?;
            let number: usize = number.parse().map_err(|_| bad_cursor())?;
            (number, Some(inner).filter(|inner| !inner.is_empty()))
        }
    };
    let sources = mcp.catalogue.sources(caller).filter(|source| source.is_listed());
    let sources: Vec<_> = sources.collect();
    let Some(source) = sources.get(number) else {
        return if number == 0 {
            Ok(cached(json!({ "resources": [] }), "private"))
        } else {
            Err(bad_cursor())
        };
    };
    let listed = source.list(caller, inner).await?;
    let mut result = json!({ "resources": listed.items });
    match listed.next {
        Some(next) => result["nextCursor"] = json!(format!("{number}:{next}")),
        None if number + 1 < sources.len() => {
            result["nextCursor"] = json!(format!("{}:", number + 1));
        }
        None => {}
    }
    Ok(cached(result, "private"))
}

pub(crate) async fn read(
    mcp: &McpService,
    caller: &McpCaller,
    request: &RpcRequest,
    era: ProtocolEra,
) -> Result<Value, RpcError> {
    let uri = request.text("uri")?;
    let contents = contents(mcp, caller, uri, era).await?;
    Ok(cached(json!({ "contents": contents }), "private"))
}

pub(crate) async fn contents(
    mcp: &McpService,
    caller: &McpCaller,
    uri: &str,
    era: ProtocolEra,
) -> Result<Vec<Value>, RpcError> {
    for source in mcp.catalogue.sources(caller) {
        if let Some(read) = source.read(caller, uri).await {
            return read.map_err(|fault| missing_in(era, fault));
        }
    }
    Err(missing_in(era, resource_not_found(uri)))
}

pub(crate) fn resource_not_found(uri: &str) -> RpcError {
    RpcError::params(format!("there is no resource {uri:?}")).with(json!({ "uri": uri }))
}

/// The older era has a code of its own for it.
fn missing_in(era: ProtocolEra, fault: RpcError) -> RpcError {
    let is_missing = fault.data.as_ref().is_some_and(|data| data.get("uri").is_some());
    match era {
        ProtocolEra::Legacy if is_missing => {
            RpcError { code: rmcp::model::ErrorCode::RESOURCE_NOT_FOUND.0, ..fault }
        }
        _ => fault,
    }
}

pub(crate) async fn complete(
    mcp: &McpService,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<Value, RpcError> {
    let params = &request.params;
    let reference = params.get("ref").cloned().unwrap_or_default();
    let argument = params.get("argument").cloned().unwrap_or_default();
    let (Some(name), Some(start)) = (argument["name"].as_str(), argument["value"].as_str()) else {
        return Err(RpcError::params("argument: must have a name and a value, both strings"));
    };
    let mut values = match reference["type"].as_str() {
        Some("ref/prompt") => {
            let prompt = reference["name"].as_str().unwrap_or_default();
            let found = mcp.catalogue.prompt(caller, prompt);
            let found =
                found.ok_or_else(|| RpcError::params(format!("there is no prompt {prompt:?}")))?;
            found.complete(caller, name, start).await
        }
        Some("ref/resource") => {
            let uri = reference["uri"].as_str().unwrap_or_default();
            let has = |t: &rmcp::model::ResourceTemplate| t.uri_template == uri;
            let mut sources = mcp.catalogue.sources(caller);
            let source = sources.find(|source| source.templates().iter().any(has));
            let source = source.ok_or_else(|| resource_not_found(uri))?;
            source.complete(caller, name, start).await
        }
        _ => return Err(RpcError::params("ref: its type must be ref/prompt or ref/resource")),
    };
    let total = values.len();
    values.truncate(MAX_COMPLETIONS);
    let more = total > values.len();
    Ok(json!({ "completion": { "values": values, "total": total, "hasMore": more } }))
}
