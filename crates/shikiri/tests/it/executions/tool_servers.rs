//! Servers that an execution's tools come from, as real as they need to be: each keeps what it was
//! asked.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;

pub(super) const PETSTORE: &str =
    include_str!("../../../../shikiri-openapi/tests/documents/petstore-3.0.yaml");

/// Serves on a port of its own, until the test's runtime ends. Gives the address.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// A pet store that keeps what it is asked.
#[derive(Clone, Default)]
pub(super) struct Pets(Arc<Mutex<Vec<Asked>>>);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) line: String,
    pub(super) authorization: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) body: String,
}

impl Pets {
    /// Gives its address.
    pub(super) async fn start(&self) -> String {
        serve(Router::new().fallback(sell).with_state(self.clone())).await
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        let all = self.0.lock().unwrap().clone();
        all.into_iter().filter(|asked| !asked.line.starts_with("HEAD ")).collect()
    }
}

async fn sell(State(pets): State<Pets>, request: Request) -> Response {
    let line = format!("{} {}", request.method(), request.uri());
    let header = |headers: &HeaderMap, name: &str| {
        let value = headers.get(name)?;
        Some(String::from_utf8(value.as_bytes().to_vec()).unwrap())
    };
    let authorization = header(request.headers(), "authorization");
    let content_type = header(request.headers(), "content-type");
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let is_document = line == "GET /spec.yaml";
    pets.0.lock().unwrap().push(Asked { line, authorization, content_type, body });
    if is_document {
        return PETSTORE.into_response();
    }
    Json(json!({ "id": 7, "name": "ポチ" })).into_response()
}

pub(super) fn record(url: &str) -> Value {
    json!({
        "name": "pets", "type": "openapi", "spec": PETSTORE, "url": format!("{url}/api/v3"),
        "headers_template": { "Authorization": "Bearer ${pets}" }, "allow_private": true,
    })
}

/// An MCP server with two tools: `read`, which says what it was called with and repeats the secret
/// that it was sent, and `write`. Its older transport is at `/sse`.
#[derive(Clone, Default)]
pub(super) struct Docs {
    eras: Eras,
    heard: Arc<Mutex<Vec<Message>>>,
    stream: Arc<Mutex<Option<mpsc::UnboundedSender<String>>>>,
}

/// The eras of the protocol that a server knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Eras {
    #[default]
    Older,
    Newer,
    Both,
}

/// What came in, and with which secret.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) authorization: String,
    pub(super) method: String,
    pub(super) params: Value,
}

/// What `read` gives for the page `全部`.
pub(super) const ALL_PAGES: usize = 400_000;

impl Docs {
    pub(super) fn speaking(eras: Eras) -> Self {
        Self { eras, ..Self::default() }
    }

    /// Gives its address.
    pub(super) async fn start(&self) -> String {
        let router = Router::new().fallback(answer).with_state(self.clone());
        serve(router).await
    }

    pub(super) fn heard(&self) -> Vec<Message> {
        self.heard.lock().unwrap().clone()
    }

    /// Calls of tools, as their names and arguments.
    pub(super) fn calls(&self) -> Vec<(String, Value)> {
        let calls = self.heard().into_iter().filter(|message| message.method == "tools/call");
        let call = |message: Message| {
            let name = message.params["name"].as_str().unwrap().to_owned();
            (name, message.params["arguments"].clone())
        };
        calls.map(call).collect()
    }

    /// The answer to a message; None if it is none that wants one.
    fn reply(&self, headers: &HeaderMap, body: &str) -> Option<Value> {
        let message: Value = serde_json::from_str(body).unwrap_or_default();
        let secret = headers.get("authorization").map_or("none", |value| value.to_str().unwrap());
        let (method, params) = (message["method"].as_str().unwrap_or_default(), &message["params"]);
        self.heard.lock().unwrap().push(Message {
            authorization: secret.to_owned(),
            method: method.to_owned(),
            params: params.clone(),
        });
        let id = message.get("id")?;
        let result = match method {
            "server/discover" if self.eras != Eras::Older => json!({
                "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
                "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "docs", "version": "1" } },
            }),
            "initialize" if self.eras != Eras::Newer => json!({
                "protocolVersion": params["protocolVersion"], "capabilities": { "tools": {} },
                "serverInfo": { "name": "docs", "version": "1" },
            }),
            "tools/list" => {
                let page = json!({ "page": { "type": "string" } });
                let schema = json!({ "type": "object", "properties": page });
                let tool = |name: &str| json!({ "name": name, "inputSchema": schema });
                json!({ "tools": [tool("read"), tool("write")] })
            }
            "tools/call" => {
                let page = &params["arguments"]["page"];
                let text = match page.as_str() {
                    Some("全部") => "x".repeat(ALL_PAGES),
                    _ => format!("{page} by {secret}"),
                };
                json!({ "content": [{ "type": "text", "text": text }] })
            }
            _ => {
                let error = json!({ "code": -32601, "message": "no such method" });
                return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
        };
        Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    }

    /// A stream of the older transport, which tells first where messages go.
    fn open(&self) -> Response {
        let (sender, receiver) = mpsc::unbounded_channel();
        let _ = sender.send("event: endpoint\ndata: /say\n\n".to_owned());
        *self.stream.lock().unwrap() = Some(sender);
        let frames = stream::unfold(receiver, async |mut receiver| {
            let frame: String = receiver.recv().await?;
            Some((Ok::<_, Infallible>(frame), receiver))
        });
        ([("content-type", "text/event-stream")], Body::from_stream(frames)).into_response()
    }
}

async fn answer(
    State(docs): State<Docs>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    match (method, uri.path()) {
        (Method::GET, "/sse") => docs.open(),
        (Method::POST, "/say") => {
            if let (Some(answer), Some(stream)) =
                (docs.reply(&headers, &body), &*docs.stream.lock().unwrap())
            {
                let _ = stream.send(format!("event: message\ndata: {answer}\n\n"));
            }
            StatusCode::ACCEPTED.into_response()
        }
        (Method::POST, "/mcp") => match docs.reply(&headers, &body) {
            Some(answer) => Json(answer).into_response(),
            None => StatusCode::ACCEPTED.into_response(),
        },
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}
