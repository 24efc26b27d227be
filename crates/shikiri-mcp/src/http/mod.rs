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
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use serde_json::{Value, json};
use shikiri_app::AppError;
use shikiri_app::gate::{self, Gate, OpenStream};
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
    match door.take(&parts.method, &parts.headers, body).await {
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
    ) -> Result<Response, Refusal> {
        let guest = self.admit(headers).await?;
        let is_modern = modern::is_named(headers);
        match *method {
            Method::POST => {
                let incoming = read(headers, body).await?;
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
    async fn admit(&self, headers: &HeaderMap) -> Result<Guest, Refusal> {
        let header = single(headers, &header::AUTHORIZATION)?;
        let secret = header.and_then(gate::bearer).ok_or_else(unauthorized)?;
        let (tenant, principal, session) = if secret.session_tenant().is_some() {
            let found = self.mcp.app.living_session_of(&secret).await;
            let session = found.map_err(|e| problem(&e))?.ok_or_else(unauthorized)?;
            let (tenant, principal) = (session.tenant.clone(), session.id.to_string());
            let token = secret.clone();
            (tenant, principal, Some(Arc::new(OwnSession { token, session })))
        } else {
            let (tenant, principal) = self.key_holder(&secret).await?;
            (tenant, principal, None)
        };
        let tenant = self.gate.tenant(&tenant).await.map_err(|e| problem(&e))?;
        if tenant.status == TenantStatus::Inactive {
            let id = tenant.id.to_string();
            return Err(problem(&AppError::Inactive { kind: "tenant", id }));
        }
        self.gate.count_request(&tenant).map_err(|e| problem(&e))?;
        Ok(Guest { secret, session, tenant, principal })
    }

    /// Whose key it is, and what it is called by.
    async fn key_holder(&self, secret: &Secret) -> Result<(TenantId, String), Refusal> {
        let caller = self.gate.caller(secret).await.map_err(|e| problem(&e))?;
        let caller = caller.ok_or_else(unauthorized)?;
        let tenant = match caller.scope {
            KeyScope::Admin => TenantId::local(),
            KeyScope::Tenant(tenant) => tenant,
            KeyScope::Hooks(_) => {
                let refused = "this key is for hooks alone".to_owned();
                return Err(problem(&AppError::Forbidden(refused)));
            }
        };
        Ok((tenant, caller.key.to_string()))
    }

    /// Room for the stream that the answer may be: a call that cannot be told of must not begin.
    fn room(&self, guest: &Guest, request: &Message) -> Result<Option<OpenStream>, Refusal> {
        if !self.mcp.may_stream(request) {
            return Ok(None);
        }
        let slot = self.gate.open_stream_for(&guest.secret, &guest.tenant);
        slot.map(Some).map_err(|error| problem(&error))
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
async fn read(headers: &HeaderMap, body: Body) -> Result<Incoming, Refusal> {
    headers::accepts(headers, &["application/json", "text/event-stream"])?;
    headers::is_json(headers)?;
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
    let mut response = problem_of(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", detail, None);
    let challenge = HeaderValue::from_static("Bearer realm=\"shikiri\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// What stops a request before it is one of the protocol, in the form that REST uses too.
fn problem(error: &AppError) -> Refusal {
    let (status, code) = match error {
        AppError::Limit { .. } => (StatusCode::TOO_MANY_REQUESTS, "LIMIT_EXCEEDED"),
        AppError::Inactive { .. } => (StatusCode::FORBIDDEN, "TENANT_INACTIVE"),
        AppError::Forbidden(_) => (StatusCode::FORBIDDEN, "FORBIDDEN"),
        AppError::NotFound { .. } => return unauthorized(),
        AppError::Unavailable(_) | AppError::Unknown(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR"),
    };
    let retry_after = match error {
        AppError::Limit { retry_after, .. } => Some(*retry_after),
        _ => None,
    };
    problem_of(status, code, &error.to_string(), retry_after)
}

fn problem_of(
    status: StatusCode,
    code: &str,
    detail: &str,
    retry_after: Option<Duration>,
) -> Refusal {
    let mut body = json!({
        "type": format!("urn:shikiri:problem:{code}"),
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "detail": detail,
        "code": code,
    });
    let mut headers = HeaderMap::new();
    let kind = HeaderValue::from_static("application/problem+json");
    headers.insert(header::CONTENT_TYPE, kind);
    if let Some(wait) = retry_after {
        body["retry_after_ms"] = json!(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
    }
    Box::new((status, headers, body.to_string()).into_response())
}
