use std::collections::BTreeMap;

use serde_json::json;
use shikiri_model::server::McpServerTransport;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;
use crate::execution::ToolContent;

const PATIENCE: Duration = Duration::from_secs(20);

const PROTOCOL: &str = "2024-11-05";
const ACCEPTED: &[u8] = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A server with the older transport. Its tools are named after what they do.
struct Old {
    wanted: ResolvedServer,
    /// Posted messages, each with its authorization header.
    posted: mpsc::UnboundedReceiver<(String, Value)>,
}

impl Old {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/sse", listener.local_addr().unwrap());
        let (tell, posted) = mpsc::unbounded_channel();
        tokio::spawn(serve(listener, tell));
        let wanted = ResolvedServer {
            id: None,
            name: "old".to_owned(),
            transport: McpServerTransport::Sse { url },
            headers: BTreeMap::from([("Authorization".to_owned(), "Bearer 鍵".to_owned())]),
            allowed_tools: None,
            allow_private: true,
            is_own: false,
        };
        Self { wanted, posted }
    }

    async fn meet(&self) -> (McpLink, Vec<ServerTool>) {
        let (link, offer) = connect(&self.wanted).await.unwrap();
        (link, offer.tools)
    }

    /// Waits until this method was posted.
    async fn wait_for(&mut self, method: &str) -> (String, Value) {
        let waiting = async {
            loop {
                let posted = self.posted.recv().await.unwrap();
                if posted.1["method"] == method || (method.is_empty() && posted.1["id"] == "q1") {
                    return posted;
                }
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect(method)
    }
}

async fn connect(wanted: &ResolvedServer) -> Result<(McpLink, ServerToolList), String> {
    McpLink::connect(wanted, Path::new(""), PATIENCE).await
}

async fn serve(listener: TcpListener, tell: mpsc::UnboundedSender<(String, Value)>) {
    let mut stream: Option<TcpStream> = None;
    let mut asking = Value::Null;
    while let Ok((mut connection, _)) = listener.accept().await {
        let (head, body) = request(&mut connection).await;
        if head.starts_with("GET /sse ") {
            let start = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n\
                         : hi\n\nevent: endpoint\ndata: /say?to=1\n\n";
            connection.write_all(start.as_bytes()).await.unwrap();
            stream = Some(connection);
            continue;
        }
        assert!(head.starts_with("POST /say?to=1 "), "{head}");
        let _ = connection.write_all(ACCEPTED).await;
        let message: Value = serde_json::from_slice(&body).unwrap();
        let secret = head.lines().find_map(|line| line.strip_prefix("authorization: "));
        let _ = tell.send((secret.unwrap_or_default().to_owned(), message.clone()));
        let (id, params) = (&message["id"], &message["params"]);
        let text = |text: Value| json!({ "content": [{ "type": "text", "text": text }] });
        let answer = match (message["method"].as_str(), params["name"].as_str()) {
            (Some("initialize"), _) => json!({ "protocolVersion": PROTOCOL }),
            (Some("tools/list"), _) if params["cursor"].is_null() => {
                json!({ "tools": [{ "name": "repeat" }, { "name": "" }], "nextCursor": "2" })
            }
            (Some("tools/list"), _) => json!({ "tools": [{ "name": "hang" }] }),
            (_, Some("repeat")) => text(params["arguments"]["text"].clone()),
            (_, Some("refuse")) => {
                let refused = json!({ "id": id, "error": { "code": 1, "message": "断る" } });
                say(&mut stream, &refused).await;
                continue;
            }
            (_, Some("ask")) => {
                asking = id.clone();
                let asks = json!({ "id": "q1", "method": "elicitation/create", "params": {} });
                say(&mut stream, &asks).await;
                continue;
            }
            (_, Some("flood")) => text(json!("水".repeat(6 * 1024 * 1024))),
            (_, Some("die")) => {
                stream = None;
                continue;
            }
            (None, _) if *id == "q1" => {
                let answer = json!({ "id": asking, "result": text(json!("asked")) });
                say(&mut stream, &answer).await;
                continue;
            }
            _ => continue,
        };
        say(&mut stream, &json!({ "id": id, "result": answer })).await;
    }
}

async fn say(stream: &mut Option<TcpStream>, message: &Value) {
    let frame = format!("event: message\r\ndata: {message}\r\n\r\n");
    // The client may have disconnected.
    let _ = stream.as_mut().unwrap().write_all(frame.as_bytes()).await;
}

async fn request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let (mut head, mut length, mut reader) = (String::new(), 0, BufReader::new(stream));
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.unwrap();
    (head, body)
}

