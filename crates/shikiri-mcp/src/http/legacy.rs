//! The older era: a client opens a connection and names it on every request; streams have ids and
//! can be read again. Connection and streams are in the store, so any node serves any of it.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use rmcp::model::ErrorCode;
use serde_json::json;
use shikiri_app::AppError;
use shikiri_app::connections::NewConnection;
use shikiri_model::connection::{Connection, Place};
use shikiri_model::ids::ConnectionId;
use shikiri_model::lane::{Identity, Way};
use tokio_util::sync::CancellationToken;

use super::connected::ConnectionFeed;
use super::given_up::OpenCall;
use super::sse::{self, CallFeed};
use super::{
    Door, Guest, LAST_EVENT_ID, PROTOCOL_VERSION, Refusal, SESSION_ID, headers, json_response,
    lock, plain, problem, refusal, single,
};
use crate::call::{Call, CallSpec, LAST};
use crate::client::{Caller, LEGACY};
use crate::fault::Fault;
use crate::message::{self, Incoming, Request};
use crate::server::{Answered, initialized};

pub(super) async fn post(
    door: &Arc<Door>,
    guest: Guest,
    headers: &HeaderMap,
    incoming: Incoming,
) -> Result<Response, Refusal> {
    if let Incoming::Request(request) = &incoming
        && request.method == "initialize"
    {
        return open(door, guest, headers, request).await;
    }
    let connection = named(door, &guest, headers).await?;
    match incoming {
        Incoming::Request(request) => {
            let call = OpenCall::begin(door, &connection.id, &request.id);
            let caller = caller(&guest, &connection, call.given_up().clone());
            answer(door, &guest, &caller, &request).await
        }
        Incoming::Notification { method, params } => {
            if method == "notifications/cancelled"
                && let Some(id) = params.get("requestId")
            {
                door.open_calls.give_up(&connection.id, id);
                let cancelled = door.mcp.cancel_call(&connection, id).await;
                cancelled.map_err(problem)?;
            }
            Ok(StatusCode::ACCEPTED.into_response())
        }
        Incoming::Response { id, outcome } => {
            let taken = door.mcp.take_answer(&connection, &id, &outcome).await;
            // What could not be stored now is worth sending again; what nobody asked is not.
            let refused = |fault: Fault| match ErrorCode(fault.code) {
                ErrorCode::INTERNAL_ERROR => plain(StatusCode::SERVICE_UNAVAILABLE, &fault),
                _ => plain(StatusCode::BAD_REQUEST, &fault),
            };
            taken.map_err(refused)?;
            Ok(StatusCode::ACCEPTED.into_response())
        }
    }
}

fn caller(guest: &Guest, connection: &Arc<Connection>, given_up: CancellationToken) -> Caller {
    let session = guest.session.clone();
    let way = Way::Connection {
        principal: guest.principal.clone(),
        connection: connection.id.to_string(),
    };
    let identity = Identity::of(&way, &connection.client.name);
    Caller::connected(Arc::clone(connection), identity, session, given_up)
}

async fn answer(
    door: &Arc<Door>,
    guest: &Guest,
    caller: &Caller,
    request: &Request,
) -> Result<Response, Refusal> {
    let slot = door.room(guest, request)?;
    match (door.mcp.answer(caller, request).await, slot) {
        (Answered::Now(outcome), _) => {
            if matches!(
                request.method.as_str(),
                "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
            ) {
                door.forget(&caller.connection.id);
            }
            Ok(json_response(StatusCode::OK, message::reply(&request.id, &outcome)))
        }
        (Answered::Logged { number, text }, _) => {
            let id = caller.connection.event_id(Place { call: number, seq: 1 });
            if caller.given_up.is_cancelled() {
                caller.receipts.lose();
            }
            Ok(caller.receipts.confirm_with(sse::once(&text, &id.to_string())))
        }
        (Answered::Follow(call), Some(slot)) => {
            Ok(sse::response(CallFeed::new(*call, slot, false)))
        }
        // Only the newer era listens, and nothing is followed without room for it.
        (Answered::Follow(_) | Answered::Listen(_), _) => {
            let fault = Fault::method(&request.method);
            Err(refusal(StatusCode::OK, &request.id, &fault))
        }
    }
}

/// `initialize`: the client says who it is, and gets a connection.
async fn open(
    door: &Arc<Door>,
    guest: Guest,
    headers: &HeaderMap,
    request: &Request,
) -> Result<Response, Refusal> {
    let refused = |fault: Fault| refusal(StatusCode::BAD_REQUEST, &request.id, &fault);
    let wanted = request.text("protocolVersion").map_err(refused)?;
    if let Some(named) = single(headers, &PROTOCOL_VERSION)?
        && named != wanted
    {
        let why = format!("MCP-Protocol-Version: is {named:?}, but the body says {wanted:?}");
        return Err(refused(Fault::header(why)));
    }
    let new = introduced(request, &guest, wanted).map_err(refused)?;
    let protocol = new.protocol.clone();
    let opened = door.mcp.app.open_connection(new).await.map_err(problem)?;
    let reply = message::reply(&request.id, &Ok(initialized(&protocol)));
    let mut response = json_response(StatusCode::OK, reply);
    if let Ok(id) = HeaderValue::from_str(opened.id.as_str()) {
        response.headers_mut().insert(SESSION_ID, id);
    }
    Ok(response)
}

