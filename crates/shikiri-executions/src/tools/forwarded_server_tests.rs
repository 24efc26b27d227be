use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::tools::tests::World;

const TOKEN: &str = "Bearer token-4711";

/// A server that answers each request with what the closure makes of it, and records it.
async fn upstream(
    answer: impl Fn(&str) -> String + Send + 'static,
) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = String::new();
            while !is_whole(&request) {
                let mut piece = vec![0; 4096];
                let read = stream.read(&mut piece).await.unwrap();
                assert!(read > 0, "{request}");
                request.push_str(std::str::from_utf8(&piece[..read]).unwrap());
            }
            let _ = stream.write_all(answer(&request).as_bytes()).await;
            let _ = tell.send(request);
        }
    });
    (origin, told)
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

/// An answer that ends with its connection.
fn response(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nConnection: close\r\n{headers}\r\n{body}")
}

fn hub(transport: McpServerTransport) -> ResolvedServer {
    ResolvedServer {
        id: None,
        name: "hub".to_owned(),
        transport,
        headers: [("Authorization", TOKEN), ("X-Own", "quo\"ted")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        allowed_tools: Some(vec!["one".to_owned()]),
        allow_private: true,
        is_own: false,
    }
}

/// The run's side of the loopback server.
struct Program {
    url: String,
    token: String,
    client: reqwest::Client,
    _door: crate::tools::LoopbackMcpServer,
}

impl Program {
    async fn of(server: ResolvedServer) -> Self {
        let is_sse = matches!(server.transport, McpServerTransport::Sse { .. });
        let (mut servers, door, left_out) =
            World::start().await.open_loopback_server(vec![server]).await;
        assert_eq!(left_out, []);
        let given = servers.remove(0);
        assert_eq!(given.allowed_tools, Some(vec!["one".to_owned()]));
        assert_eq!(matches!(given.transport, McpServerTransport::Sse { .. }), is_sse);
        let (McpServerTransport::Http { url } | McpServerTransport::Sse { url }) = given.transport
        else {
            panic!("no address")
        };
        assert!(url.starts_with("http://127.0.0.1:") && url.ends_with("/hub"), "{url}");
        assert!(!given.headers.values().any(|value| value.contains("4711")));
        let client = http_client_builder(&ProxyRules::default()).unwrap().build().unwrap();
        let token = given.headers["Authorization"].clone();
        Self { url, token, client, _door: door.unwrap() }
    }

    async fn ask(&self, method: Method, rest: &str, body: &str) -> (u16, HeaderMap, String) {
        let request = self.client.request(method, format!("{}{rest}", self.url));
        let request = request.header("authorization", &self.token).header("mcp-session-id", "s1");
        let answer = request.body(body.to_owned()).send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        (status, headers, answer.text().await.unwrap())
    }
}

#[tokio::test]
async fn a_server_gets_its_headers_and_the_program_never_sees_them() {
    let (origin, mut told) = upstream(|request| {
        let (head, _) = request.split_once("\r\n\r\n").unwrap();
        let repeated = Value::from(head).to_string();
        response(200, "Content-Type: application/json\r\nX-Sent: token-4711\r\n", &repeated)
    })
    .await;
    let url = format!("{origin}/mcp?x=1");
    let program = Program::of(hub(McpServerTransport::Http { url })).await;
    let (status, headers, body) = program.ask(Method::POST, "", "{\"a\":\"木\"}").await;
    let sent = told.recv().await.unwrap();
    assert!(sent.starts_with("POST /mcp?x=1 ") && sent.ends_with("{\"a\":\"木\"}"), "{sent}");
    for header in [
        "authorization: Bearer token-4711\r\n",
        "x-own: quo\"ted\r\n",
        "mcp-session-id: s1\r\n",
        "accept-encoding: identity\r\n",
    ] {
        assert!(sent.contains(header), "{header}: {sent}");
    }
    assert!(!sent.contains(&program.token), "{sent}");
    assert_eq!((status, &headers["x-sent"]), (200, &HeaderValue::from_static("[REDACTED]")));
    assert!(
        body.contains("authorization: [REDACTED]") && body.contains("x-own: [REDACTED]"),
        "{body}"
    );
    assert!(!body.contains("4711") && !body.contains("ted"), "{body}");
    // Nothing else of the server is reached, and nobody else reaches it.
    assert_eq!(program.ask(Method::POST, "/1", "").await.0, 404);
    assert_eq!(program.ask(Method::GET, "/../admin", "").await.0, 404);
    let strange = program.client.post(&program.url).send().await.unwrap();
    assert_eq!(strange.status(), 401);
    assert!(told.try_recv().is_err());
}

#[tokio::test]
async fn a_redirect_is_followed_within_the_server_only() {
    let (origin, mut told) = upstream(|request| match request.split(' ').nth(1).unwrap() {
        "/mcp" => response(307, "Location: /mcp/\r\n", ""),
        "/mcp/" => response(202, "", "kept"),
        _ => response(308, "Location: http://127.0.0.2:9/\r\n", ""),
    })
    .await;
    let at = |path: &str| McpServerTransport::Http { url: format!("{origin}{path}") };
    let program = Program::of(hub(at("/mcp"))).await;
    let (status, _, body) = program.ask(Method::POST, "", "twice").await;
    assert_eq!((status, body.as_str()), (202, "kept"));
    for _ in 0..2 {
        let sent = told.recv().await.unwrap();
        assert!(sent.contains(TOKEN) && sent.ends_with("twice"), "{sent}");
    }
    let astray = Program::of(hub(at("/away"))).await.ask(Method::POST, "", "x").await;
    assert_eq!((astray.0, astray.2.trim()), (502, "the server sends us on to another address"));
}

#[tokio::test]
async fn an_older_sse_server_is_posted_to_where_its_stream_says() {
    let (origin, mut told) = upstream(|request| match request.split(' ').nth(1).unwrap() {
        "/sse" => {
            let stream = "event: endpoint\ndata: /messages?session=7\n\ndata: token-4711 said\n\n";
            response(200, "Content-Type: text/event-stream\r\n", stream)
        }
        "/elsewhere" => {
            let stream = "event: endpoint\ndata: http://127.0.0.2:9/messages\n\n";
            response(200, "Content-Type: text/event-stream\r\n", stream)
        }
        _ => response(202, "", ""),
    })
    .await;
    let at = |path: &str| McpServerTransport::Sse { url: format!("{origin}{path}") };
    let program = Program::of(hub(at("/sse"))).await;
    assert_eq!(program.ask(Method::POST, "/1", "early").await.0, 404);
    let (_, headers, stream) = program.ask(Method::GET, "", "").await;
    assert_eq!(headers["content-type"], "text/event-stream");
    assert_eq!(stream, "event: endpoint\ndata: /hub/1\n\ndata: [REDACTED] said\n\n");
    assert!(told.recv().await.unwrap().starts_with("GET /sse "));
    assert_eq!(program.ask(Method::POST, "/1", "hello").await.0, 202);
    let sent = told.recv().await.unwrap();
    assert!(sent.starts_with("POST /messages?session=7 ") && sent.contains(TOKEN), "{sent}");
    let astray = Program::of(hub(at("/elsewhere"))).await.ask(Method::GET, "", "").await;
    assert_eq!((astray.0, astray.2.trim()), (502, "the server names an endpoint elsewhere"));
}

#[tokio::test]
async fn a_server_that_is_away_says_so_with_its_answer() {
    let url = "http://127.0.0.1:1/mcp".to_owned();
    let program = Program::of(hub(McpServerTransport::Http { url })).await;
    let (status, _, body) = program.ask(Method::POST, "", "x").await;
    assert!(status == 502 && body.starts_with("the server cannot be reached: "), "{body}");
}
