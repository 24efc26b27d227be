//! The newer era: every request stands alone. Nothing is resumed; a client that goes away has
//! given up the request, and the run goes on.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rmcp::model::ErrorCode;
use serde_json::Value;
use shikiri_app::connections::NewConnection;
use shikiri_model::connection::{ClientInfo, Connection, LogLevel};

use super::sse::{self, CallFeed, ListenFeed};
use super::{Door, Guest, PROTOCOL_VERSION, Refusal, headers, json_response, lock, plain, problem};
use crate::client::{self, Caller, Era, MODERN};
use crate::fault::Fault;
use crate::message::{self, Incoming, Request};
use crate::server::Answered;

const META: &str = "io.modelcontextprotocol/";

/// Whether the header names this era.
pub(super) fn is_named(headers: &HeaderMap) -> bool {
    headers.get(PROTOCOL_VERSION).is_some_and(|version| version == MODERN)
}

/// Whether the body can only be of this era. The handshake exists in the older one alone.
pub(super) fn is_meant(incoming: &Incoming) -> bool {
    match incoming {
        Incoming::Request(request) if request.method == "initialize" => false,
        Incoming::Request(request) => {
            request.method == "server/discover" || meta(request, "protocolVersion").is_some()
        }
        _ => false,
    }
}

fn meta<'a>(request: &'a Request, name: &str) -> Option<&'a Value> {
    request.meta_value(&format!("{META}{name}"))
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
            if request.method == "initialize" && meta(&request, "protocolVersion").is_none() =>
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
    let answered = door.mcp.answer(&caller, &request).await;
    let slot = || {
        let slot = door.gate.open_stream(&guest.caller, &guest.tenant);
        slot.map_err(|error| problem(&error))
    };
    Ok(match answered {
        Answered::Now(outcome) => {
            let status = outcome.as_ref().map_or_else(Fault::status, |_| StatusCode::OK);
            json_response(status, message::reply(&request.id, &outcome))
        }
        Answered::Logged { text, .. } => json_response(StatusCode::OK, text),
        Answered::Follow(call) => sse::response(CallFeed::new(*call, slot()?, true)),
        Answered::Listen(listen) => {
            sse::response(ListenFeed { listen: *listen, slot: slot()?, ended: false })
        }
    })
}

/// What a request says about its sender.
struct Stated {
    capabilities: Arc<Value>,
    client: ClientInfo,
    log_level: Option<LogLevel>,
}

/// Header and body must agree, and the body must say what is required.
fn check(door: &Door, headers: &HeaderMap, request: &Request) -> Result<Stated, Fault> {
    let header = headers.get(PROTOCOL_VERSION).and_then(|version| version.to_str().ok());
    let version = meta(request, "protocolVersion").and_then(Value::as_str);
    let missing = |name: &str| Fault::params(format!("_meta.{META}{name}: is missing"));
    let version = version.ok_or_else(|| missing("protocolVersion"))?;
    match header {
        None => return Err(Fault::header("MCP-Protocol-Version: is missing")),
        Some(header) if header != version => {
            let why = format!("MCP-Protocol-Version: is {header:?}, but the body says {version:?}");
            return Err(Fault::header(why));
        }
        Some(_) if version != MODERN => {
            let mut supported = vec![MODERN];
            supported.extend(client::LEGACY);
            return Err(Fault::version(version, &supported));
        }
        Some(_) => {}
    }
    let capabilities = meta(request, "clientCapabilities").filter(|value| value.is_object());
    let capabilities = capabilities.ok_or_else(|| missing("clientCapabilities"))?;
    let tool = request.params.get("name").and_then(Value::as_str);
    let tool = tool.filter(|_| request.method == "tools/call");
    let listing = tool.and_then(|name| door.mcp.catalogue.tools.get(name));
    headers::check(headers, request, listing.map(|listing| &*listing.input_schema))?;
    let log_level = match meta(request, "logLevel") {
        None => None,
        Some(level) => {
            let bad = |_| Fault::params(format!("_meta.{META}logLevel: is no level"));
            Some(serde_json::from_value(level.clone()).map_err(bad)?)
        }
    };
    Ok(Stated {
        capabilities: Arc::new(capabilities.clone()),
        client: client::client_info(meta(request, "clientInfo")).unwrap_or_default(),
        log_level,
    })
}

async fn caller(door: &Door, guest: &Guest, stated: Stated) -> Result<Caller, Refusal> {
    let instance = client::instance(&stated.client, &guest.principal);
    Ok(Caller {
        connection: daily(door, guest).await?,
        era: Era::Modern,
        capabilities: stated.capabilities,
        log_level: stated.log_level,
        instance,
    })
}

/// Where this caller's calls of today are written down.
async fn daily(door: &Door, guest: &Guest) -> Result<Arc<Connection>, Refusal> {
    let app = &door.mcp.app;
    let now = app.store().now().await.map_err(|error| problem(&error.into()))?;
    let day = now.as_millis() / 86_400_000;
    let known = lock(&door.daily).get(&guest.principal).cloned();
    if let Some((_, connection)) = known.filter(|(known, _)| *known == day) {
        return Ok(connection);
    }
    let new = NewConnection {
        tenant: guest.tenant.id.clone(),
        principal: guest.principal.clone(),
        protocol: MODERN.to_owned(),
        client: ClientInfo::default(),
        capabilities: Value::Null,
    };
    let connection = app.daily_connection(new).await.map_err(|error| problem(&error))?;
    let connection = Arc::new(connection);
    let mut daily = lock(&door.daily);
    if daily.len() >= super::MAX_REMEMBERED {
        daily.clear();
    }
    daily.insert(guest.principal.clone(), (day, Arc::clone(&connection)));
    Ok(connection)
}
