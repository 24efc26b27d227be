//! The loopback server of a run, for an engine that is a separate program. It offers APIs as MCP
//! servers, and forwards to MCP servers whose headers the program must not have. Each run has its own
//! listener, with a token that only this run's program knows. It is closed when the run ends.
//!
//! For an API it implements only the part of the protocol that such a program needs, without sessions
//! or streams: every request is answered with one document.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use shikiri_model::known_secrets::KnownSecrets;
use shikiri_model::server::McpServerTransport;
use shikiri_runtime::random;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::SkippedServers;
use super::api_tools::ApiTools;
use super::definition_check::DefinitionCheck;
use super::forwarded_server::ForwardedServer;
use super::tool_names::{ToolNames, is_allowed};
use crate::execution::{ResolvedServer, ToolBox as _, ToolCallResult, ToolContent, ToolSpec};

/// Simultaneous connections. A program with its subagents has a few.
const MAX_CONNECTIONS: usize = 64;
const MAX_MESSAGE: usize = 4 * 1024 * 1024;
/// Timeout for reading a request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Supported protocol revisions. The first is offered to a program that asks for another one.
const PROTOCOLS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// An open listener. Dropping it closes the listener and abandons its calls.
pub(crate) struct LoopbackMcpServer {
    _serving: AbortOnDropHandle<()>,
}

struct LoopbackState {
    /// Hash of the token, so that the comparison reveals nothing about it.
    token: Vec<u8>,
    entries: LoopbackEntries,
    secrets: KnownSecrets,
}

/// What the loopback server offers, by name.
#[derive(Default)]
struct LoopbackEntries {
    apis: BTreeMap<String, LoopbackApi>,
    forwarded: BTreeMap<String, ForwardedServer>,
}

/// One API of the loopback server.
struct LoopbackApi {
    tools: ApiTools,
    /// Offered tools: the name that the program sees → the tool's own name.
    offered: BTreeMap<String, String>,
}

/// Whether a program must not reach this server by itself: it is no MCP server, or its headers are
/// secrets.
fn is_behind_loopback(server: &ResolvedServer) -> bool {
    match &server.transport {
        McpServerTransport::Openapi { .. } => true,
        McpServerTransport::Http { .. } | McpServerTransport::Sse { .. } => {
            !server.headers.is_empty()
        }
        McpServerTransport::Stdio { .. } => false,
    }
}

impl LoopbackMcpServer {
    /// Opens a listener for the APIs and the servers with headers, and replaces each by a server on
    /// it. Other servers are returned unchanged. Without any, no listener is opened. `secrets` are
    /// removed from answers.
    pub(crate) async fn open(
        servers: Vec<ResolvedServer>,
        secrets: &KnownSecrets,
        check: &mut DefinitionCheck<'_>,
    ) -> (Vec<ResolvedServer>, Option<Self>, SkippedServers) {
        let (behind, mut given): (Vec<_>, Vec<_>) =
            servers.into_iter().partition(is_behind_loopback);
        let (mut entries, mut left_out) = (LoopbackEntries::default(), Vec::new());
        let opened = behind.iter().map(|server| open_entry(server, secrets));
        let opened = futures_util::future::join_all(opened).await;
        let mut offered = Vec::new();
        for (server, opened) in behind.into_iter().zip(opened) {
            let allowed_tools = match opened {
                Ok(LoopbackEntry::Forwarded(forwarded)) => {
                    entries.forwarded.insert(server.name.clone(), *forwarded);
                    server.allowed_tools.clone()
                }
                Ok(LoopbackEntry::Api(tools)) => {
                    let withheld = check.find_withheld_tools(&server, tools.definitions()).await;
                    let api = LoopbackApi::new(&server, *tools, &withheld);
                    let names = api.offered.keys().cloned().collect();
                    entries.apis.insert(server.name.clone(), api);
                    Some(names)
                }
                Err(why) => {
                    left_out.push((server.name, why));
                    continue;
                }
            };
            offered.push(ResolvedServer { allowed_tools, ..server });
        }
        if offered.is_empty() {
            return (given, None, left_out);
        }
        match Self::listen(entries, secrets.clone().with_json_escapes()).await {
            Ok((loopback_server, port, token)) => {
                given.extend(offered.into_iter().map(|server| moved(server, port, &token)));
                (given, Some(loopback_server), left_out)
            }
            Err(why) => {
                left_out.extend(offered.into_iter().map(|server| (server.name, why.clone())));
                (given, None, left_out)
            }
        }
    }