/// What `initialize` says about its sender.
fn introduced(request: &Request, guest: &Guest, wanted: &str) -> Result<NewConnection, Fault> {
    crate::client::introduced(request, wanted).map(|(protocol, client, capabilities)| {
        NewConnection {
            tenant: guest.tenant.id.clone(),
            principal: guest.principal.clone(),
            protocol,
            client,
            capabilities,
        }
    })
}

/// The connection that the request names.
async fn named(
    door: &Door,
    guest: &Guest,
    headers: &HeaderMap,
) -> Result<Arc<Connection>, Refusal> {
    if let Some(version) = single(headers, &PROTOCOL_VERSION)?
        && !LEGACY.contains(&version)
    {
        return Err(plain(StatusCode::BAD_REQUEST, &Fault::version(version, &LEGACY)));
    }
    let Some(id) = single(headers, &SESSION_ID)? else {
        let fault = Fault::request("Mcp-Session-Id: is missing: send initialize first");
        return Err(plain(StatusCode::BAD_REQUEST, &fault));
    };
    let unknown = || {
        let fault = Fault::request("there is no such session: send initialize again");
        plain(StatusCode::NOT_FOUND, &fault)
    };
    let id: ConnectionId = id.parse().map_err(|_| unknown())?;
    let found = door.connection(guest, &id).await.map_err(problem)?;
    // What holds a caller's requests of the newer era is no session.
    found.filter(|found| LEGACY.contains(&found.protocol.as_str())).ok_or_else(unknown)
}

/// The connection's own stream, or one that broke off.
pub(super) async fn get(
    door: &Arc<Door>,
    guest: Guest,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    headers::accepts(headers, &["text/event-stream"])?;
    let connection = named(door, &guest, headers).await?;
    let slot = door.gate.open_stream_for(&guest.secret, &guest.tenant);
    let slot = slot.map_err(problem)?;
    let place = match single(headers, &LAST_EVENT_ID)? {
        None => None,
        Some(id) => Some(connection.place_of(id).ok_or_else(not_ours)?),
    };
    match place {
        None => {
            let feed = ConnectionFeed::open(door, connection, slot, None).await?;
            Ok(sse::response(feed))
        }
        Some(Place { call: 0, seq }) => {
            let feed = ConnectionFeed::open(door, connection, slot, Some(seq)).await?;
            Ok(sse::response(feed))
        }
        Some(Place { seq: LAST, .. }) => Ok(sse::empty()),
        Some(place) => {
            let caller = caller(&guest, &connection, CancellationToken::new());
            match call_at(door, &caller, place).await? {
                Some(call) => Ok(sse::response(CallFeed::new(call, slot, true))),
                None => Ok(sse::empty()),
            }
        }
    }
}

/// The call that the id belongs to, from there on; None if it was answered at once, with the
/// event that has the id.
async fn call_at(door: &Door, caller: &Caller, place: Place) -> Result<Option<Call>, Refusal> {
    let connection = &caller.connection;
    let read = |event: shikiri_model::event::EventRef<'_>| {
        (event.kind == "call").then(|| event.data.to_owned())
    };
    let found = door.mcp.app.connection_event(connection, place.call, read).await;
    let data = found.map_err(problem)?.ok_or_else(gone)?;
    let Ok(spec) = serde_json::from_str::<CallSpec>(&data) else { return Ok(None) };
    let number = Some(place.call);
    let app = &door.mcp.app;
    match Call::follow(app, caller, number, spec, String::new(), place.seq).await {
        Ok(call) => Ok(Some(call)),
        Err(AppError::NotFound { .. } | AppError::Invalid { .. }) => Err(gone()),
        Err(error) => Err(problem(error)),
    }
}

/// The same words for an id of another connection and one that nobody ever had.
fn not_ours() -> Refusal {
    let fault = Fault::params("Last-Event-ID: was not given out on this session")
        .with(json!({ "reason": "unknown_event_id" }));
    plain(StatusCode::BAD_REQUEST, &fault)
}

pub(super) fn gone() -> Refusal {
    let fault = Fault::params("Last-Event-ID: what followed is no longer kept")
        .with(json!({ "reason": "expired_event_id" }));
    plain(StatusCode::BAD_REQUEST, &fault)
}

pub(super) async fn delete(
    door: &Arc<Door>,
    guest: &Guest,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    let connection = named(door, guest, headers).await?;
    let closed = door.mcp.app.close_connection(&connection).await;
    closed.map_err(problem)?;
    door.forget(&connection.id);
    if let Some(listener) = lock(&door.listeners).remove(&connection.id) {
        listener.cancel();
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
