//! `initialize`, `server/discover` and the versions that each era accepts.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::http_client::request;
use crate::stdio_client::{StdioClient, modern};
use crate::world::World;

#[tokio::test]
async fn initialize_agrees_on_the_clients_version_or_the_newest_with_a_handshake() {
    let world = World::new().await;
    for (wanted, agreed) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        // It has no handshake.
        ("2026-07-28", "2025-11-25"),
        ("2199-01-01", "2025-11-25"),
    ] {
        let mut client = StdioClient::start(&world);
        let reply = client.initialize(wanted).await;
        assert_eq!(reply["result"]["protocolVersion"], agreed, "{wanted}");
        assert_eq!(reply["result"]["serverInfo"]["name"], "shikiri");
        assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
        assert_eq!(client.end().await, Vec::<Value>::new());
    }
}

#[tokio::test]
async fn the_older_era_needs_initialize_first() {
    let world = World::new().await;
    let mut client = StdioClient::start(&world);
    let reply = client.request("tools/list", json!({})).await;
    assert_eq!(reply["error"]["code"], -32600, "{reply}");
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    let reply = client.request("initialize", params).await;
    assert_eq!(reply["error"]["message"], "clientInfo: must have a name");

    let list = request(1, "tools/list", json!({}));
    let answer = world.post(&world.key, "", &list).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text);
    let answer = world.post(&world.key, "no-such-session", &list).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text);
}

#[tokio::test]
async fn an_http_session_ends_with_delete() {
    let world = World::new().await;
    let session = world.open_session(&world.key).await;
    let list = request(1, "tools/list", json!({}));
    let answer = world.post(&world.key, &session, &list).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let headers = [("mcp-session-id", session.as_str())];
    let closed = world.http("DELETE", &world.key, &headers, "").await;
    assert_eq!(closed.status, StatusCode::NO_CONTENT, "{}", closed.text);
    let answer = world.post(&world.key, &session, &list).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text);
}

#[tokio::test]
async fn every_request_of_the_newer_era_states_its_version() {
    let world = World::new().await;
    let mut client = StdioClient::start(&world);
    let found = client.request("server/discover", modern(json!({}), "2026-07-28")).await;
    let versions = &found["result"]["supportedVersions"];
    assert_eq!(*versions, json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"]));
    let listed = client.request("tools/list", modern(json!({}), "2026-07-28")).await;
    assert_eq!(listed["result"]["resultType"], "complete", "{listed}");
    for version in ["2025-11-25", "2199-01-01"] {
        let refused = client.request("tools/list", modern(json!({}), version)).await;
        assert_eq!(refused["error"]["code"], -32022, "{refused}");
        assert_eq!(refused["error"]["data"]["supported"][0], "2026-07-28");
    }
    // A ping is of the older era alone.
    let refused = client.request("ping", modern(json!({}), "2026-07-28")).await;
    assert_eq!(refused["error"]["code"], -32601);
}

#[tokio::test]
async fn version_header_and_body_must_agree_over_http() {
    let world = World::new().await;
    let answer = world.post_modern("2026-07-28", "server/discover", json!({})).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.json()["result"]["supportedVersions"][0], "2026-07-28");
    assert!(!answer.headers.contains_key("mcp-session-id"));

    let body = request(1, "tools/list", modern(json!({}), "2026-07-28"));
    for header in [None, Some("2025-11-25")] {
        let mut headers = vec![("content-type", "application/json"), ("mcp-method", "tools/list")];
        headers.extend(header.map(|version| ("mcp-protocol-version", version)));
        let refused = world.http("POST", &world.key, &headers, &body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{header:?}: {}", refused.text);
        assert_eq!(refused.json()["error"]["code"], -32020, "{header:?}");
    }
}

#[tokio::test]
async fn http_needs_a_key() {
    let world = World::new().await;
    let refused = world.post("not-a-key", "", &request(1, "tools/list", json!({}))).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert_eq!(refused.headers["www-authenticate"], "Bearer realm=\"shikiri\"");
}