    async fn listen(
        entries: LoopbackEntries,
        secrets: KnownSecrets,
    ) -> Result<(Self, u16, String), String> {
        let secret: [u8; 32] = random().map_err(|error| error.to_string())?;
        let token = hex::encode(secret);
        let failed = |error: std::io::Error| format!("no port on loopback can be opened: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let token_hash = digest(&SHA256, format!("Bearer {token}").as_bytes()).as_ref().to_vec();
        let shared = Arc::new(LoopbackState { token: token_hash, entries, secrets });
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, shared)));
        Ok((Self { _serving: serving }, port, token))
    }
}

enum LoopbackEntry {
    Api(Box<ApiTools>),
    Forwarded(Box<ForwardedServer>),
}

async fn open_entry(
    server: &ResolvedServer,
    secrets: &KnownSecrets,
) -> Result<LoopbackEntry, String> {
    if !matches!(server.transport, McpServerTransport::Openapi { .. }) {
        let forwarded = ForwardedServer::open(server, secrets).await?;
        return Ok(LoopbackEntry::Forwarded(Box::new(forwarded)));
    }
    let tools = ApiTools::open(server).await?;
    tools.is_in_reach().await?;
    Ok(LoopbackEntry::Api(Box::new(tools)))
}

/// The server as the run's program reaches it.
fn moved(server: ResolvedServer, port: u16, token: &str) -> ResolvedServer {
    let url = format!("http://127.0.0.1:{port}/{}", server.name);
    let transport = match server.transport {
        McpServerTransport::Sse { .. } => McpServerTransport::Sse { url },
        _ => McpServerTransport::Http { url },
    };
    let headers = [("Authorization".to_owned(), format!("Bearer {token}"))].into();
    ResolvedServer { transport, headers, allow_private: true, ..server }
}

