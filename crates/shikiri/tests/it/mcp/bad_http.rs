//! What is around a message: HTTP, keys, sessions, versions, hosts. Wrong ones are refused before
//! anything is done.

use reqwest::Method;
use serde_json::{Value, json};
use shikiri_testkit::{Client, Exchange, Hello, McpClient, ModernClient, TestApp};

use crate::PROGRAM;
use crate::wire::Wire;

#[tokio::test(flavor = "multi_thread")]
async fn the_http_around_a_message_must_be_right() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let with = async |accept: &str, kind: &str| {
        let request = app.client().request(Method::POST, "/mcp").header("accept", accept);
        let request = request.header("mcp-session-id", host.session()).header("content-type", kind);
        Exchange::open(request.body(body)).await.status
    };
    let (both, json) = ("application/json, text/event-stream", "application/json");
    assert_eq!(with(both, json).await, 200);
    assert_eq!(with("*/*", json).await, 200);
    assert_eq!(
        with("text/event-stream;q=0.5,application/json", "Application/JSON; charset=utf-8").await,
        200
    );
    for accept in ["application/json", "text/event-stream", "text/html", ""] {
        assert_eq!(with(accept, json).await, 406, "{accept}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
        assert_eq!(with(both, kind).await, 415, "{kind}");
    }
    let get = host.http(Method::GET).header("accept", "application/json");
    let get = get.build().unwrap();
    assert_eq!(get.headers().get_all("accept").iter().count(), 2, "either may be meant");
    let get = app.client().request(Method::GET, "/mcp").header("accept", "application/json");
    let get = Exchange::open(get.header("mcp-session-id", host.session())).await;
    assert_eq!(get.status, 406);
    for method in [Method::PUT, Method::PATCH, Method::OPTIONS] {
        let answer = Exchange::open(host.http(method.clone())).await;
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some("POST, GET, DELETE")),
            "{method}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_must_be_named_and_known() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let send = async |session: Option<&str>, method: Method| {
        let request = client.request(method.clone(), "/mcp").header("accept", "*/*");
        let request = match session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        };
        let request = if method == Method::POST { request.json(&body) } else { request };
        Exchange::open(request).await
    };
    for method in [Method::POST, Method::GET, Method::DELETE] {
        assert_eq!(send(None, method.clone()).await.status, 400, "{method}");
        for unknown in ["con_0", "x", "con_../..", "", &"x".repeat(500)] {
            let mut answer = send(Some(unknown), method.clone()).await;
            assert_eq!(answer.status, 404, "{method} {unknown:?}");
            answer.error(-32600).await;
        }
    }
    let host = McpClient::connect(&client).await;
    let twice = host.http(Method::POST).header("mcp-session-id", "con_0").json(&body);
    assert_eq!(Exchange::open(twice).await.status, 400, "which one is meant?");
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_negotiated_and_unknown_ones_refused() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    for (wanted, spoken) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        // Without a handshake there, with the newest that has one here.
        ("2026-07-28", "2025-11-25"),
        ("1", "2025-11-25"),
    ] {
        let hello = Hello { protocol: wanted.to_owned(), ..Hello::default() };
        let mut opened = McpClient::initialize(&client, &hello).await;
        assert_eq!(opened.result().await["protocolVersion"], spoken, "{wanted}");
    }
    let host = McpClient::connect(&client).await;
    for version in ["2024-11-05", "2030-01-01", "latest"] {
        let host = McpClient::resumed(&client, host.session(), version);
        let mut answer = host.request("tools/list", json!({})).await;
        assert_eq!(answer.status, 400, "{version}");
        let supported = &answer.error(-32022).await["data"]["supported"];
        assert_eq!(*supported, json!(["2025-11-25", "2025-06-18", "2025-03-26"]));
    }
    let initialize = |params: Value| json!({ "jsonrpc": "2.0", "id": 9, "method": "initialize", "params": params });
    let who = json!({ "name": "t", "version": "1" });
    for params in [
        json!({}),
        json!({ "protocolVersion": 7, "capabilities": {}, "clientInfo": who }),
        json!({ "protocolVersion": "2025-11-25", "clientInfo": who }),
        json!({ "protocolVersion": "2025-11-25", "capabilities": [], "clientInfo": who }),
        json!({ "protocolVersion": "2025-11-25", "capabilities": {} }),
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {} }),
    ] {
        let request = client.request(Method::POST, "/mcp").header("accept", "*/*");
        let mut answer = Exchange::open(request.json(&initialize(params.clone()))).await;
        assert_eq!((answer.status, answer.header("mcp-session-id")), (400, None), "{params}");
        answer.error(-32602).await;
    }
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who });
    let request = client.request(Method::POST, "/mcp").header("accept", "*/*");
    let request = request.header("mcp-protocol-version", "2025-06-18").json(&initialize(params));
    let mut answer = Exchange::open(request).await;
    assert_eq!(answer.status, 400);
    answer.error(-32020).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_key_nothing_is_looked_at() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let keyless = app.client().without_key();
    for client in
        [keyless.clone(), keyless.with_key("shk_wrong"), keyless.with_key(&"x".repeat(600))]
    {
        for method in [Method::POST, Method::GET, Method::DELETE, Method::PUT] {
            let request = host.through(&client).http(method.clone());
            // Not even nonsense is told from sense.
            let answer = Exchange::open(request.body("{")).await;
            assert_eq!(answer.status, 401, "{method}");
            assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"));
        }
        let newer = ModernClient::new(&client);
        assert_eq!(newer.request("server/discover", json!({})).await.status, 401);
    }
    let key = app.admin_key();
    for value in [format!("Basic {key}"), key.clone(), format!("Bearer {key} {key}")] {
        let request = host.through(&keyless).http(Method::POST).header("authorization", value);
        assert_eq!(Exchange::open(request.body("{}")).await.status, 401);
    }
    let twice = host.http(Method::POST).header("authorization", format!("Bearer {key}"));
    assert_eq!(Exchange::open(twice.body("{}")).await.status, 400);
    assert_eq!(host.result("ping", json!({})).await, json!({}));
}

