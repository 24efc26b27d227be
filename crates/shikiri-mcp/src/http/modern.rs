//! The newer era: every request stands alone and no stream is resumed. When a client disconnects,
//! its request ends and the run goes on.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rmcp::model::ErrorCode;
use serde_json::Value;
use shikiri_model::lane::{CallerIdentity, CallerOrigin};

use super::sse::{self, CallFeed, ListenFeed};
use super::{
    AuthenticatedCaller, HttpRefusal, McpEndpoint, PROTOCOL_VERSION, headers, json_response,
    problem, refusal_without_id,
};
use crate::mcp_caller::{MODERN, McpCaller, ProtocolEra};
use crate::message::{self, ClientMessage, RpcRequest};
use crate::request_meta::{self, RequestMeta, protocol_version};
use crate::request_receipts::RequestReceipts;
use crate::rpc_error::RpcError;
use crate::server::{McpService, RequestAnswer};

/// Whether the header names this era.
pub(super) fn is_modern_header(headers: &HeaderMap) -> bool {
    headers.get(PROTOCOL_VERSION).is_some_and(|version| version == MODERN)
}

/// Whether the body can only be of this era. The handshake exists in the older one alone.
pub(super) fn is_modern_body(incoming: &ClientMessage) -> bool {
    match incoming {
        ClientMessage::Request(request) if request.method == "initialize" => false,
        ClientMessage::Request(request) => {
            request.method == "server/discover" || protocol_version(request).is_some()
        }
        _ => false,
    }
}

pub(super) async fn post(
    endpoint: &Arc<McpEndpoint>,
    authenticated: AuthenticatedCaller,
    headers: &HeaderMap,
    incoming: ClientMessage,
) -> Result<Response, HttpRefusal> {
    let request = match incoming {
        // A handshake is of the older era even under a newer header, unless its body says otherwise
        // too: then it is a method that is gone.
        ClientMessage::Request(request)
            if request.method == "initialize" && protocol_version(&request).is_none() =>
        {
            let incoming = ClientMessage::Request(request);
            return super::legacy::post(endpoint, authenticated, headers, incoming).await;
        }
        ClientMessage::Request(request) => request,
        ClientMessage::Notification { .. } => return Ok(StatusCode::ACCEPTED.into_response()),
        ClientMessage::Response { .. } => {
            let fault = RpcError::request("nothing was asked: answers come with a request");
            return Err(refusal_without_id(StatusCode::BAD_REQUEST, &fault));
        }
    };
    let refused = |fault: &RpcError| {
        let status = if fault.code == ErrorCode::INVALID_PARAMS.0 {
            StatusCode::BAD_REQUEST
        } else {
            fault.status()
        };
        super::refusal(status, &request.id, fault)
    };
    let mut meta = check(endpoint, headers, &request).map_err(|fault| refused(&fault))?;
    let named = headers::lane(headers).map_err(|fault| refused(&fault))?;
    // What one request says goes before what all of a client's requests say.
    meta.lane = meta.lane.or(named);
    let caller = caller(endpoint, &authenticated, meta).await?;
    let slot = endpoint.reserve_stream(&authenticated, &request)?;
    Ok(match (endpoint.mcp.answer(&caller, &request).await, slot) {
        (RequestAnswer::Now(outcome), _) => {
            let status = outcome.as_ref().map_or_else(RpcError::status, |_| StatusCode::OK);
            let response = json_response(status, message::reply(&request.id, &outcome));
            caller.receipts.confirm_with(response)
        }
        (RequestAnswer::Logged { text, .. }, _) => json_response(StatusCode::OK, text),
        (RequestAnswer::Follow(call), Some(slot)) => {
            sse::response(CallFeed::new(*call, slot, true))
        }
        (RequestAnswer::Listen(listen), Some(slot)) => {
            sse::response(ListenFeed { listen: *listen, slot, ended: false })
        }
        // Nothing is followed without room for it.
        (RequestAnswer::Follow(_) | RequestAnswer::Listen(_), None) => {
            return Err(refused(&RpcError::internal("there is no room for the answer")));
        }
    })
}

/// Header and body must agree, and the body must say what is required.
fn check(
    endpoint: &McpEndpoint,
    headers: &HeaderMap,
    request: &RpcRequest,
) -> Result<RequestMeta, RpcError> {
    let version = request_meta::version(request)?;
    match headers.get(PROTOCOL_VERSION).and_then(|version| version.to_str().ok()) {
        None => return Err(RpcError::header("MCP-Protocol-Version: is missing")),
        Some(header) if header != version => {
            let why = format!("MCP-Protocol-Version: is {header:?}, but the body says {version:?}");
            return Err(RpcError::header(why));
        }
        Some(_) => {}
    }
    let meta = request_meta::parse_request_meta(request)?;
    let tool = request.params.get("name").and_then(Value::as_str);
    let tool = tool.filter(|_| request.method == "tools/call");
    let tool = tool.and_then(|name| endpoint.mcp.catalogue.tools.get(name));
    headers::check(headers, request, tool.map(|tool| &*tool.input_schema))?;
    Ok(meta)
}

async fn caller(
    endpoint: &McpEndpoint,
    authenticated: &AuthenticatedCaller,
    meta: RequestMeta,
) -> Result<McpCaller, HttpRefusal> {
    let McpService { app, modern_connections, .. } = &*endpoint.mcp;
    let principal = authenticated.principal.clone();
    let way = match meta.lane {
        // A session belongs to one agent, a key to whoever has it.
        None if authenticated.session.is_none() => CallerOrigin::SharedToken { principal },
        handle => CallerOrigin::Token { principal, handle },
    };
    let connection =
        modern_connections.get(app, &authenticated.tenant.id, &authenticated.principal).await;
    Ok(McpCaller {
        connection: connection.map_err(problem)?,
        era: ProtocolEra::Modern,
        capabilities: meta.capabilities,
        log_level: meta.log_level,
        identity: CallerIdentity::of(&way, &meta.client.name),
        session: authenticated.session.clone(),
        tools: authenticated.tools,
        // A client that goes away closes its socket, which drops the answer.
        cancel_token: endpoint.gate.draining().child_token(),
        receipts: RequestReceipts::default(),
    })
}