/// Serves until it is dropped, and all connections with it.
async fn serve(listener: TcpListener, shared: Arc<LoopbackState>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                let Ok((stream, _)) = accepted else {
                    // Too many files are open: try again in a moment.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let _ = stream.set_nodelay(true);
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let shared = Arc::clone(&shared);
                        async move { Ok::<_, Infallible>(shared.answer(request).await) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(HEADER_TIMEOUT)
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// An answer; its body ends with an error if the server behind it breaks off.
pub(super) type LoopbackResponse = Response<UnsyncBoxBody<Bytes, reqwest::Error>>;

impl LoopbackState {
    async fn answer(&self, request: Request<Incoming>) -> LoopbackResponse {
        let shown = request.headers().get(header::AUTHORIZATION);
        let shown = shown.map(|value| digest(&SHA256, value.as_bytes()));
        if shown.is_none_or(|shown| shown.as_ref() != self.token) {
            return plain(StatusCode::UNAUTHORIZED);
        }
        let (head, body) = request.into_parts();
        let path = head.uri.path().trim_start_matches('/');
        let (name, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
        let rest = rest.trim_end_matches('/');
        let api = self.entries.apis.get(name).filter(|_| rest.is_empty());
        let forwarded = self.entries.forwarded.get(name);
        if api.is_none() && forwarded.is_none() {
            return plain(StatusCode::NOT_FOUND);
        }
        if forwarded.is_none() && head.method != Method::POST {
            return plain(StatusCode::METHOD_NOT_ALLOWED);
        }
        let Ok(body) = Limited::new(body, MAX_MESSAGE).collect().await else {
            return plain(StatusCode::PAYLOAD_TOO_LARGE);
        };
        let body = body.to_bytes();
        match (forwarded, api) {
            (Some(server), _) => server.forward(head.method, rest, head.headers, body).await,
            (None, Some(api)) => self.answer_for_api(api, &body).await,
            (None, None) => plain(StatusCode::NOT_FOUND),
        }
    }

    async fn answer_for_api(&self, api: &LoopbackApi, body: &[u8]) -> LoopbackResponse {
        let Ok(message) = serde_json::from_slice::<Value>(body) else {
            return self.document(&error(&Value::Null, PARSE_ERROR, "this is no JSON"));
        };
        let id = &message["id"];
        match message["method"].as_str() {
            None if message.get("result").is_some() || message.get("error").is_some() => {
                plain(StatusCode::ACCEPTED)
            }
            None => self.document(&error(id, INVALID_REQUEST, "this is no request")),
            // A notification needs no answer.
            Some(_) if id.is_null() => plain(StatusCode::ACCEPTED),
            Some(method) => self.document(&match api.serve(method, &message["params"]).await {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Err((code, why)) => error(id, code, &why),
            }),
        }
    }

    /// A JSON document, without the secrets that an API may have repeated.
    fn document(&self, message: &Value) -> LoopbackResponse {
        let mut sent = Response::new(body(self.secrets.redact(&message.to_string())));
        let kind = header::HeaderValue::from_static("application/json");
        sent.headers_mut().insert(header::CONTENT_TYPE, kind);
        sent
    }
}

impl LoopbackApi {
    fn new(server: &ResolvedServer, tools: ApiTools, withheld: &BTreeSet<String>) -> Self {
        let mut taken = ToolNames::default();
        let allowed = server.allowed_tools.as_deref();
        let start = format!("mcp__{}__", super::tool_names::sanitize_name(&server.name));
        let offered = tools
            .tools()
            .iter()
            .filter(|tool| is_allowed(allowed, &server.name, &tool.name))
            .filter(|tool| !withheld.contains(&tool.name))
            .map(|tool| {
                // The program prefixes the server's name, and the whole name must not be too long.
                let full = taken.claim_name(&server.name, &tool.name);
                let short = full.strip_prefix(&start).unwrap_or(&tool.name);
                (short.to_owned(), tool.name.clone())
            })
            .collect();
        Self { tools, offered }
    }

    async fn serve(&self, method: &str, params: &Value) -> Result<Value, (i64, String)> {
        match method {
            "initialize" => {
                let wanted = params["protocolVersion"].as_str().unwrap_or_default();
                let known = PROTOCOLS.iter().find(|known| **known == wanted);
                Ok(json!({
                    "protocolVersion": known.unwrap_or(&PROTOCOLS[0]),
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "shikiri", "version": env!("CARGO_PKG_VERSION") },
                }))
            }
            "ping" => Ok(json!({})),
            "tools/list" => {
                let tools = self.offered.iter().filter_map(|(name, tool)| {
                    let tool = self.tools.tools().iter().find(|known| known.name == *tool)?;
                    Some(listed(name, tool))
                });
                Ok(json!({ "tools": tools.collect::<Vec<_>>() }))
            }
            "tools/call" => {
                let name = params["name"].as_str().unwrap_or_default();
                let tool = self.offered.get(name);
                let tool =
                    tool.ok_or_else(|| (INVALID_PARAMS, format!("there is no tool {name}")))?;
                Ok(result(self.tools.call(tool, &params["arguments"]).await))
            }
            other => Err((METHOD_NOT_FOUND, format!("{other} is not offered"))),
        }
    }
}

fn listed(name: &str, tool: &ToolSpec) -> Value {
    json!({
        "name": name, "description": tool.description, "inputSchema": tool.input_schema,
        "annotations": { "readOnlyHint": tool.is_repeatable },
    })
}

fn result(answer: ToolCallResult) -> Value {
    let piece = |piece: ToolContent| match piece {
        ToolContent::Text(text) => json!({ "type": "text", "text": text }),
        ToolContent::Image { media_type, data } => {
            json!({ "type": "image", "mimeType": media_type, "data": data })
        }
    };
    let content: Vec<Value> = answer.content.into_iter().map(piece).collect();
    json!({ "content": content, "isError": answer.is_error })
}

fn error(id: &Value, code: i64, why: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } })
}

fn plain(status: StatusCode) -> LoopbackResponse {
    text(status, "")
}

pub(super) fn text(status: StatusCode, text: &str) -> LoopbackResponse {
    let mut sent = Response::new(body(text.to_owned()));
    *sent.status_mut() = status;
    sent
}

fn body(content: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, reqwest::Error> {
    Full::new(content.into()).map_err(|never| match never {}).boxed_unsync()
}

#[cfg(test)]
#[path = "loopback_server_tests.rs"]
mod tests;
