//! Streamable HTTP, at `/mcp`: who calls, and in which era.

mod connected;
mod given_up;
mod headers;
mod legacy;
mod modern;
mod sse;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use serde_json::Value;
use shikiri_app::AppError;
use shikiri_app::gate::{self, BodyMemory, Gate, OpenStream, Peer};
use shikiri_app::problem::{PROBLEM_JSON, Problem, ProblemCode};
use shikiri_model::connection::Connection;
use shikiri_model::ids::{ConnectionId, TenantId};
use shikiri_model::key::{KeyScope, Secret};
use shikiri_model::tenant::{Tenant, TenantStatus};
use tokio_util::sync::CancellationToken;

use crate::client::OwnSession;
use crate::fault::Fault;
use crate::message::{self, Incoming, Request as Message};
use crate::server::Mcp;
use given_up::OpenCalls;

const MAX_BODY: usize = 4 * 1024 * 1024;
/// For a whole body, from its head on.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// What this node remembers of a connection; what another changes shows after so long.
const FRESH: Duration = Duration::from_secs(2);
const MAX_REMEMBERED: usize = 20_000;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The routes of this door.
pub fn router(mcp: Arc<Mcp>, gate: Arc<Gate>) -> Router {
    let door = Door {
        mcp,
        gate,
        connections: Mutex::default(),
        listeners: Mutex::default(),
        open_calls: OpenCalls::default(),
    };
    Router::new().route("/mcp", any(handle)).with_state(Arc::new(door))
}

pub(crate) struct Door {
    mcp: Arc<Mcp>,
    gate: Arc<Gate>,
    /// Connections that were used a moment ago.
    connections: Mutex<HashMap<ConnectionId, (Instant, Arc<Connection>)>>,
    /// Ends the stream that a connection has open on this node.
    listeners: Mutex<HashMap<ConnectionId, CancellationToken>>,
    /// Calls that are being answered, to be given up by name.
    open_calls: OpenCalls,
}

/// The holder of a key, or an agent's session, and what it opens.
pub(crate) struct Guest {
    secret: Secret,
    session: Option<Arc<OwnSession>>,
    tenant: Arc<Tenant>,
    principal: String,
}

/// An answer that is no message of the protocol, or one under a status of its own.
pub(crate) type Refusal = Box<Response>;

async fn handle(State(door): State<Arc<Door>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().copied();
    match door.take(&parts.method, &parts.headers, body, peer).await {
        Ok(response) => response,
        Err(refusal) => *refusal,
    }
}

impl Door {
    async fn take(
        self: &Arc<Self>,
        method: &Method,
        headers: &HeaderMap,
        body: Body,
        peer: Option<Peer>,
    ) -> Result<Response, Refusal> {
        let guest = self.admit(headers, peer).await?;
        let is_modern = modern::is_named(headers);
        match *method {
            Method::POST => {
                // Held until the request is answered.
                let memory = self.gate.body_memory(Some(&guest.tenant.id));
                let incoming = read(headers, body, &memory).await?;
                if is_modern || modern::is_meant(&incoming) {
                    return modern::post(self, guest, headers, incoming).await;
                }
                legacy::post(self, guest, headers, incoming).await
            }
            Method::GET if !is_modern => legacy::get(self, guest, headers).await,
            Method::DELETE if !is_modern => legacy::delete(self, &guest, headers).await,
            _ => Err(not_allowed(is_modern)),
        }
    }

    /// Without a valid key nothing else is looked at.
    async fn admit(&self, headers: &HeaderMap, peer: Option<Peer>) -> Result<Guest, Refusal> {
        let header = single(headers, &header::AUTHORIZATION)?;
        let secret = header.and_then(gate::bearer).ok_or_else(unauthorized)?;
        let (tenant, principal, session) = if secret.session_tenant().is_some() {
            let found = self.mcp.app.living_session_of(&secret).await;
            // Sessions end by themselves, so a token that is none is no sign of guessing.
            let session = found.map_err(problem)?.ok_or_else(unauthorized)?;
            let (tenant, principal) = (session.tenant.clone(), session.id.to_string());
            let token = secret.clone();
            (tenant, principal, Some(Arc::new(OwnSession { token, session })))
        } else {
            let (tenant, principal) = self.key_holder(&secret, peer).await?;
            (tenant, principal, None)
        };
        let tenant = self.gate.tenant(&tenant).await.map_err(problem)?;
        if tenant.status == TenantStatus::Inactive {
            let id = tenant.id.to_string();
            return Err(problem(AppError::Inactive { kind: "tenant", id }));
        }
        self.gate.count_request(&tenant).map_err(problem)?;
        Ok(Guest { secret, session, tenant, principal })
    }

