//! The newer era: every request stands alone. Nothing is resumed; a client that goes away has
//! given up the request, and the run goes on.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rmcp::model::ErrorCode;
use serde_json::Value;
use shikiri_model::lane::{Identity, Way};

use super::sse::{self, CallFeed, ListenFeed};
use super::{Door, Guest, PROTOCOL_VERSION, Refusal, headers, json_response, plain, problem};
use crate::client::{Caller, Era, MODERN};
use crate::fault::Fault;
use crate::message::{self, Incoming, Request};
use crate::receipts::Receipts;
use crate::server::{Answered, Mcp};
use crate::stated::{self, Stated, protocol_version};

/// Whether the header names this era.
pub(super) fn is_named(headers: &HeaderMap) -> bool {
    headers.get(PROTOCOL_VERSION).is_some_and(|version| version == MODERN)
}

/// Whether the body can only be of this era. The handshake exists in the older one alone.
pub(super) fn is_meant(incoming: &Incoming) -> bool {
    match incoming {
        Incoming::Request(request) if request.method == "initialize" => false,
        Incoming::Request(request) => {
            request.method == "server/discover" || protocol_version(request).is_some()
        }
        _ => false,
    }
}

pub(super) async fn post(
    door: &Arc<Door>,
    guest: Guest,
    headers: &HeaderMap,
    incoming: Incoming,
) -> Result<Response, Refusal> {
    let request = match incoming {
        // A handshake is of the older era even under a newer header, unless its body says otherwise
        // too: then it is a method that is gone.
        Incoming::Request(request)
            if request.method == "initialize" && protocol_version(&request).is_none() =>
        {
            let incoming = Incoming::Request(request);
            return super::legacy::post(door, guest, headers, incoming).await;
        }
        Incoming::Request(request) => request,
        Incoming::Notification { .. } => return Ok(StatusCode::ACCEPTED.into_response()),
        Incoming::Response { .. } => {
            let fault = Fault::request("nothing was asked: answers come with a request");
            return Err(plain(StatusCode::BAD_REQUEST, &fault));
        }
    };
    let refused = |fault: &Fault| {
        let status = if fault.code == ErrorCode::INVALID_PARAMS.0 {
            StatusCode::BAD_REQUEST
        } else {
            fault.status()
        };
        super::refusal(status, &request.id, fault)
    };
    let stated = check(door, headers, &request).map_err(|fault| refused(&fault))?;
    let caller = caller(door, &guest, stated).await?;
    let slot = door.room(&guest, &request)?;
    Ok(match (door.mcp.answer(&caller, &request).await, slot) {
        (Answered::Now(outcome), _) => {
            let status = outcome.as_ref().map_or_else(Fault::status, |_| StatusCode::OK);
            let response = json_response(status, message::reply(&request.id, &outcome));
            caller.receipts.confirm_with(response)
        }
        (Answered::Logged { text, .. }, _) => json_response(StatusCode::OK, text),
        (Answered::Follow(call), Some(slot)) => sse::response(CallFeed::new(*call, slot, true)),
        (Answered::Listen(listen), Some(slot)) => {
            sse::response(ListenFeed { listen: *listen, slot, ended: false })
        }
        // Nothing is followed without room for it.
        (Answered::Follow(_) | Answered::Listen(_), None) => {
            return Err(refused(&Fault::internal("there is no room for the answer")));
        }
    })
}

/// Header and body must agree, and the body must say what is required.
fn check(door: &Door, headers: &HeaderMap, request: &Request) -> Result<Stated, Fault> {
    let version = stated::version(request)?;
    match headers.get(PROTOCOL_VERSION).and_then(|version| version.to_str().ok()) {
        None => return Err(Fault::header("MCP-Protocol-Version: is missing")),
        Some(header) if header != version => {
            let why = format!("MCP-Protocol-Version: is {header:?}, but the body says {version:?}");
            return Err(Fault::header(why));
        }
        Some(_) => {}
    }
    let stated = stated::stated(request)?;
    let tool = request.params.get("name").and_then(Value::as_str);
    let tool = tool.filter(|_| request.method == "tools/call");
    let listing = tool.and_then(|name| door.mcp.catalogue.tools.get(name));
    headers::check(headers, request, listing.map(|listing| &*listing.input_schema))?;
    Ok(stated)
}

async fn caller(door: &Door, guest: &Guest, stated: Stated) -> Result<Caller, Refusal> {
    let Mcp { app, daily, .. } = &*door.mcp;
    let way = Way::Token { principal: guest.principal.clone(), handle: stated.lane };
    let connection = daily.get(app, &guest.tenant.id, &guest.principal).await;
    Ok(Caller {
        connection: connection.map_err(problem)?,
        era: Era::Modern,
        capabilities: stated.capabilities,
        log_level: stated.log_level,
        identity: Identity::of(&way, &stated.client.name),
        session: guest.session.clone(),
        // Whoever goes away is noticed by the end of its socket.
        given_up: door.gate.draining().child_token(),
        receipts: Receipts::default(),
    })
}
