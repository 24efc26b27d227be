//! Streamable HTTP, at `/mcp`: authenticates a request and hands it to its era.

mod connection_feed;
mod headers;
mod legacy;
mod modern;
mod open_calls;
mod sse;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use open_calls::OpenCalls;
use serde_json::Value;
use shikiri_app::problem::{Problem, ProblemCode};
use shikiri_model::connection::McpConnection;
use shikiri_model::ids::{ConnectionId, TenantId};
use shikiri_model::key::{KeyScope, SecretToken};
use shikiri_model::tenant::{Tenant, TenantStatus};
use shikiri_runtime::AppError;
use shikiri_tenancy::gate::{self, AccessGate, BodyMemory, OpenStream, PeerAddress};
use tokio_util::sync::CancellationToken;

use crate::mcp_caller::McpCallerSession;
use crate::message::{self, ClientMessage, RpcRequest as Message};
use crate::rpc_error::RpcError;
use crate::server::McpService;
use crate::tool_groups::ToolSelection;

const MAX_BODY: usize = 4 * 1024 * 1024;
/// For a whole body, from its head on.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long this node trusts what it read of a connection. Changes by other nodes show after it.
const FRESH: Duration = Duration::from_secs(2);
const MAX_REMEMBERED: usize = 20_000;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The route `/mcp`.
pub fn router(mcp: Arc<McpService>, gate: Arc<AccessGate>) -> Router {
    let endpoint = McpEndpoint {
        mcp,
        gate,
        connections: Mutex::default(),
        listeners: Mutex::default(),
        open_calls: OpenCalls::default(),
    };
    Router::new().route("/mcp", any(handle)).with_state(Arc::new(endpoint))
}

pub(crate) struct McpEndpoint {
    mcp: Arc<McpService>,
    gate: Arc<AccessGate>,
    /// Connections that were used a moment ago.
    connections: Mutex<HashMap<ConnectionId, (Instant, Arc<McpConnection>)>>,
    /// Ends the stream that a connection has open on this node.
    listeners: Mutex<HashMap<ConnectionId, CancellationToken>>,
    /// Calls that are being answered, which their clients may cancel by id.
    open_calls: OpenCalls,
}

/// The holder of a key, or an agent's session, and what it opens.
pub(crate) struct AuthenticatedCaller {
    secret: SecretToken,
    session: Option<Arc<McpCallerSession>>,
    tenant: Arc<Tenant>,
    principal: String,
    tools: ToolSelection,
}

/// An answer that is no protocol message, or one with an HTTP status of its own.
pub(crate) type HttpRefusal = Box<Response>;

async fn handle(State(endpoint): State<Arc<McpEndpoint>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let peer = parts.extensions.get::<PeerAddress>().copied();
    match endpoint.route_request(&parts, body, peer).await {
        Ok(response) => response,
        Err(refusal) => *refusal,
    }
}

impl McpEndpoint {
    async fn route_request(
        self: &Arc<Self>,
        Parts { method, headers, uri, .. }: &Parts,
        body: Body,
        peer: Option<PeerAddress>,
    ) -> Result<Response, HttpRefusal> {
        let mut authenticated = self.authenticate_request(headers, peer).await?;
        let tools = ToolSelection::of_address(uri)
            .map_err(|why| refusal_without_id(StatusCode::BAD_REQUEST, &RpcError::params(why)))?;
        authenticated.tools = tools.and(self.mcp.options.tools);
        let is_modern = modern::is_modern_header(headers);
        match *method {
            Method::POST => {
                // Held until the request is answered.
                let memory = self.gate.body_memory(Some(&authenticated.tenant.id));
                let incoming = read(headers, body, &memory).await?;
                if is_modern || modern::is_modern_body(&incoming) {
                    return modern::post(self, authenticated, headers, incoming).await;
                }
                legacy::post(self, authenticated, headers, incoming).await
            }
            Method::GET if !is_modern => legacy::get(self, authenticated, headers).await,
            Method::DELETE if !is_modern => legacy::delete(self, &authenticated, headers).await,
            _ => Err(not_allowed(is_modern)),
        }
    }

