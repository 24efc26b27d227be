//! One tenant cannot use up the server.

use axum::http::StatusCode;
use serde_json::json;
use shikiri_testkit::until;
use shikiri_web::WebOptions;

use crate::serving::connect;
use crate::world::World;

#[tokio::test]
async fn a_tenant_over_its_rate_is_told_when_to_come_back() {
    let world = World::new().await;
    let key = world.tenant("a").await;
    let limit = json!({ "limits": { "requests_per_minute": 3 } });
    world.call(&world.admin, "PATCH", "/v1/tenants/a", Some(limit)).await;
    for _ in 0..3 {
        let answer = world.call(&key, "GET", "/v1/tenants/a/runs", None).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    for path in ["/v1/tenants/a/runs", "/v1/tenants/a"] {
        let answer = world.call(&key, "GET", path, None).await;
        assert_eq!(answer.problem(), (429, "LIMIT_EXCEEDED".to_owned()));
        let seconds: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
        let ms = answer.json()["retry_after_ms"].as_u64().unwrap();
        assert!((1..=20).contains(&seconds) && ms.div_ceil(1_000) == seconds, "{}", answer.text);
    }
    // The admin uses the same tenant's rate, but can always lift it.
    assert_eq!(world.get("/v1/tenants/a/runs").await.problem().0, 429);
    let lift = json!({ "limits": { "requests_per_minute": null } });
    let lifted = world.call(&world.admin, "PATCH", "/v1/tenants/a", Some(lift)).await;
    assert_eq!(lifted.status, StatusCode::OK);
    assert_eq!(world.get("/v1/tenants/a/runs").await.status, StatusCode::OK);
}

#[tokio::test]
async fn streams_are_counted_and_given_back() {
    let world = World::new().await;
    let key = world.tenant("a").await;
    let limit = json!({ "limits": { "max_streams": 2 } });
    world.call(&world.admin, "PATCH", "/v1/tenants/a", Some(limit)).await;
    let run = world.run("a", "echo", json!({})).await;
    let path = format!("/v1/tenants/a/runs/{run}/events");
    let serving = world.serve(WebOptions::default()).await;

    let mut first = connect(serving.address, &key, &path).await;
    first.until("event: queued").await;
    let mut second = connect(serving.address, &key, &path).await;
    second.until("event: queued").await;
    let mut third = connect(serving.address, &key, &path).await;
    third.until("LIMIT_EXCEEDED").await;
    connect(serving.address, &key, "/metrics").await.until("shikiri_open_streams 2\n").await;
    drop(first);
    until("the place of the closed stream is free", async || {
        let mut again = connect(serving.address, &key, &path).await;
        again.head().await.starts_with("HTTP/1.1 200")
    })
    .await;
}
