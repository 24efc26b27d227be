//! Wrong requests get a clear answer and change nothing.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::json;

use crate::world::{Answer, World};

async fn send(world: &World, path: &str, kind: &str, body: impl Into<Body>) -> Answer {
    let request = Request::post(path)
        .header("host", "localhost")
        .header("authorization", format!("Bearer {}", world.admin))
        .header("content-type", kind);
    world.raw(request.body(body.into()).unwrap()).await
}

#[tokio::test]
async fn bodies_that_cannot_be_read_change_nothing() {
    let world = World::new().await;
    let before = world.get("/v1/tenants").await.text;
    let deep = format!(r#"{{"name":{}1{}}}"#, "[".repeat(100), "]".repeat(100));
    let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(5 << 20));
    let cases = [
        ("application/json", r#"{"id":"x""#.to_owned(), 400, "EOF"),
        ("application/json", "null".to_owned(), 400, "body"),
        ("application/json", "[]".to_owned(), 400, "body"),
        ("application/json", r#"{"nmae":"x"}"#.to_owned(), 400, "nmae"),
        ("application/json", r#"{"limits":{"streams":1}}"#.to_owned(), 400, "limits.streams"),
        ("application/json", r#"{"limits":{"max_streams":-1}}"#.to_owned(), 400, "max_streams"),
        ("application/json", r#"{"status":"gone"}"#.to_owned(), 400, "status"),
        ("application/json", r#"{"id":"../x"}"#.to_owned(), 400, "valid id"),
        ("application/json", r#"{"id":"_system"}"#.to_owned(), 400, "reserved"),
        ("application/json", r#"{"name":""}"#.to_owned(), 400, "name"),
        ("application/json", deep, 400, "64 deep"),
        ("application/json", long, 413, "4 MiB"),
        ("text/plain", "{}".to_owned(), 415, "application/json"),
    ];
    for (kind, body, status, words) in cases {
        let shown = body.chars().take(60).collect::<String>();
        let answer = send(&world, "/v1/tenants", kind, body).await;
        assert_eq!(answer.problem().0, status, "{shown}: {}", answer.text);
        assert!(answer.text.contains(words), "{shown}: {}", answer.text);
    }
    assert_eq!(world.get("/v1/tenants").await.text, before);
}

#[tokio::test]
async fn a_run_that_cannot_be_started_says_why() {
    let world = World::new().await;
    let runs = "/v1/tenants/local/runs";
    for (body, field) in [
        (json!({}), "agent"),
        (json!({ "agent": "absent" }), "agent"),
        (json!({ "agent": "echo", "input": { "bad": true } }), "input"),
        (json!({ "agent": "echo", "idempotency_key": "" }), "idempotency_key"),
        (json!({ "agent": "echo", "inptu": {} }), "inptu"),
    ] {
        let answer = world.post(runs, body).await;
        assert_eq!(answer.problem(), (400, "INVALID_REQUEST".to_owned()));
        assert!(answer.text.contains(field), "{field}: {}", answer.text);
    }
    let missing = world.post("/v1/tenants/local/runs/run_1/cancel", json!({})).await;
    assert_eq!(missing.problem(), (404, "RUN_NOT_FOUND".to_owned()));
}

#[tokio::test]
async fn lists_refuse_wrong_cursors_limits_and_words() {
    let world = World::new().await;
    for list in ["/v1/tenants", "/v1/tenants/local/keys", "/v1/tenants/local/runs"] {
        for query in ["limit=0", "limit=201", "limit=x", "limit=-1", "cursor=", "cursor=x", "x=1"] {
            let answer = world.get(&format!("{list}?{query}")).await;
            assert_eq!(answer.problem(), (400, "INVALID_REQUEST".to_owned()), "{list} {query}");
        }
        assert_eq!(world.get(&format!("{list}?limit=200")).await.status, StatusCode::OK);
    }
    let answer = world.get("/v1/tenants/local/runs?status=gone").await;
    assert_eq!(answer.problem().0, 400);
}

#[tokio::test]
async fn impossible_ids_are_just_not_there() {
    let world = World::new().await;
    let long = "x".repeat(5_000);
    for id in ["a%20b", "%00", "%FF", "..%2Flocal", "日本", &long] {
        let id = id.replace("日本", "%E6%97%A5");
        for (path, code) in [
            (format!("/v1/tenants/{id}"), "TENANT_NOT_FOUND"),
            (format!("/v1/tenants/{id}/runs"), "TENANT_NOT_FOUND"),
            (format!("/v1/tenants/local/runs/{id}"), "RUN_NOT_FOUND"),
            (format!("/v1/tenants/local/runs/{id}/events"), "RUN_NOT_FOUND"),
        ] {
            let answer = world.get(&path).await;
            let problem = answer.problem();
            // Bytes that are no text spoil the whole path.
            let spoiled = id.contains("%FF") && problem.1 == "TENANT_NOT_FOUND";
            assert!(problem == (404, code.to_owned()) || spoiled, "{path}: {}", answer.text);
        }
        let path = format!("/v1/tenants/local/keys/{id}");
        assert_eq!(world.call(&world.admin, "DELETE", &path, None).await.problem().0, 404);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_apart() {
    let world = World::new().await;
    for path in
        ["/docs/", "/v1", "/v1/", "/v1/nothing", "/v1/tenants/", "/v1/tenants/local/nothing"]
    {
        assert_eq!(world.get(path).await.problem(), (404, "NOT_FOUND".to_owned()), "{path}");
    }
    let answer = world.call(&world.admin, "PUT", "/v1/tenants/local", None).await;
    assert_eq!(answer.problem(), (405, "METHOD_NOT_ALLOWED".to_owned()));
    let allow = answer.headers["allow"].to_str().unwrap();
    assert!(allow.contains("PATCH") && allow.contains("DELETE"), "{allow}");
}
