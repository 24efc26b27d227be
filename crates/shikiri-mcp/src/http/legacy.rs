//! The older era: a client opens a connection and names it on every request. Events have ids, from
//! which a stream can be resumed. Connections and streams are in the store, so any node serves any
//! of them.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use rmcp::model::ErrorCode;
use serde_json::json;
use shikiri_model::connection::{EventPosition, McpConnection};
use shikiri_model::ids::ConnectionId;
use shikiri_model::lane::{CallerIdentity, CallerOrigin};
use shikiri_runtime::AppError;
use shikiri_tenancy::connections::NewConnection;
use tokio_util::sync::CancellationToken;

use super::connection_feed::ConnectionFeed;
use super::open_calls::OpenCall;
use super::sse::{self, CallFeed};
use super::{
    AuthenticatedCaller, HttpRefusal, LAST_EVENT_ID, McpEndpoint, PROTOCOL_VERSION, SESSION_ID,
    headers, json_response, lock, problem, refusal, refusal_without_id, single,
};
use crate::mcp_caller::{LEGACY, McpCaller};
use crate::message::{self, ClientMessage, RpcRequest};
use crate::rpc_error::RpcError;
use crate::run_follower::{CallSpec, LAST, RunFollower};
use crate::server::{RequestAnswer, initialized};

pub(super) async fn post(
    endpoint: &Arc<McpEndpoint>,
    authenticated: AuthenticatedCaller,
    headers: &HeaderMap,
    incoming: ClientMessage,
) -> Result<Response, HttpRefusal> {
    if let ClientMessage::Request(request) = &incoming
        && request.method == "initialize"
    {
        return open(endpoint, authenticated, headers, request).await;
    }
    let connection = find_connection(endpoint, &authenticated, headers).await?;
    match incoming {
        ClientMessage::Request(request) => {
            let call = OpenCall::begin(endpoint, &connection.id, &request.id);
            let caller = caller(&authenticated, &connection, call.cancel_token().clone());
            answer(endpoint, &authenticated, &caller, &request).await
        }
        ClientMessage::Notification { method, params } => {
            if method == "notifications/cancelled"
                && let Some(id) = params.get("requestId")
            {
                endpoint.open_calls.cancel_call(&connection.id, id);
                endpoint.mcp.cancel_call(&connection, id).await.map_err(problem)?;
            }
            Ok(StatusCode::ACCEPTED.into_response())
        }
        ClientMessage::Response { id, outcome } => {
            let taken = endpoint.mcp.take_answer(&connection, &id, &outcome).await;
            // Only an answer that could not be stored is worth sending again.
            let refused = |fault: RpcError| match ErrorCode(fault.code) {
                ErrorCode::INTERNAL_ERROR => {
                    refusal_without_id(StatusCode::SERVICE_UNAVAILABLE, &fault)
                }
                _ => refusal_without_id(StatusCode::BAD_REQUEST, &fault),
            };
            taken.map_err(refused)?;
            Ok(StatusCode::ACCEPTED.into_response())
        }
    }
}

fn caller(
    authenticated: &AuthenticatedCaller,
    connection: &Arc<McpConnection>,
    cancel_token: CancellationToken,
) -> McpCaller {
    let session = authenticated.session.clone();
    let way = CallerOrigin::Connection {
        principal: authenticated.principal.clone(),
        connection: connection.id.to_string(),
    };
    let identity = CallerIdentity::of(&way, &connection.client.name);
    let tools = authenticated.tools;
    McpCaller::on_connection(Arc::clone(connection), identity, session, tools, cancel_token)
}