    /// Whose key it is, and what it is called by.
    async fn key_holder(
        &self,
        secret: &Secret,
        peer: Option<Peer>,
    ) -> Result<(TenantId, String), Refusal> {
        let caller = self.gate.caller(secret).await.map_err(problem)?;
        let Some(caller) = caller else { return Err(self.refuse_key(peer).await) };
        let tenant = match caller.scope {
            KeyScope::Admin => TenantId::local(),
            KeyScope::Tenant(tenant) => tenant,
            KeyScope::Hooks(_) => {
                let refused = "this key is for hooks alone".to_owned();
                return Err(problem(AppError::Forbidden(refused)));
            }
        };
        Ok((tenant, caller.key.to_string()))
    }

    /// For a key that opens nothing.
    async fn refuse_key(&self, peer: Option<Peer>) -> Refusal {
        match self.gate.slow_down(peer).await {
            Ok(()) => unauthorized(),
            Err(error) => problem(error),
        }
    }

    /// Room for the stream that the answer may be: a call that cannot be told of must not begin.
    fn room(&self, guest: &Guest, request: &Message) -> Result<Option<OpenStream>, Refusal> {
        if !self.mcp.may_stream(request) {
            return Ok(None);
        }
        let slot = self.gate.open_stream_for(&guest.secret, &guest.tenant);
        slot.map(Some).map_err(problem)
    }

    /// The connection of that id, if it is this guest's.
    async fn connection(
        &self,
        guest: &Guest,
        id: &ConnectionId,
    ) -> Result<Option<Arc<Connection>>, AppError> {
        let known = lock(&self.connections).get(id).cloned();
        if let Some((since, connection)) = known
            && since.elapsed() < FRESH
        {
            return Ok(Some(connection).filter(|c| c.principal == guest.principal));
        }
        let since = Instant::now();
        let tenant = &guest.tenant.id;
        let found = self.mcp.app.connection(tenant, id, &guest.principal).await?;
        let Some(found) = found.map(Arc::new) else {
            self.forget(id);
            return Ok(None);
        };
        let mut connections = lock(&self.connections);
        if connections.len() >= MAX_REMEMBERED {
            connections.clear();
        }
        connections.insert(id.clone(), (since, Arc::clone(&found)));
        Ok(Some(found))
    }

    fn forget(&self, id: &ConnectionId) {
        lock(&self.connections).remove(id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The one message of a request.
async fn read(headers: &HeaderMap, body: Body, memory: &BodyMemory) -> Result<Incoming, Refusal> {
    headers::accepts(headers, &["application/json", "text/event-stream"])?;
    headers::is_json(headers)?;
    // A body whose length is not told may be as long as any.
    let announced = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = announced.unwrap_or(MAX_BODY).min(MAX_BODY);
    memory.grow(bytes).await.map_err(problem)?;
    let body = tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, MAX_BODY)).await;
    let body: Bytes = match body {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            let too_long = error.into_inner().is::<http_body_util::LengthLimitError>();
            return Err(if too_long {
                plain(StatusCode::PAYLOAD_TOO_LARGE, &Fault::request("the body is over 4 MiB"))
            } else {
                plain(StatusCode::BAD_REQUEST, &Fault::parse("the body broke off"))
            });
        }
        Err(_) => {
            let fault = Fault::request("the body did not come in time");
            return Err(plain(StatusCode::REQUEST_TIMEOUT, &fault));
        }
    };
    message::parse(&body).map_err(|bad| refusal(StatusCode::BAD_REQUEST, &bad.id, &bad.fault))
}

/// A header that must not come twice: a proxy might read the other one.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let bad = |why: &str| plain(StatusCode::BAD_REQUEST, &Fault::header(format!("{name}: {why}")));
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(bad("was sent twice"));
    }
    first.map(HeaderValue::to_str).transpose().map_err(|_| bad("is not text"))
}

fn json_response(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

fn refusal(status: StatusCode, id: &Value, fault: &Fault) -> Refusal {
    Box::new(json_response(status, message::reply(id, &Err(fault.clone()))))
}

/// A refusal of something that has no id.
fn plain(status: StatusCode, fault: &Fault) -> Refusal {
    refusal(status, &Value::Null, fault)
}

fn not_allowed(is_modern: bool) -> Refusal {
    let allow = if is_modern { "POST" } else { "POST, GET, DELETE" };
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, &Fault::request("use POST"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn unauthorized() -> Refusal {
    let detail = "send a key: Authorization: Bearer KEY";
    let mut response = refused(&Problem::new(ProblemCode::Unauthorized, detail));
    let challenge = HeaderValue::from_static("Bearer realm=\"shikiri\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// What stops a request before it is one of the protocol, in the form that REST uses too.
fn problem(error: AppError) -> Refusal {
    match error {
        AppError::NotFound { .. } => unauthorized(),
        error => refused(&error.into()),
    }
}

fn refused(problem: &Problem) -> Refusal {
    let (status, ..) = problem.code.row();
    let Ok(body) = serde_json::to_vec(&problem.body()) else {
        return Box::new(status.into_response());
    };
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    if let Some(seconds) = problem.retry_after_seconds() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    Box::new(response)
}