    /// Without a valid key nothing else is looked at.
    async fn authenticate_request(
        &self,
        headers: &HeaderMap,
        peer: Option<PeerAddress>,
    ) -> Result<AuthenticatedCaller, HttpRefusal> {
        let header = single(headers, &header::AUTHORIZATION)?;
        let secret = header.and_then(gate::bearer).ok_or_else(unauthorized)?;
        let (tenant, principal, session) = if secret.session_tenant().is_some() {
            let found = self.mcp.app.tenancy.live_session_for_token(&secret).await;
            // Sessions end by themselves, so a token that is none is no sign of guessing.
            let session = found.map_err(problem)?.ok_or_else(unauthorized)?;
            let (tenant, principal) = (session.tenant.clone(), session.id.to_string());
            let token = secret.clone();
            (tenant, principal, Some(Arc::new(McpCallerSession { token, session })))
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
        let tools = self.mcp.options.tools;
        Ok(AuthenticatedCaller { secret, session, tenant, principal, tools })
    }

    /// Whose key it is, and what it is called by.
    async fn key_holder(
        &self,
        secret: &SecretToken,
        peer: Option<PeerAddress>,
    ) -> Result<(TenantId, String), HttpRefusal> {
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
    async fn refuse_key(&self, peer: Option<PeerAddress>) -> HttpRefusal {
        match self.gate.slow_down(peer).await {
            Ok(()) => unauthorized(),
            Err(error) => problem(error),
        }
    }

    /// Reserves a stream if the answer may be one: without it the call must not begin.
    fn reserve_stream(
        &self,
        authenticated: &AuthenticatedCaller,
        request: &Message,
    ) -> Result<Option<OpenStream>, HttpRefusal> {
        if !self.mcp.may_stream(request) {
            return Ok(None);
        }
        let slot = self.gate.open_stream_for(&authenticated.secret, &authenticated.tenant);
        slot.map(Some).map_err(problem)
    }

    /// The connection of that id, if it is this caller's.
    async fn connection(
        &self,
        authenticated: &AuthenticatedCaller,
        id: &ConnectionId,
    ) -> Result<Option<Arc<McpConnection>>, AppError> {
        let known = lock(&self.connections).get(id).cloned();
        if let Some((since, connection)) = known
            && since.elapsed() < FRESH
        {
            return Ok(Some(connection).filter(|c| c.principal == authenticated.principal));
        }
        let since = Instant::now();
        let tenant = &authenticated.tenant.id;
        let found = self.mcp.app.tenancy.connection(tenant, id, &authenticated.principal).await?;
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
async fn read(
    headers: &HeaderMap,
    body: Body,
    memory: &BodyMemory,
) -> Result<ClientMessage, HttpRefusal> {
    headers::accepts(headers, &["application/json", "text/event-stream"])?;
    headers::is_json(headers)?;
    // A body without a length may be as long as the limit.
    let announced = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = announced.unwrap_or(MAX_BODY).min(MAX_BODY);
    memory.grow(bytes).await.map_err(problem)?;
    let body = tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, MAX_BODY)).await;
    let body: Bytes = match body {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            let too_long = error.into_inner().is::<http_body_util::LengthLimitError>();
            return Err(if too_long {
                refusal_without_id(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    &RpcError::request("the body is over 4 MiB"),
                )
            } else {
                refusal_without_id(StatusCode::BAD_REQUEST, &RpcError::parse("the body broke off"))
            });
        }
        Err(_) => {
            let fault = RpcError::request("the body did not come in time");
            return Err(refusal_without_id(StatusCode::REQUEST_TIMEOUT, &fault));
        }
    };
    message::parse(&body).map_err(|bad| refusal(StatusCode::BAD_REQUEST, &bad.id, &bad.fault))
}

/// A header that must not come twice: a proxy might read the other one.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, HttpRefusal> {
    let bad = |why: &str| {
        refusal_without_id(StatusCode::BAD_REQUEST, &RpcError::header(format!("{name}: {why}")))
    };
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

fn refusal(status: StatusCode, id: &Value, fault: &RpcError) -> HttpRefusal {
    Box::new(json_response(status, message::reply(id, &Err(fault.clone()))))
}

/// A refusal of something that has no id.
fn refusal_without_id(status: StatusCode, fault: &RpcError) -> HttpRefusal {
    refusal(status, &Value::Null, fault)
}

fn not_allowed(is_modern: bool) -> HttpRefusal {
    let allow = if is_modern { "POST" } else { "POST, GET, DELETE" };
    let mut response =
        refusal_without_id(StatusCode::METHOD_NOT_ALLOWED, &RpcError::request("use POST"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn unauthorized() -> HttpRefusal {
    let detail = "send a key: Authorization: Bearer KEY";
    let mut response = refused(&Problem::new(ProblemCode::Unauthorized, detail));
    let challenge = HeaderValue::from_static("Bearer realm=\"shikiri\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// What stops a request before it is one of the protocol, in the form that REST uses too.
fn problem(error: AppError) -> HttpRefusal {
    match error {
        AppError::NotFound { .. } => unauthorized(),
        error => refused(&error.into()),
    }
}

fn refused(problem: &Problem) -> HttpRefusal {
    Box::new(problem.to_response().map(Body::from))
}