/// A page of another site must not reach the door through its visitor's browser.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_hosts_and_origins_are_refused_by_default() {
    let app = TestApp::new(PROGRAM).start().await;
    let (port, key) = (app.port(), app.admin_key());
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t"}}}"#;
    let status = async |host: &str, origin: Option<&str>| {
        let origin = origin.map_or(String::new(), |origin| format!("Origin: {origin}\r\n"));
        let mut wire = Wire::open(port).await;
        wire.send(&format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\n{origin}Authorization: Bearer {key}\r\n\
             Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
        let head = wire.read_until(b"\r\n\r\n").await;
        let head = String::from_utf8_lossy(&head).into_owned();
        head[9..12].parse::<u16>().unwrap()
    };
    let here = format!("127.0.0.1:{port}");
    assert_eq!(status(&here, None).await, 200);
    assert_eq!(status(&format!("localhost:{port}"), None).await, 200);
    assert_eq!(status(&here, Some(&format!("http://localhost:{port}"))).await, 200);
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1"] {
        assert_eq!(status(host, None).await, 403, "{host}");
    }
    for origin in
        ["http://evil.example", "https://127.0.0.1.evil.example", "null", "http://localhost:1"]
    {
        assert_eq!(status(&here, Some(origin)).await, 403, "{origin}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inactive_or_busy_tenant_is_told_so() {
    let app = TestApp::new(PROGRAM).start().await;
    let admin = app.client();
    let tenant = app.tenant("small").await;
    let host = McpClient::connect(&tenant.client).await;
    let patch = async |change: Value| admin.patch("/v1/tenants/small", &change).await.expect(200);
    patch(json!({ "limits": { "max_streams": 1 } })).await;
    let slow = json!({ "steps": 1, "step_ms": 60_000 });
    let first = host.call("long_running_agent", slow.clone()).await;
    assert_eq!(first.status, 200);
    let second = host.call("long_running_agent", slow).await;
    assert_eq!(second.status, 429);
    assert!(second.header("retry-after").is_some());
    let told = problem(second).await;
    assert_eq!(told["code"], "LIMIT_EXCEEDED", "{told}");
    // A refused request has started nothing, and what needs no stream is answered.
    let runs = host.called("run_list", json!({})).await;
    assert_eq!(runs["structuredContent"]["runs"].as_array().unwrap().len(), 1, "{runs}");
    patch(json!({ "status": "inactive" })).await;
    let refused = host.request("ping", json!({})).await;
    assert_eq!(refused.status, 403);
    assert_eq!(problem(refused).await["code"], "TENANT_INACTIVE");
    let unnamed = Client::new(tenant.client.base());
    assert_eq!(McpClient::initialize(&unnamed, &Hello::default()).await.status, 401);
}

async fn problem(mut answer: Exchange) -> Value {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    answer.next().await.unwrap().json
}
