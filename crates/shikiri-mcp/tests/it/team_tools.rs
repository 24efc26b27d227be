//! Which tools a caller is shown and may call, by its session.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::http_client::request;
use crate::stdio_client::{StdioClient, names_of};
use crate::world::{PASSKEY, PROJECT, World};

const TASK_TOOLS: [&str; 3] = ["delegate_to_chat_session", "get_next_action", "report_completed"];
const CHAT_TOOLS: [&str; 8] = [
    "end_conversation",
    "get_pending_messages",
    "report_delegation_completed",
    "respond_chat",
    "respond_conversation_message",
    "send_conversation_message",
    "send_message",
    "start_conversation",
];
const EVERY_SESSION: [&str; 4] =
    ["authenticate", "get_conversation_messages", "get_delegation", "help"];

fn login(agent: &str, purpose: &str) -> Value {
    json!({ "agent_id": agent, "passkey": PASSKEY, "project_id": PROJECT, "purpose": purpose })
}

fn set(tools: impl IntoIterator<Item = impl Into<String>>) -> BTreeSet<String> {
    tools.into_iter().map(Into::into).collect()
}

fn error_code(result: &Value) -> &Value {
    assert_eq!(result["isError"], true, "{result}");
    &result["structuredContent"]["error"]["code"]
}

async fn session_token(client: &mut StdioClient, agent: &str, purpose: &str) -> String {
    let result = client.call("authenticate", login(agent, purpose)).await;
    assert_eq!(result["isError"], false, "{result}");
    result["structuredContent"]["session_token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tools_list_shows_a_session_token_only_what_its_purpose_allows() {
    let world = World::with_team().await;
    let mut client = StdioClient::connect(&world).await;
    for (purpose, own) in [("task", &TASK_TOOLS[..]), ("chat", &CHAT_TOOLS[..])] {
        let token = session_token(&mut client, "ann", purpose).await;
        let session = world.open_session(&token).await;
        let list = request(1, "tools/list", json!({}));
        let answer = world.post(&token, &session, &list).await.reply();
        let shown = set(names_of(&answer["result"]["tools"]));
        assert_eq!(shown, set(EVERY_SESSION.into_iter().chain(own.iter().copied())), "{purpose}");

        // Help names the same ones.
        let help = client.call("help", json!({ "session_token": token })).await;
        let named: Vec<String> =
            serde_json::from_value(help["structuredContent"]["tools"].clone()).unwrap();
        assert_eq!(set(named), shown, "{purpose}");
    }
}

#[tokio::test]
async fn a_login_hides_the_tools_that_no_session_of_the_connection_may_use() {
    let world = World::with_team().await;
    let mut client = StdioClient::connect(&world).await;
    let all = set(client.tool_names().await);
    for tool in EVERY_SESSION.iter().chain(&TASK_TOOLS).chain(&CHAT_TOOLS) {
        assert!(all.contains(*tool), "{tool} is not listed");
    }
    session_token(&mut client, "ann", "task").await;
    client.until(|m| m["method"] == "notifications/tools/list_changed").await;
    let shown = set(client.tool_names().await);
    let hidden: BTreeSet<_> = all.difference(&shown).cloned().collect();
    assert_eq!(hidden, set(CHAT_TOOLS));
    session_token(&mut client, "ann", "chat").await;
    client.until(|m| m["method"] == "notifications/tools/list_changed").await;
    assert_eq!(set(client.tool_names().await), all);
}

#[tokio::test]
async fn every_team_tool_refuses_a_caller_without_the_session_it_requires() {
    let world = World::with_team().await;
    let mut client = StdioClient::connect(&world).await;
    let task = session_token(&mut client, "ann", "task").await;
    let chat = session_token(&mut client, "ann", "chat").await;
    for tool in EVERY_SESSION.iter().chain(&TASK_TOOLS).chain(&CHAT_TOOLS) {
        // An argument that no tool has: permission is checked first, arguments after it.
        let mut arguments = json!({ "no_such_argument": 1 });
        let without = client.call(tool, arguments.clone()).await;
        let (mut expected, own) = ([json!("notAuthenticated"); 1], error_code(&without).clone());
        if *tool == "authenticate" {
            expected = [json!("invalid_argument")];
        }
        assert_eq!([own], expected, "{tool} without a session");
        for (token, other_tools, code) in [
            (&task, &CHAT_TOOLS[..], "chatSessionRequired"),
            (&chat, &TASK_TOOLS[..], "taskSessionRequired"),
        ] {
            arguments["session_token"] = json!(token);
            let refused = client.call(tool, arguments.clone()).await;
            let code = if other_tools.contains(tool) { code } else { "invalid_argument" };
            assert_eq!(error_code(&refused), code, "{tool}");
        }
    }
}

#[tokio::test]
async fn a_session_token_opens_team_tools_alone() {
    let world = World::with_team().await;
    let mut client = StdioClient::connect(&world).await;
    let token = session_token(&mut client, "ann", "chat").await;
    let session = world.open_session(&token).await;
    for tool in ["run_list", "lane_info", "travel_agent"] {
        let call = request(1, "tools/call", json!({ "name": tool, "arguments": {} }));
        let answer = world.post(&token, &session, &call).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        assert_eq!(error_code(&answer.reply()["result"]), "tool_not_allowed", "{tool}");
    }
    // The header's token serves where the arguments hold none.
    let call = request(2, "tools/call", json!({ "name": "help", "arguments": {} }));
    let answer = world.post(&token, &session, &call).await.reply();
    assert_eq!(answer["result"]["structuredContent"]["agent_id"], "ann", "{answer}");
}

#[tokio::test]
async fn two_agents_hold_a_conversation() {
    let world = World::with_team().await;
    let mut client = StdioClient::connect(&world).await;
    let ann = session_token(&mut client, "ann", "chat").await;
    let bo = session_token(&mut client, "bo", "chat").await;
    let started = json!({
        "session_token": ann, "target_agent_id": "bo", "initial_message": "shiritori",
        "max_turns": 3,
    });
    let started = client.call("start_conversation", started).await;
    let conversation = &started["structuredContent"]["conversation_id"];
    let uri = format!("shikiri://dialogues/{}", conversation.as_str().unwrap());
    assert_eq!(started["content"][1]["uri"], json!(uri), "{started}");

    let waiting = client.call("get_pending_messages", json!({ "session_token": bo })).await;
    let invitation = &waiting["structuredContent"]["invitations"][0];
    assert_eq!(invitation["conversation_id"], *conversation, "{waiting}");
    let answer = json!({
        "session_token": bo, "conversation_id": conversation, "content": "ringo",
    });
    let answered = client.call("respond_conversation_message", answer).await;
    assert_eq!(answered["structuredContent"]["turns_left"], 1, "{answered}");
    let last = json!({
        "session_token": ann, "conversation_id": conversation, "content": "gorira",
    });
    let ended = client.call("send_conversation_message", last).await;
    assert_eq!(ended["structuredContent"]["state"], "ended", "{ended}");

    let read = json!({ "session_token": bo, "conversation_id": conversation, "after": 1 });
    let read = client.call("get_conversation_messages", read).await;
    let messages = read["structuredContent"]["messages"].as_array().unwrap();
    let contents: Vec<_> = messages.iter().map(|message| &message["content"]).collect();
    assert_eq!(contents, ["ringo", "gorira"], "{read}");
}
