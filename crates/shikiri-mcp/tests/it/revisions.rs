//! What clients of the older revisions get.

use serde_json::{Value, json};

use crate::http_client::request;
use crate::stdio_client::StdioClient;
use crate::world::World;

async fn content_of_a_call(revision: &str) -> Value {
    let world = World::new().await;
    let mut client = StdioClient::start(&world);
    let reply = client.initialize(revision).await;
    assert_eq!(reply["result"]["protocolVersion"], revision, "{reply}");
    let ended = client.call("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
    let arguments = json!({ "agent": "long_running_agent", "input": { "steps": 1 } });
    let handed_over = client.call("run_agent", arguments).await;
    let (ended, handed_over) = (&ended["content"], &handed_over["content"]);
    json!([ended[0]["type"], ended[1]["type"], handed_over[0]["type"], handed_over[1]["type"]])
}

/// Their types of content know no link, and their parsers fail at it.
#[tokio::test]
async fn links_are_for_clients_whose_revision_has_them() {
    assert_eq!(content_of_a_call("2025-03-26").await, json!(["text", null, "text", null]));
    let with_links = json!(["text", "resource_link", "text", "resource_link"]);
    assert_eq!(content_of_a_call("2025-06-18").await, with_links);
}

#[tokio::test]
async fn a_client_of_2024_is_told_which_revisions_there_are() {
    let world = World::new().await;
    let supported = json!(["2025-11-25", "2025-06-18", "2025-03-26"]);
    let mut client = StdioClient::start(&world);
    let reply = client.initialize("2024-11-05").await;
    let params = json!({
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": { "name": "old", "version": "1" },
    });
    let over_http = world.post(&world.key, "", &request(0, "initialize", params)).await;
    assert_eq!(over_http.status, 400);
    for refused in [reply, over_http.json()] {
        let error = &refused["error"];
        assert_eq!(error["code"], -32602, "{refused}");
        assert_eq!(error["data"], json!({ "supported": supported, "requested": "2024-11-05" }));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("2024-11-05") && message.contains("2025-03-26"), "{refused}");
    }
    // One that we do not know yet may be newer than all of ours.
    let newer = StdioClient::start(&world).initialize("2027-01-01").await;
    assert_eq!(newer["result"]["protocolVersion"], "2025-11-25", "{newer}");
}
