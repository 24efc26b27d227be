//! Who gets in, and who learns nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::json;
use shikiri_web::operations;

use crate::world::World;

const PUBLIC: [&str; 5] = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"];

fn filled(path: &str, tenant: &str) -> String {
    path.replace("{t}", tenant).replace("{r}", "run_1").replace("{key}", "key_1")
}

#[tokio::test]
async fn without_a_key_only_what_is_public_answers() {
    let world = World::new().await;
    let operations = operations();
    assert!(operations.len() > 15, "{operations:?}");
    let mut open = BTreeSet::new();
    for (method, path) in operations {
        let path = filled(&path, "local");
        for key in ["", "shk_wrong", "x y"] {
            let answer = world.call(key, &method, &path, None).await;
            if PUBLIC.contains(&path.as_str()) {
                open.insert(path.clone());
                assert_ne!(answer.status, StatusCode::UNAUTHORIZED, "{method} {path}");
                continue;
            }
            assert_eq!(answer.problem(), (401, "UNAUTHORIZED".to_owned()), "{method} {path}");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
        }
    }
    assert_eq!(open, PUBLIC.map(str::to_owned).into());
}

#[tokio::test]
async fn the_key_is_checked_before_path_body_and_existence() {
    let world = World::new().await;
    for (method, path) in [
        ("GET", "/v1"),
        ("GET", "/v1/nothing"),
        ("GET", "/v1/tenants/missing"),
        ("GET", "/v1/tenants/%FF"),
        ("PUT", "/v1/tenants"),
        ("GET", "/nothing"),
        ("OPTIONS", "/v1/tenants"),
    ] {
        let answer = world.call("", method, path, None).await;
        assert_eq!(answer.problem().0, 401, "{method} {path}");
    }
    let bad = Request::post("/v1/tenants").header("host", "localhost");
    let answer = world.raw(bad.body(Body::from("{{{")).unwrap()).await;
    assert_eq!(answer.problem().0, 401);
}

