//! A client that asks for a part of the tools gets those alone.

use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Value, json};
use shikiri_mcp::McpOptions;
use tower::ServiceExt;

use crate::http_client::request;
use crate::stdio_client::{StdioClient, modern, names_of};
use crate::world::World;

const VERSION: &str = "2026-07-28";

const RUN_TOOLS: [&str; 7] =
    ["run_agent", "run_answer", "run_cancel", "run_list", "run_status", "run_update", "run_wait"];

/// The answer to a request at this address.
async fn at(world: &World, address: &str, method: &str, params: Value) -> (u16, Value) {
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let mut builder = Request::builder()
        .method("POST")
        .uri(address)
        .header("authorization", format!("Bearer {}", world.key))
        .header("content-type", "application/json")
        .header("mcp-protocol-version", VERSION)
        .header("mcp-method", method);
    if !name.is_empty() {
        builder = builder.header("mcp-name", name);
    }
    let body = Body::from(request(1, method, modern(params, VERSION)));
    let response = world.router.clone().oneshot(builder.body(body).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test]
async fn an_address_with_groups_lists_and_calls_their_tools_alone() {
    let world = World::new().await;
    let (_, all) = at(&world, "/mcp", "tools/list", json!({})).await;
    let all = names_of(&all["result"]["tools"]);
    let (_, listed) = at(&world, "/mcp?tools=runs", "tools/list", json!({})).await;
    assert_eq!(names_of(&listed["result"]["tools"]), RUN_TOOLS);
    let (_, both) = at(&world, "/mcp?tools=runs,samples", "tools/list", json!({})).await;
    let both = names_of(&both["result"]["tools"]);
    assert_eq!(both.len(), RUN_TOOLS.len() + 3, "{both:?}");
    let (_, others) = at(&world, "/mcp?tools=lanes,teams,agents", "tools/list", json!({})).await;
    let others = names_of(&others["result"]["tools"]);
    assert_eq!(both.len() + others.len(), all.len(), "each tool has one group");

    // What is not offered is not called, nor is its prompt.
    let call = json!({ "name": "travel_agent", "arguments": {} });
    let (_, refused) = at(&world, "/mcp?tools=runs", "tools/call", call).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("in the groups that were asked for"), "{refused}");
    let (_, prompts) = at(&world, "/mcp?tools=runs", "prompts/list", json!({})).await;
    assert_eq!(prompts["result"]["prompts"], json!([]));
    let get = json!({ "name": "travel_agent" });
    let (_, refused) = at(&world, "/mcp?tools=runs", "prompts/get", get).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test]
async fn an_unknown_group_is_refused_with_the_list() {
    let world = World::new().await;
    let (status, refused) = at(&world, "/mcp?tools=run", "tools/list", json!({})).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32602)), "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("runs, lanes, teams, samples, agents"), "{refused}");
}

#[tokio::test]
async fn a_process_offers_the_groups_that_it_was_started_with() {
    let options = McpOptions { tools: "runs".parse().unwrap(), ..McpOptions::default() };
    let world = World::with_options(options).await;
    let mut client = StdioClient::connect(&world).await;
    assert_eq!(client.tool_names().await, RUN_TOOLS);
}
