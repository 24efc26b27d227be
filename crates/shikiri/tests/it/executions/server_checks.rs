//! Trying MCP servers: over HTTP, over the older event stream, and as programs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_testkit::{Tenant, TestApp};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::PROGRAM;

/// Makes a server as the admin, and gives the path of its check.
async fn checked(app: &TestApp, tenant: &Tenant, body: Value) -> String {
    let made = app.client().post(&tenant.path("/mcp-servers"), &body).await.expect(201);
    tenant.path(&format!("/mcp-servers/{}/check", made["id"].as_str().unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_speaks_http_is_tried_with_the_callers_tokens() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("user").await;
    // Shikiri is an MCP server itself.
    let body = json!({
        "name": "self", "type": "http", "url": format!("http://127.0.0.1:{}/mcp", app.port()),
        "headers_template": { "Authorization": "Bearer ${key}" }, "allow_private": true,
    });
    let path = checked(&app, &tenant, body.clone()).await;
    let try_with =
        async |tokens: Value| tenant.client.post(&path, &json!({ "tokens": tokens })).await;
    let report = try_with(json!({ "key": tenant.key })).await.expect(200);
    assert_eq!(
        (&report["reachable"], &report["server"]["name"]),
        (&json!(true), &json!("shikiri")),
        "{report}"
    );
    assert!(report["tools"].as_array().unwrap().contains(&json!("long_running_agent")), "{report}");

    let refused = try_with(json!({ "key": "shk_wrong" })).await.expect(200);
    assert_eq!(
        (&refused["reachable"], &refused["server"], &refused["tools"]),
        (&json!(false), &Value::Null, &Value::Null)
    );
    assert!(refused["detail"].as_str().unwrap().contains("401"), "{refused}");
    assert_eq!(try_with(json!({})).await.problem(400)["code"], "MISSING_TOKEN");
    try_with(json!({ "key": "a\nb" })).await.problem(400);

    let mut body = body;
    body["name"] = json!("guarded");
    body["allow_private"] = json!(false);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    body["url"] = json!(format!("http://localhost:{}/mcp", listener.local_addr().unwrap().port()));
    let path = checked(&app, &tenant, body).await;
    let report = tenant.client.post(&path, &json!({ "tokens": { "key": "x" } })).await.expect(200);
    assert!(report["detail"].as_str().unwrap().contains("allow_private"), "{report}");
    assert!(listener.accept().is_err(), "a connection was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_a_program_is_started_heard_and_ended() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("user").await;
    let pid_file = app.root().join("child.pid");
    let hello = r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"蛇","version":"1"}}"#;
    let tools = r#""result":{"tools":[{"name":"探す"},{"name":"b"}]}"#;
    let unknown = r#""error":{"code":-32601,"message":"unknown"}"#;
    let script = format!(
        "sleep 1000 & echo $! > {}; echo noise; \
         say() {{ printf '{{\"jsonrpc\":\"2.0\",\"id\":\"%s\",%s}}\\n' \"$id\" \"$1\"; }}; \
         while read -r line; do \
         id=$(printf '%s' \"$line\" | sed -n 's/.*\"id\":\"\\([^\"]*\\)\".*/\\1/p'); \
         case \"$line\" in *initialized*) ;; *initialize*) say '{hello}';; \
         *tools/list*) say '{tools}';; *) say '{unknown}';; esac; done",
        pid_file.display()
    );
    let program =
        |name: &str, command: Value| json!({ "name": name, "type": "stdio", "command": command });
    let path = checked(&app, &tenant, program("sh", json!(["sh", "-c", script]))).await;
    let report = tenant.client.post(&path, &json!({})).await.expect(200);
    let expected = json!({
        "reachable": true, "detail": "answers, with MCP 2025-11-25",
        "server": { "name": "蛇", "version": "1" }, "tools": ["探す", "b"], "changes": [],
    });
    assert_eq!(report, expected);
    // Its child is gone with it: what is left is at most a name in the table.
    let pid = std::fs::read_to_string(&pid_file).unwrap().trim().to_owned();
    let ended = || {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    };
    shikiri_testkit::until("the program's child ends", async || ended()).await;

    for (name, command, words) in [
        ("none", json!(["/no/such/program"]), "could not be started"),
        ("silent", json!(["true"]), ""),
    ] {
        let path = checked(&app, &tenant, program(name, command)).await;
        let report = tenant.client.post(&path, &json!({})).await.expect(200);
        assert_eq!(report["reachable"], false, "{report}");
        assert!(report["detail"].as_str().unwrap().contains(words), "{report}");
    }
}

/// The older transport: a stream that names the place for messages, which are answered on it.
async fn serve_events(listener: TcpListener) {
    let (said, mut to_say) = mpsc::channel::<String>(8);
    let (mut stream, _) = listener.accept().await.unwrap();
    read_request(&mut stream).await;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b": hi\n\nevent: endpoint\ndata: /say?to=1\n\n").await.unwrap();
    tokio::spawn(async move {
        while let Some(message) = to_say.recv().await {
            let frame = format!("event: message\r\ndata: {message}\r\n\r\n");
            let _ = stream.write_all(frame.as_bytes()).await;
        }
    });
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        let (head, body) = read_request(&mut stream).await;
        assert!(head.starts_with("POST /say?to=1 HTTP/1.1"), "{head}");
        let _ = stream
            .write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .await;
        let message: Value = serde_json::from_slice(&body).unwrap();
        let result = match message["method"].as_str().unwrap() {
            "initialize" => json!({
                "protocolVersion": "2024-11-05", "capabilities": { "tools": {} },
                "serverInfo": { "name": "old", "version": "0" },
            }),
            "tools/list" if message["params"]["cursor"].is_null() => {
                json!({ "tools": [{ "name": "a" }], "nextCursor": "2" })
            }
            "tools/list" => json!({ "tools": [{ "name": "b" }] }),
            _ => continue,
        };
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        said.send(answer.to_string()).await.unwrap();
    }
}

async fn read_request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let (mut head, mut length, mut reader) = (String::new(), 0, BufReader::new(stream));
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_older_kind_is_tried_and_a_silent_one_is_given_up() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("user").await;
    let at = |name: &str, kind: &str, listener: &TcpListener| {
        let url = format!("http://{}/sse", listener.local_addr().unwrap());
        json!({ "name": name, "type": kind, "url": url, "allow_private": true })
    };
    let old = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let old_path = checked(&app, &tenant, at("old", "sse", &old)).await;
    let silent_path = checked(&app, &tenant, at("silent", "http", &silent)).await;
    let serving = tokio::spawn(serve_events(old));

    let report = tenant.client.post(&old_path, &json!({})).await.expect(200);
    let expected = json!({
        "reachable": true, "detail": "answers, with MCP 2024-11-05",
        "server": { "name": "old", "version": "0" }, "tools": ["a", "b"], "changes": [],
    });
    assert_eq!(report, expected);
    serving.abort();

    let start = Instant::now();
    let report = tenant.client.post(&silent_path, &json!({})).await.expect(200);
    assert_eq!(report["reachable"], false);
    assert!(report["detail"].as_str().unwrap().contains("within 10 s"), "{report}");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}
