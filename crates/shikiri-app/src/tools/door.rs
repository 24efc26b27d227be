//! APIs as MCP servers on loopback, for an engine that is a program of its own: one door per run,
//! opened with a token that only this run's program is told. It is shut when the run ends, and then
//! nothing listens there any more.
//!
//! As little of the protocol as such a program needs, without sessions or streams: every request is
//! answered with one document.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use shikiri_model::server::Transport;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::LeftOut;
use super::api::ApiTools;
use super::definitions::DefinitionCheck;
use super::names::{Taken, is_allowed};
use crate::app::random;
use crate::execution::{Answer, Piece, Server, Tool, ToolBox as _};

/// Connections at once: a program has a few, with its subagents.
const MAX_CONNECTIONS: usize = 64;
const MAX_MESSAGE: usize = 4 * 1024 * 1024;
/// For a head that does not come.
const PATIENCE: Duration = Duration::from_secs(10);
/// Revisions that are spoken; the first is offered to a program that wants another.
const PROTOCOLS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// An open door. Dropped, it is shut, and calls that came through it are given up.
pub(crate) struct Door {
    _serving: AbortOnDropHandle<()>,
}

struct Shared {
    /// Of the token: what is compared says nothing about it.
    token: Vec<u8>,
    rooms: BTreeMap<String, Room>,
}

/// One API behind the door.
struct Room {
    tools: ApiTools,
    /// What is offered, by the name that the program sees: that of the tool.
    offered: BTreeMap<String, String>,
}

impl Door {
    /// Opens a door to the APIs among the servers, which become servers behind it; the others stay
    /// as they are. No door is opened where there is nothing behind it.
    pub(crate) async fn open(
        servers: Vec<Server>,
        check: &mut DefinitionCheck<'_>,
    ) -> (Vec<Server>, Option<Self>, LeftOut) {
        let (apis, mut given): (Vec<_>, Vec<_>) = servers
            .into_iter()
            .partition(|server| matches!(server.transport, Transport::Openapi { .. }));
        let (mut rooms, mut left_out) = (BTreeMap::new(), Vec::new());
        let opened = apis.iter().map(|server| async {
            let tools = ApiTools::open(server).await?;
            tools.is_in_reach().await?;
            Ok::<_, String>(tools)
        });
        let mut behind = Vec::new();
        for (server, opened) in apis.iter().zip(futures_util::future::join_all(opened).await) {
            match opened {
                Ok(tools) => {
                    let withheld = check.judge(server, tools.definitions()).await;
                    let room = Room::new(server, tools, &withheld);
                    behind.push((server.name.clone(), room.offered.keys().cloned().collect()));
                    rooms.insert(server.name.clone(), room);
                }
                Err(why) => left_out.push((server.name.clone(), why)),
            }
        }
        if rooms.is_empty() {
            return (given, None, left_out);
        }
        match Self::listen(rooms).await {
            Ok((door, port, token)) => {
                let server = |(name, tools): (String, Vec<String>)| Server {
                    id: None,
                    transport: Transport::Http { url: format!("http://127.0.0.1:{port}/{name}") },
                    headers: BTreeMap::from([(
                        "Authorization".to_owned(),
                        format!("Bearer {token}"),
                    )]),
                    name,
                    allowed_tools: Some(tools),
                    allow_private: true,
                    is_own: false,
                };
                given.extend(behind.into_iter().map(server));
                (given, Some(door), left_out)
            }
            Err(why) => {
                left_out.extend(behind.into_iter().map(|(name, _)| (name, why.clone())));
                (given, None, left_out)
            }
        }
    }

    async fn listen(rooms: BTreeMap<String, Room>) -> Result<(Self, u16, String), String> {
        let secret: [u8; 32] = random().map_err(|error| error.to_string())?;
        let token: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let failed = |error: std::io::Error| format!("no door on loopback can be opened: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let token_hash = digest(&SHA256, format!("Bearer {token}").as_bytes()).as_ref().to_vec();
        let shared = Arc::new(Shared { token: token_hash, rooms });
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, shared)));
        Ok((Self { _serving: serving }, port, token))
    }
}

/// Goes on until it is dropped, and all connections with it.
async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                let Ok((stream, _)) = accepted else {
                    // Too many files are open: in a moment there may be fewer.
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
                        .header_read_timeout(PATIENCE)
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

type Sent = Response<Full<Bytes>>;

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Sent {
        let shown = request.headers().get(header::AUTHORIZATION);
        let shown = shown.map(|value| digest(&SHA256, value.as_bytes()));
        if shown.is_none_or(|shown| shown.as_ref() != self.token) {
            return plain(StatusCode::UNAUTHORIZED);
        }
        let Some(room) = self.rooms.get(request.uri().path().trim_matches('/')) else {
            return plain(StatusCode::NOT_FOUND);
        };
        if request.method() != Method::POST {
            return plain(StatusCode::METHOD_NOT_ALLOWED);
        }
        let Ok(body) = Limited::new(request.into_body(), MAX_MESSAGE).collect().await else {
            return plain(StatusCode::PAYLOAD_TOO_LARGE);
        };
        let Ok(message) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
            return document(&error(&Value::Null, PARSE_ERROR, "this is no JSON"));
        };
        let id = &message["id"];
        match message["method"].as_str() {
            None if message.get("result").is_some() || message.get("error").is_some() => {
                plain(StatusCode::ACCEPTED)
            }
            None => document(&error(id, INVALID_REQUEST, "this is no request")),
            // What is told needs no answer.
            Some(_) if id.is_null() => plain(StatusCode::ACCEPTED),
            Some(method) => document(&match room.serve(method, &message["params"]).await {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Err((code, why)) => error(id, code, &why),
            }),
        }
    }
}

impl Room {
    fn new(server: &Server, tools: ApiTools, withheld: &BTreeSet<String>) -> Self {
        let mut taken = Taken::default();
        let allowed = server.allowed_tools.as_deref();
        let start = format!("mcp__{}__", super::names::as_in_names(&server.name));
        let offered = tools
            .tools()
            .iter()
            .filter(|tool| is_allowed(allowed, &server.name, &tool.name))
            .filter(|tool| !withheld.contains(&tool.name))
            .map(|tool| {
                // The program puts the server's name before it, and the whole must not be too long.
                let full = taken.of_server(&server.name, &tool.name);
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

fn listed(name: &str, tool: &Tool) -> Value {
    json!({
        "name": name, "description": tool.description, "inputSchema": tool.input_schema,
        "annotations": { "readOnlyHint": tool.is_repeatable },
    })
}

fn result(answer: Answer) -> Value {
    let piece = |piece: Piece| match piece {
        Piece::Text(text) => json!({ "type": "text", "text": text }),
        Piece::Image { media_type, data } => {
            json!({ "type": "image", "mimeType": media_type, "data": data })
        }
    };
    let content: Vec<Value> = answer.content.into_iter().map(piece).collect();
    json!({ "content": content, "isError": answer.is_error })
}

fn error(id: &Value, code: i64, why: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } })
}

fn plain(status: StatusCode) -> Sent {
    let mut sent = Response::new(Full::default());
    *sent.status_mut() = status;
    sent
}

fn document(message: &Value) -> Sent {
    let mut sent = Response::new(Full::new(Bytes::from(message.to_string())));
    let kind = header::HeaderValue::from_static("application/json");
    sent.headers_mut().insert(header::CONTENT_TYPE, kind);
    sent
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