#[tokio::test]
async fn odd_authorization_headers_are_no_keys() {
    let world = World::new().await;
    let admin = world.admin.clone();
    let with = |values: Vec<String>| {
        let mut request = Request::get("/v1/tenants").header("host", "localhost");
        for value in values {
            request = request.header("authorization", value);
        }
        request.body(Body::empty()).unwrap()
    };
    for values in [
        vec![admin.clone()],
        vec![format!("Basic {admin}")],
        vec![format!("Bearer{admin}")],
        vec!["Bearer ".to_owned()],
        vec![format!("Bearer {admin}x")],
        vec![format!("Bearer {}", "x".repeat(10_000))],
        vec![format!("Bearer {admin}"), "Bearer x".to_owned()],
    ] {
        assert_eq!(world.raw(with(values)).await.problem().0, 401);
    }
    let answer = world.raw(with(vec![format!("bearer {admin}")])).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_key_of_one_tenant_finds_nothing_of_another() {
    let world = World::new().await;
    let a = world.tenant("a").await;
    world.tenant("b").await;
    let run = world.run("b", "echo", json!({})).await;
    for (method, path) in operations() {
        if !path.contains("{t}") {
            continue;
        }
        let foreign = path.replace("{t}", "b").replace("{r}", &run).replace("{key}", "key_1");
        let missing = path.replace("{t}", "c").replace("{r}", &run).replace("{key}", "key_1");
        let body = (method != "GET").then(|| json!({}));
        let foreign = world.call(&a, &method, &foreign, body.clone()).await;
        let missing = world.call(&a, &method, &missing, body).await;
        assert_eq!(foreign.problem(), (404, "TENANT_NOT_FOUND".to_owned()), "{method} {path}");
        assert_eq!(foreign.text.replace("tenant b", "tenant c"), missing.text);
        let names = |answer: &crate::world::Answer| {
            answer.headers.keys().map(ToString::to_string).collect::<BTreeSet<_>>()
        };
        assert_eq!(names(&foreign), names(&missing));
    }
    // A run of another tenant is not reached through one's own either.
    for (method, rest) in [("GET", ""), ("GET", "/events"), ("POST", "/cancel")] {
        let path = format!("/v1/tenants/a/runs/{run}{rest}");
        let answer = world.call(&a, method, &path, None).await;
        assert_eq!(answer.problem(), (404, "RUN_NOT_FOUND".to_owned()), "{path}");
    }
    for (method, body) in [("GET", None), ("POST", Some(json!({ "id": "d" })))] {
        let answer = world.call(&a, method, "/v1/tenants", body).await;
        assert_eq!(answer.problem(), (404, "NOT_FOUND".to_owned()));
    }
}

#[tokio::test]
async fn a_tenant_rules_itself_but_not_its_limits() {
    let world = World::new().await;
    let a = world.tenant("a").await;
    let path = "/v1/tenants/a";
    assert_eq!(world.call(&a, "GET", path, None).await.status, StatusCode::OK);
    let renamed = world.call(&a, "PATCH", path, Some(json!({ "name": "Ann" }))).await;
    assert_eq!(renamed.json()["name"], "Ann");
    for body in [json!({ "limits": {} }), json!({ "status": "active" })] {
        let answer = world.call(&a, "PATCH", path, Some(body)).await;
        assert_eq!(answer.problem(), (403, "FORBIDDEN".to_owned()));
    }
    let answer = world.call(&a, "DELETE", path, None).await;
    assert_eq!(answer.problem(), (403, "FORBIDDEN".to_owned()));
}

#[tokio::test]
async fn a_revoked_key_stops_working_and_ends_its_streams() {
    let world = World::new().await;
    let key = world.tenant("a").await;
    let run = world.run("a", "echo", json!({})).await;
    let serving = world.serve(shikiri_web::WebOptions::default()).await;
    let path = format!("/v1/tenants/a/runs/{run}/events");
    let mut reader = crate::serving::connect(serving.address, &key, &path).await;
    reader.until("event: queued").await;

    let keys = world.get("/v1/tenants/a/keys").await.json();
    let id = keys["items"][0]["id"].as_str().unwrap();
    let revoked = format!("/v1/tenants/a/keys/{id}");
    let answer = world.call(&world.admin, "DELETE", &revoked, None).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(world.call(&key, "GET", "/v1/tenants/a", None).await.problem().0, 401);
    let ending = reader.until(": access ended\n\n");
    tokio::time::timeout(Duration::from_secs(5), ending).await.expect("within five seconds");
    reader.until("0\r\n\r\n").await;
}

#[tokio::test]
async fn other_sites_and_other_names_are_turned_away_everywhere() {
    let world = World::new().await;
    for (method, path) in operations() {
        let path = filled(&path, "local");
        let request = |host: &str, origin: Option<&str>| {
            let mut request = Request::builder().method(method.as_str()).uri(&path);
            request = request.header("host", host);
            request = request.header("authorization", format!("Bearer {}", world.admin));
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            request.body(Body::empty()).unwrap()
        };
        let answer = world.raw(request("evil.example", None)).await;
        assert_eq!(answer.problem(), (403, "HOST_NOT_ALLOWED".to_owned()), "{method} {path}");
        let answer = world.raw(request("localhost:7420", Some("https://evil.example"))).await;
        assert_eq!(answer.problem(), (403, "ORIGIN_NOT_ALLOWED".to_owned()), "{method} {path}");
    }
}

/// A key for hooks opens one door, and tells no more than that it is for hooks.
#[tokio::test]
async fn a_key_for_hooks_opens_nothing_else() {
    let world = World::new().await;
    world.tenant("a").await;
    let scope = json!({ "name": "laptop", "scope": "hooks" });
    let made = world.post("/v1/tenants/a/keys", scope).await.json();
    assert_eq!(made["scope"], "hooks");
    let key = made["key"].as_str().unwrap();
    for (method, path) in operations() {
        if PUBLIC.contains(&path.as_str()) || path == "/hooks/claude" {
            continue;
        }
        for tenant in ["a", "local", "missing"] {
            let body = (method != "GET").then(|| json!({}));
            let answer = world.call(key, &method, &filled(&path, tenant), body).await;
            assert_eq!(answer.problem(), (403, "FORBIDDEN".to_owned()), "{method} {path}");
        }
    }
    let nothing = world.call(key, "GET", "/v1/nothing", None).await;
    assert_eq!(nothing.problem(), (403, "FORBIDDEN".to_owned()));
    let event = json!({ "session_id": "s", "hook_event_name": "Notification" });
    let answer = world.call(key, "POST", "/hooks/claude", Some(event)).await;
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::OK, "{}"));
    let log = world.get("/v1/tenants/a/hooks/log").await.json();
    assert_eq!(log["items"][0]["session_id"], "s");
    let path = format!("/v1/tenants/a/keys/{}", made["id"].as_str().unwrap());
    world.call(&world.admin, "DELETE", &path, None).await;
    assert_eq!(world.call(key, "POST", "/hooks/claude", None).await.problem().0, 401);
}
