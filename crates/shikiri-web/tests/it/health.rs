//! What operators see.

use axum::http::StatusCode;
use serde_json::json;
use shikiri_web::WebOptions;

use crate::serving::connect;
use crate::world::World;

#[tokio::test]
async fn a_good_server_is_healthy_and_ready() {
    let world = World::new().await;
    assert_eq!(world.call("", "GET", "/healthz", None).await.json(), json!({ "status": "ok" }));
    let ready = world.call("", "GET", "/readyz", None).await;
    assert_eq!(ready.status, StatusCode::OK);
    let checks = json!({ "store": "ok", "schema": "ok", "server": "ok" });
    assert_eq!(ready.json(), json!({ "status": "ready", "checks": checks }));
}

#[tokio::test]
async fn a_server_whose_database_was_migrated_by_a_newer_one_is_unready() {
    let world = World::new().await;
    let sql = "INSERT INTO schema_version (version, applied_at) VALUES (999, 'later')";
    world.database().execute(sql, []).unwrap();
    let unready = world.call("", "GET", "/readyz", None).await;
    assert_eq!(unready.status, StatusCode::SERVICE_UNAVAILABLE);
    let checks = json!({ "store": "ok", "schema": "unusable", "server": "ok" });
    assert_eq!(unready.json(), json!({ "status": "unready", "checks": checks }));
}

#[tokio::test]
async fn metrics_are_for_this_machine() {
    let world = World::new().await;
    // Without a connection there is no peer, and so no reason to trust it.
    assert_eq!(world.call("", "GET", "/metrics", None).await.problem().0, 404);

    let serving = world.serve(WebOptions::default()).await;
    world.run("local", "echo", json!({})).await;
    let address = serving.address;
    connect(address, &world.admin, "/v1/tenants/local/runs").await.until("items").await;
    let mut reader = connect(address, "", "/metrics").await;
    let text = reader.until("# EOF").await;
    for line in [
        r#"shikiri_requests_total{method="GET",route="/v1/tenants/{t}/runs",status="200"} 1"#,
        "shikiri_runs_started_total 1",
        "shikiri_runs_completed_total 0",
        "shikiri_open_streams 0",
        "shikiri_cut_slow_readers_total 0",
        "shikiri_commits_total ",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let proxied = "/metrics HTTP/1.1\r\nX-Forwarded-For: 10.0.0.1\r\nX-Rest:";
    let head = connect(address, "", proxied).await.head().await;
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
}

#[tokio::test]
async fn the_document_needs_no_key() {
    let world = World::new().await;
    let document = world.call("", "GET", "/openapi.json", None).await;
    assert_eq!(document.headers["content-type"], "application/json");
    assert_eq!(document.text, shikiri_web::openapi_json());
}