async fn answer(
    endpoint: &Arc<McpEndpoint>,
    authenticated: &AuthenticatedCaller,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<Response, HttpRefusal> {
    let slot = endpoint.reserve_stream(authenticated, request)?;
    match (endpoint.mcp.answer(caller, request).await, slot) {
        (RequestAnswer::Now(outcome), _) => {
            if matches!(
                request.method.as_str(),
                "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
            ) {
                endpoint.forget(&caller.connection.id);
            }
            Ok(json_response(StatusCode::OK, message::reply(&request.id, &outcome)))
        }
        (RequestAnswer::Logged { number, text }, _) => {
            let id = caller.connection.event_id(EventPosition { call: number, seq: 1 });
            if caller.cancel_token.is_cancelled() {
                caller.receipts.lose();
            }
            Ok(caller.receipts.confirm_with(sse::once(&text, &id.to_string())))
        }
        (RequestAnswer::Follow(call), Some(slot)) => {
            Ok(sse::response(CallFeed::new(*call, slot, false)))
        }
        // Only the newer era listens, and nothing is followed without room for it.
        (RequestAnswer::Follow(_) | RequestAnswer::Listen(_), _) => {
            let fault = RpcError::method(&request.method);
            Err(refusal(StatusCode::OK, &request.id, &fault))
        }
    }
}

/// `initialize`: the client says who it is, and gets a connection.
async fn open(
    endpoint: &Arc<McpEndpoint>,
    authenticated: AuthenticatedCaller,
    headers: &HeaderMap,
    request: &RpcRequest,
) -> Result<Response, HttpRefusal> {
    let refused = |fault: RpcError| refusal(StatusCode::BAD_REQUEST, &request.id, &fault);
    let wanted = request.text("protocolVersion").map_err(refused)?;
    if let Some(named) = single(headers, &PROTOCOL_VERSION)?
        && named != wanted
    {
        let why = format!("MCP-Protocol-Version: is {named:?}, but the body says {wanted:?}");
        return Err(refused(RpcError::header(why)));
    }
    let new = introduced(request, &authenticated, wanted).map_err(refused)?;
    let protocol = new.protocol.clone();
    let opened = endpoint.mcp.app.tenancy.open_connection(new).await.map_err(problem)?;
    let reply = message::reply(&request.id, &Ok(initialized(&protocol)));
    let mut response = json_response(StatusCode::OK, reply);
    if let Ok(id) = HeaderValue::from_str(opened.id.as_str()) {
        response.headers_mut().insert(SESSION_ID, id);
    }
    Ok(response)
}

/// What `initialize` says about its sender.
fn introduced(
    request: &RpcRequest,
    authenticated: &AuthenticatedCaller,
    wanted: &str,
) -> Result<NewConnection, RpcError> {
    crate::mcp_caller::parse_initialize(request, wanted).map(|(protocol, client, capabilities)| {
        NewConnection {
            tenant: authenticated.tenant.id.clone(),
            principal: authenticated.principal.clone(),
            protocol,
            client,
            capabilities,
        }
    })
}

/// The connection that the request names.
async fn find_connection(
    endpoint: &McpEndpoint,
    authenticated: &AuthenticatedCaller,
    headers: &HeaderMap,
) -> Result<Arc<McpConnection>, HttpRefusal> {
    if let Some(version) = single(headers, &PROTOCOL_VERSION)?
        && !LEGACY.contains(&version)
    {
        return Err(refusal_without_id(
            StatusCode::BAD_REQUEST,
            &RpcError::version(version, &LEGACY),
        ));
    }
    let Some(id) = single(headers, &SESSION_ID)? else {
        let fault = RpcError::request("Mcp-Session-Id: is missing: send initialize first");
        return Err(refusal_without_id(StatusCode::BAD_REQUEST, &fault));
    };
    let unknown = || {
        let fault = RpcError::request("there is no such session: send initialize again");
        refusal_without_id(StatusCode::NOT_FOUND, &fault)
    };
    let id: ConnectionId = id.parse().map_err(|_| unknown())?;
    let found = endpoint.connection(authenticated, &id).await.map_err(problem)?;
    // What holds a caller's requests of the newer era is no session.
    found.filter(|found| LEGACY.contains(&found.protocol.as_str())).ok_or_else(unknown)
}

/// The connection's own stream, or one that broke off.
pub(super) async fn get(
    endpoint: &Arc<McpEndpoint>,
    authenticated: AuthenticatedCaller,
    headers: &HeaderMap,
) -> Result<Response, HttpRefusal> {
    headers::accepts(headers, &["text/event-stream"])?;
    let connection = find_connection(endpoint, &authenticated, headers).await?;
    let slot = endpoint.gate.open_stream_for(&authenticated.secret, &authenticated.tenant);
    let slot = slot.map_err(problem)?;
    let place = match single(headers, &LAST_EVENT_ID)? {
        None => None,
        Some(id) => Some(connection.parse_event_id(id).ok_or_else(unknown_event_id)?),
    };
    match place {
        None => {
            let feed = ConnectionFeed::open(endpoint, connection, slot, None).await?;
            Ok(sse::response(feed))
        }
        Some(EventPosition { call: 0, seq }) => {
            let feed = ConnectionFeed::open(endpoint, connection, slot, Some(seq)).await?;
            Ok(sse::response(feed))
        }
        Some(EventPosition { seq: LAST, .. }) => Ok(sse::empty()),
        Some(place) => {
            let caller = caller(&authenticated, &connection, CancellationToken::new());
            match resume_call(endpoint, &caller, place).await? {
                Some(call) => Ok(sse::response(CallFeed::new(call, slot, true))),
                None => Ok(sse::empty()),
            }
        }
    }
}

/// The call that the id belongs to, from there on; None if it was answered at once, with the
/// event that has the id.
async fn resume_call(
    endpoint: &McpEndpoint,
    caller: &McpCaller,
    place: EventPosition,
) -> Result<Option<RunFollower>, HttpRefusal> {
    let connection = &caller.connection;
    let read = |event: shikiri_model::event::EventRef<'_>| {
        (event.kind == "call").then(|| event.data.to_owned())
    };
    let found = endpoint.mcp.app.tenancy.connection_event(connection, place.call, read).await;
    let data = found.map_err(problem)?.ok_or_else(expired_event_id)?;
    let Ok(spec) = serde_json::from_str::<CallSpec>(&data) else { return Ok(None) };
    let number = Some(place.call);
    let app = &endpoint.mcp.app;
    match RunFollower::follow(app, caller, number, spec, String::new(), place.seq).await {
        Ok(call) => Ok(Some(call)),
        Err(AppError::NotFound { .. } | AppError::Invalid { .. }) => Err(expired_event_id()),
        Err(error) => Err(problem(error)),
    }
}

/// The same refusal for an id of another connection and for one that never existed.
fn unknown_event_id() -> HttpRefusal {
    let fault = RpcError::params("Last-Event-ID: was not given out on this session")
        .with(json!({ "reason": "unknown_event_id" }));
    refusal_without_id(StatusCode::BAD_REQUEST, &fault)
}

pub(super) fn expired_event_id() -> HttpRefusal {
    let fault = RpcError::params("Last-Event-ID: what followed is no longer kept")
        .with(json!({ "reason": "expired_event_id" }));
    refusal_without_id(StatusCode::BAD_REQUEST, &fault)
}

pub(super) async fn delete(
    endpoint: &Arc<McpEndpoint>,
    authenticated: &AuthenticatedCaller,
    headers: &HeaderMap,
) -> Result<Response, HttpRefusal> {
    let connection = find_connection(endpoint, authenticated, headers).await?;
    let closed = endpoint.mcp.app.tenancy.close_connection(&connection).await;
    closed.map_err(problem)?;
    endpoint.forget(&connection.id);
    if let Some(listener) = lock(&endpoint.listeners).remove(&connection.id) {
        listener.cancel();
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
