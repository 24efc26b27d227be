use std::collections::BTreeMap;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;
use crate::execution::Piece;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server of the older kind. Its tools are called after what they do.
struct Old {
    wanted: Wanted,
    /// What was posted, with the secret that came along.
    heard: mpsc::UnboundedReceiver<(String, Value)>,
}

impl Old {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/sse", listener.local_addr().unwrap());
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(serve(listener, tell));
        let wanted = Wanted {
            id: None,
            name: "old".to_owned(),
            transport: Transport::Sse { url },
            headers: BTreeMap::from([("Authorization".to_owned(), "Bearer 鍵".to_owned())]),
            allowed_tools: None,
            allow_private: true,
            is_own: false,
        };
        Self { wanted, heard }
    }

    async fn meet(&self) -> (SseLink, Vec<Tool>) {
        let (link, offer) = SseLink::meet(&self.wanted, PATIENCE).await.unwrap();
        (link, offer.tools)
    }

    /// Waits until this method was posted.
    async fn hears(&mut self, method: &str) -> (String, Value) {
        let hearing = async {
            loop {
                let heard = self.heard.recv().await.unwrap();
                if heard.1["method"] == method || (method.is_empty() && heard.1["id"] == "q1") {
                    return heard;
                }
            }
        };
        tokio::time::timeout(PATIENCE, hearing).await.expect(method)
    }
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
        let _ = connection.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await;
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
            (_, Some("flood")) => text(json!("水".repeat(4 * 1024 * 1024))),
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
    // Whoever listened may have had enough.
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

async fn call(link: &SseLink, name: &str, arguments: Value) -> (bool, String) {
    let tool = Tool::read(&json!({ "name": name })).unwrap();
    let answer = link.call(&tool, arguments.as_object().unwrap().clone()).await;
    let said = answer.content.iter().map(|piece| match piece {
        Piece::Text(text) => text.as_str(),
        Piece::Image { .. } => "<image>",
    });
    (answer.is_error, said.collect())
}

#[tokio::test]
async fn a_server_of_the_older_kind_is_called_with_its_secret() {
    let mut old = Old::start().await;
    let (link, tools) = old.meet().await;
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["repeat", "hang"], "all pages, without what cannot be called");
    // Answers find whoever waits for them, however many that are.
    let texts: Vec<_> = (0..20).map(|n| format!("木{n}")).collect();
    let calls = texts.iter().map(|text| call(&link, "repeat", json!({ "text": text })));
    let answers = futures_util::future::join_all(calls).await;
    let expected: Vec<_> = texts.iter().map(|text| (false, text.clone())).collect();
    assert_eq!(answers, expected);
    let (secret, sent) = old.hears("tools/call").await;
    assert_eq!(secret.trim(), "Bearer 鍵");
    assert_eq!(sent["params"]["name"], "repeat");
    assert_eq!(call(&link, "refuse", json!({})).await, (true, "it refused: 断る".to_owned()));
    // It may ask; nobody is there.
    assert_eq!(call(&link, "ask", json!({})).await, (false, "asked".to_owned()));
    let (_, reply) = old.hears("").await;
    assert_eq!(reply["error"]["code"], -32601, "{reply}");
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_cancelled_over_the_older_transport() {
    let mut old = Old::start().await;
    let (mut link, _) = old.meet().await;
    tokio::select! {
        answer = call(&link, "hang", json!({})) => panic!("{answer:?}"),
        (_, sent) = old.hears("tools/call") => assert_eq!(sent["params"]["name"], "hang"),
    }
    let (_, cancelled) = old.hears("notifications/cancelled").await;
    assert!(cancelled["params"]["requestId"].is_u64(), "{cancelled}");
    link.limit = Duration::from_secs(1);
    let slow = call(&link, "hang", json!({})).await;
    assert_eq!(slow, (true, "no answer within 1 s".to_owned()));
    old.hears("notifications/cancelled").await;
}

#[tokio::test]
async fn a_stream_that_ends_is_told_and_the_next_call_has_another() {
    let old = Old::start().await;
    let (link, _) = old.meet().await;
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
    let refused = SseLink::meet(&old.wanted, PATIENCE).await.err().unwrap();
    assert!(refused.contains("allow_private"), "{refused}");
    assert!(old.heard.try_recv().is_err(), "somebody knocked");
    let away = Transport::Sse { url: "http://127.0.0.1:1/sse".to_owned() };
    let wanted = Wanted { transport: away, allow_private: true, ..old.wanted.clone() };
    let refused = SseLink::meet(&wanted, PATIENCE).await.err().unwrap();
    assert!(refused.contains("cannot be reached"), "{refused}");
}
