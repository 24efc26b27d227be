//! Bodies that are too large, too deep, ill-formed or not what was asked for: one clear answer
//! each, and nothing changed.

use serde_json::{Value, json};
use shikiri_testkit::{Answer, Client, TestApp};

use crate::PROGRAM;

const MIB: usize = 1024 * 1024;

async fn post(client: &Client, content_type: Option<&str>, body: impl Into<Vec<u8>>) -> Answer {
    let request = client.request(reqwest::Method::POST, "/v1/tenants").body(body.into());
    let request = match content_type {
        Some(kind) => request.header("content-type", kind),
        None => request,
    };
    client.send(request).await
}

async fn tenants(client: &Client) -> Value {
    client.get("/v1/tenants").await.expect(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_four_mebibytes_is_413_and_one_below_is_read() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let before = tenants(&client).await;
    for size in [4 * MIB + 1, 5 * MIB, 40 * MIB] {
        let text = json!({ "id": "big", "system_prompt": "x".repeat(size) }).to_string();
        let body = client.request(reqwest::Method::POST, "/v1/tenants").body(text);
        let request = body.header("content-type", "application/json");
        // Far beyond the limit, the server need not read on until the sender listens.
        match client.try_send(request).await {
            Ok(answer) => assert_eq!(answer.problem(413)["code"], "PAYLOAD_TOO_LARGE"),
            Err(error) => assert!(size > 16 * MIB, "{size}: {error:?}"),
        }
    }
    assert_eq!(tenants(&client).await, before);
    // Read, understood, and refused for what it says.
    let long = json!({ "id": "big", "system_prompt": "x".repeat(4 * MIB - 100) });
    assert_eq!(client.post("/v1/tenants", &long).await.problem(400)["field"], "system_prompt");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_body_cannot_hide_its_size() {
    let app = TestApp::new(PROGRAM).start().await;
    let mut wire = crate::wire::Wire::open(app.port()).await;
    let key = app.admin_key();
    wire.send(&format!(
        "POST /v1/tenants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    ))
    .await;
    let chunk = format!("{:x}\r\n{}\r\n", MIB, " ".repeat(MIB));
    for _ in 0..5 {
        wire.send(&chunk).await;
    }
    wire.send("0\r\n\r\n").await;
    let answer = wire.read_until(b"PAYLOAD_TOO_LARGE").await;
    assert!(answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_json_is_refused_without_harm() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    for depth in [65, 1_000, 100_000, 1_000_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let body = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let answer = post(&client, Some("application/json"), body).await;
            let expected = if answer.status == 413 { 413 } else { 400 };
            answer.problem(expected);
            // Never closed: the same, without reading the missing end.
            post(&client, Some("application/json"), open.repeat(depth.min(800_000)))
                .await
                .problem(400);
        }
    }
    // In a value that is free to be anything, too.
    let mut input = json!(1);
    for _ in 0..80 {
        input = json!([input]);
    }
    let start = json!({ "agent": "long_running_agent", "input": input });
    client.post("/v1/tenants/local/runs", &start).await.problem(400);
    assert_eq!(client.get("/healthz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_are_refused_and_named() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    app.tenant("known").await;
    let before = tenants(&client).await;
    let cases = [
        ("POST", "/v1/tenants", json!({ "id": "t", "colour": "red" }), "colour"),
        ("POST", "/v1/tenants", json!({ "id": "t", "limits": { "max_stream": 1 } }), "max_stream"),
        ("PATCH", "/v1/tenants/known", json!({ "Name": "x" }), "Name"),
        ("POST", "/v1/tenants/known/keys", json!({ "name": "k", "scope": "admin" }), "scope"),
        (
            "POST",
            "/v1/tenants/known/runs",
            json!({ "agent": "long_running_agent", "input": {}, "priority": 1 }),
            "priority",
        ),
        (
            "POST",
            "/v1/tenants/known/runs",
            json!({ "agent": "long_running_agent", "input": { "stepps": 1 } }),
            "stepps",
        ),
    ];
    for (method, path, body, field) in cases {
        let request = client.request(method.parse().unwrap(), path).json(&body);
        let problem = client.send(request).await.problem(400);
        assert_eq!(problem["code"], "INVALID_REQUEST");
        assert!(problem["detail"].as_str().unwrap().contains(field), "{field}: {problem}");
    }
    assert_eq!(tenants(&client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_bodies_and_wrong_types_are_refused() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let before = tenants(&client).await;
    for body in [
        "{",
        "nonsense",
        "[1",
        "null",
        "[]",
        "7",
        "\"t\"",
        "{\"id\":\"t\"} x",
        "{\"id\":1}",
        "{'id':'t'}",
        "{\"id\":\"t\",}",
        "{\"id\":\"t\",\"id\":\"u\"}",
        "{\"id\":\"\\ud800\"}",
        "{\"status\":\"asleep\"}",
        "{\"limits\":{\"max_streams\":-1}}",
        "{\"limits\":{\"max_streams\":1e99}}",
    ] {
        let answer = post(&client, Some("application/json"), body).await;
        assert_eq!(answer.problem(400)["code"], "INVALID_REQUEST", "{body}");
    }
    post(&client, Some("application/json"), vec![b'{', b'"', 0xff, 0xfe, b'"']).await.problem(400);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
        post(&client, Some(kind), "{\"id\":\"t\"}").await.problem(415);
    }
    post(&client, None, "{\"id\":\"t\"}").await.problem(415);
    assert_eq!(tenants(&client).await, before);
    let odd = post(&client, Some("Application/JSON; charset=UTF-8"), "{\"id\":\"t\"}").await;
    odd.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_ids_are_refused_and_never_leave_their_place() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let before = tenants(&client).await;
    let long = "a".repeat(101);
    for id in ["", " ", "a b", "../local", "日本", "a/b", "x\n", "_system", &long] {
        let problem = client.post("/v1/tenants", &json!({ "id": id })).await.problem(400);
        assert_eq!(problem["field"], "id", "{problem}");
    }
    for path in [
        "/v1/tenants/a%20b",
        "/v1/tenants/..%2flocal",
        "/v1/tenants/%00",
        "/v1/tenants/%ff",
        "/v1/tenants/_system",
        "/v1/tenants/_system/keys",
        "/v1/tenants/local/runs/run%20x",
        "/v1/tenants/local/runs/..%2f..%2fkeys",
        "/v1/tenants/local/keys/%2e%2e",
    ] {
        let answer = client.get(path).await;
        assert!(matches!(answer.status, 404 | 405), "{path}: {} {}", answer.status, answer.text());
    }
    assert_eq!(tenants(&client).await, before);
}
