//! Messages that cannot be taken: refused with the specification's code, and the server goes on.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::http_client::request;
use crate::stdio_client::StdioClient;
use crate::world::World;

#[tokio::test]
async fn malformed_lines_are_refused_and_the_next_request_is_answered() {
    let world = World::new().await;
    let mut client = StdioClient::connect(&world).await;
    for (line, code, id) in [
        ("{", -32700, Value::Null),
        ("7", -32600, Value::Null),
        ("[]", -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"1.0","id":8,"method":"ping"}"#, -32600, json!(8)),
        (r#"{"jsonrpc":"2.0","id":8,"method":"ping","params":[1]}"#, -32602, json!(8)),
    ] {
        client.send_line(line).await;
        let reply = client.next_message().await;
        let id_sent = reply.get("id").cloned().unwrap_or_default();
        assert_eq!((&reply["error"]["code"], id_sent), (&json!(code), id), "{line}");
    }
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn unknown_methods_tools_and_arguments_are_named() {
    let world = World::new().await;
    let mut client = StdioClient::connect(&world).await;
    for (method, params, code, named) in [
        ("tools/destroy", json!({}), -32601, "tools/destroy"),
        ("server/discover", json!({}), -32602, "protocolVersion"),
        ("tools/call", json!({ "name": "no_such_tool" }), -32602, "no_such_tool"),
        ("tools/call", json!({ "name": "help", "arguments": [] }), -32602, "arguments"),
        ("tools/list", json!({ "cursor": "700" }), -32602, "cursor"),
    ] {
        let reply = client.request(method, params).await;
        let message = reply["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(reply["error"]["code"], code, "{reply}");
        assert!(message.contains(named), "{reply}");
    }
    let result = client.call("run_status", json!({ "run": "r" })).await;
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["error"]["code"], "invalid_argument", "{result}");
}

#[tokio::test]
async fn http_gives_malformed_messages_a_status() {
    let world = World::new().await;
    let session = world.open_session(&world.key).await;
    let answer = world.post(&world.key, &session, "{").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.json()["error"]["code"], -32700);
    // An unknown method is an answer in the older era, and a status of its own in the newer.
    let answer = world.post(&world.key, &session, &request(1, "no/such", json!({}))).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (StatusCode::OK, &json!(-32601)));
    let answer = world.post_modern("2026-07-28", "no/such", json!({})).await;
    let code = &answer.json()["error"]["code"];
    assert_eq!((answer.status, code), (StatusCode::NOT_FOUND, &json!(-32601)));
    let headers = [("content-type", "text/plain"), ("mcp-session-id", session.as_str())];
    let answer = world.http("POST", &world.key, &headers, "{}").await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}