async fn call(link: &Arc<McpLink>, name: &str, arguments: Value) -> (bool, String) {
    let tool = ServerTool::read(&json!({ "name": name })).unwrap();
    let answer = link.call(&tool, arguments.as_object().unwrap().clone()).await;
    let said = answer.content.iter().map(|piece| match piece {
        ToolContent::Text(text) => text.as_str(),
        ToolContent::Image { .. } => "<image>",
    });
    (answer.is_error, said.collect())
}

#[tokio::test]
async fn a_server_of_the_older_kind_is_called_with_its_secret() {
    let mut old = Old::start().await;
    let (link, tools) = old.meet().await;
    let link = Arc::new(link);
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["repeat", "hang"], "all pages, without what cannot be called");
    // Each of many parallel calls gets its own answer.
    let texts: Vec<_> = (0..20).map(|n| format!("木{n}")).collect();
    let calls = texts.iter().map(|text| call(&link, "repeat", json!({ "text": text })));
    let answers = futures_util::future::join_all(calls).await;
    let expected: Vec<_> = texts.iter().map(|text| (false, text.clone())).collect();
    assert_eq!(answers, expected);
    let (secret, sent) = old.wait_for("tools/call").await;
    assert_eq!(secret.trim(), "Bearer 鍵");
    assert_eq!(sent["params"]["name"], "repeat");
    assert_eq!(call(&link, "refuse", json!({})).await, (true, "断る (code 1)".to_owned()));
    // The server may ask, but there is no user to answer.
    assert_eq!(call(&link, "ask", json!({})).await, (false, "asked".to_owned()));
    let (_, reply) = old.wait_for("").await;
    assert_eq!(reply["error"]["code"], -32601, "{reply}");
}

#[tokio::test]
async fn an_abandoned_tool_call_is_cancelled_over_the_sse_transport() {
    let mut old = Old::start().await;
    let (link, _) = old.meet().await;
    let link = Arc::new(link);
    tokio::select! {
        answer = call(&link, "hang", json!({})) => panic!("{answer:?}"),
        (_, sent) = old.wait_for("tools/call") => assert_eq!(sent["params"]["name"], "hang"),
    }
    let (_, cancelled) = old.wait_for("notifications/cancelled").await;
    assert!(cancelled["params"]["requestId"].is_string(), "{cancelled}");
    let (mut link, _) = old.meet().await;
    link.limit = Duration::from_secs(1);
    let link = Arc::new(link);
    let slow = call(&link, "hang", json!({})).await;
    assert_eq!(slow, (true, "it had no answer by its time limit".to_owned()));
    old.wait_for("notifications/cancelled").await;
}

#[tokio::test]
async fn a_stream_that_ends_is_told_and_the_next_call_has_another() {
    let old = Old::start().await;
    let (link, _) = old.meet().await;
    let link = Arc::new(link);
    for deadly in ["die", "flood"] {
        let (is_error, said) = call(&link, deadly, json!({})).await;
        assert!(is_error && said.contains("not known"), "{deadly}: {said}");
        let again = call(&link, "repeat", json!({ "text": "又" })).await;
        assert_eq!(again, (false, "又".to_owned()), "after {deadly}");
    }
}

#[tokio::test]
async fn a_server_of_the_older_kind_at_a_private_address_is_left_alone() {
    let mut old = Old::start().await;
    old.wanted.allow_private = false;
    let refused = connect(&old.wanted).await.err().unwrap();
    assert!(refused.contains("allow_private"), "{refused}");
    assert!(old.posted.try_recv().is_err(), "a request arrived");
    let away = McpServerTransport::Sse { url: "http://127.0.0.1:1/sse".to_owned() };
    let wanted = ResolvedServer { transport: away, allow_private: true, ..old.wanted.clone() };
    let refused = connect(&wanted).await.err().unwrap();
    assert!(refused.contains("cannot be reached"), "{refused}");
}
