//! How the MCP door treats sessions: what they are shown, how they wait, what they may read.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_testkit::{Exchange, McpClient, Message, ModernClient, StdioClient, TestApp, until};
use tokio::task::JoinHandle;

use super::world::{Player, Project, answer, id_of};
use crate::PROGRAM;

const COMMON: [&str; 4] = ["authenticate", "get_conversation_messages", "get_delegation", "help"];
const TASK: [&str; 3] = ["delegate_to_chat_session", "get_next_action", "report_completed"];
const CHAT: [&str; 8] = [
    "end_conversation",
    "get_pending_messages",
    "report_delegation_completed",
    "respond_chat",
    "respond_conversation_message",
    "send_conversation_message",
    "send_message",
    "start_conversation",
];

/// The names of all these.
fn names(parts: &[&[&str]]) -> BTreeSet<String> {
    parts.iter().copied().flatten().map(|name| (*name).to_owned()).collect()
}

fn listed(result: &Value) -> BTreeSet<String> {
    result["tools"].as_array().expect("tools").iter().map(|tool| id_of(tool, "name")).collect()
}

async fn tools(mcp: &McpClient) -> BTreeSet<String> {
    listed(&mcp.result("tools/list", json!({})).await)
}

/// Only the tools of teams among these.
fn of_teams(tools: &BTreeSet<String>) -> BTreeSet<String> {
    tools.intersection(&names(&[&COMMON, &TASK, &CHAT])).cloned().collect()
}

fn is_news(message: &Message) -> bool {
    message.method() == Some("notifications/tools/list_changed")
}

async fn news(stream: &mut Exchange) {
    stream.until("news of the tools", is_news).await;
}

/// Rows 2.5, 2.20: a session in the header is shown what its purpose allows, in both eras; `help`
/// says the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_shown_what_it_may_use() {
    let app = TestApp::new(PROGRAM).start().await;
    let project = Project::start(&app.local(), "p", &["ann"]).await;
    let everything = tools(&McpClient::connect(&app.client()).await).await;
    assert_eq!(of_teams(&everything), names(&[&COMMON, &TASK, &CHAT]));
    for (purpose, own) in [("task", &TASK[..]), ("chat", &CHAT[..])] {
        let player = project.login("ann", purpose).await;
        let client = app.client().with_key(&player.token);
        let expected = names(&[&COMMON, own]);
        let mcp = McpClient::connect(&client).await;
        assert_eq!(tools(&mcp).await, expected);
        let modern = ModernClient::new(&client);
        let result = modern.result("tools/list", json!({})).await;
        assert_eq!(listed(&result), expected);
        assert_eq!(result["cacheScope"], "private", "not for others");
        // Without an argument the header's session calls.
        let help = answer(&mcp.called("help", json!({})).await);
        let told: BTreeSet<String> = serde_json::from_value(help["tools"].clone()).unwrap();
        assert_eq!((told, &help["purpose"]), (expected, &json!(purpose)));
        let help = modern.call("help", json!({})).await.result().await;
        assert_eq!(answer(&help)["agent_id"], "p-ann");
    }
}

/// Rows 2.1, 2.20: a connection hides what none of its living sessions may use, says so when that
/// changes, and refuses nothing because of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_shows_what_its_sessions_may_use() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_SESSION_SECONDS", "16").start().await;
    let project = Project::start(&app.local(), "p", &["ann"]).await;
    let mcp = McpClient::connect(&app.client()).await;
    let mut stream = mcp.listen().await;
    stream.next().await;
    let everything = tools(&mcp).await;
    let login = async |purpose: &str| {
        let mut login = project.credentials("ann");
        login["purpose"] = json!(purpose);
        let token = id_of(&answer(&mcp.called("authenticate", login).await), "session_token");
        Player { mcp: mcp.clone(), token }
    };
    let work = login("task").await;
    news(&mut stream).await;
    let with_task = tools(&mcp).await;
    assert_eq!(of_teams(&with_task), names(&[&COMMON, &TASK]));
    assert_eq!(everything.difference(&with_task).count(), CHAT.len(), "only team tools are hidden");
    assert_eq!(work.call("get_next_action", json!({})).await["action"], "none");
    // What is hidden works all the same for who has the token.
    let elsewhere = project.login("ann", "chat").await;
    let chat = Player { mcp: mcp.clone(), token: elsewhere.token };
    assert_eq!(chat.call("get_pending_messages", json!({})).await["invitations"], json!([]));
    assert_eq!(tools(&mcp).await, with_task);
    // Another session of the other purpose shows the rest.
    login("chat").await;
    news(&mut stream).await;
    assert_eq!(tools(&mcp).await, everything);
    // Another connection has nothing to do with it.
    let other = McpClient::connect(&app.client()).await;
    assert_eq!(tools(&other).await, everything);
    // They end, the older one first.
    news(&mut stream).await;
    news(&mut stream).await;
    assert_eq!(of_teams(&tools(&mcp).await), names(&[&["authenticate"]]));
    assert_eq!(work.refused("get_next_action", json!({})).await, "sessionExpired");
}

/// Row 2.2: over stdio it is the same, for the tenant `local`.
#[tokio::test(flavor = "multi_thread")]
async fn agents_work_over_stdio() {
    let app = TestApp::new(PROGRAM).start().await;
    let project = Project::start(&app.local(), "p", &["ann"]).await;
    let task = project.task("ann", "work").await;
    let mut stdio = StdioClient::start(&mut app.cli().command(&["mcp"]));
    stdio.initialize(json!({}), "pipe");
    let mut call = |tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        answer(&stdio.result("tools/call", params))
    };
    let token = id_of(&call("authenticate", project.credentials("ann")), "session_token");
    let next = call("get_next_action", json!({ "session_token": token, "wait_seconds": 5 }));
    assert_eq!(next["task"]["id"], task);
    let done = call("report_completed", json!({ "session_token": token, "task_id": task }));
    assert_eq!(done["status"], "done");
    let is_news = |message: &Value| message["method"] == "notifications/tools/list_changed";
    if !stdio.seen.iter().any(is_news) {
        stdio.until("news of the tools", is_news);
    }
    let shown = listed(&stdio.result("tools/list", json!({})));
    assert_eq!(of_teams(&shown), names(&[&COMMON, &TASK]));
    // A wait that is given up leaves the process free to go.
    let wait = json!({ "session_token": token, "wait_seconds": 30 });
    stdio.request("tools/call", json!({ "name": "get_next_action", "arguments": wait }));
    let start = Instant::now();
    assert_eq!(stdio.end().0, 0);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

/// A call that waits for half a minute, if nothing ends it.
fn long_poll(player: &Player, id: &str) -> JoinHandle<Value> {
    let (player, id) = (player.clone(), id.to_owned());
    tokio::spawn(async move {
        let wait = json!({ "session_token": player.token, "wait_seconds": 30 });
        let mut exchange =
            player.mcp.call_as(&json!(id), &json!(id), "get_pending_messages", wait).await;
        exchange.result().await
    })
}

/// Row 2.2: who waits is woken by what comes, and let go when it gives up.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_when_something_comes_or_it_is_given_up() {
    let app = TestApp::new(PROGRAM).start().await;
    let project = Project::start(&app.local(), "p", &["ann"]).await;
    let chat = project.login("ann", "chat").await;
    let poll = long_poll(&chat, "first");
    project.write("hana", "ann", "hello").await;
    let woken = answer(&poll.await.unwrap());
    assert_eq!(woken["pending_messages"][0]["content"], "hello");
    let start = Instant::now();
    let poll = long_poll(&chat, "second");
    // Again and again, since it may not have begun.
    until("the wait is given up", async || {
        chat.mcp.notify("notifications/cancelled", json!({ "requestId": "second" })).await;
        poll.is_finished()
    })
    .await;
    assert_eq!(answer(&poll.await.unwrap())["pending_messages"], json!([]));
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
}

/// Enough for what comes before the wait, on a busy machine.
const IDLE: u64 = 5;

/// A chat session that may be idle for `IDLE` seconds, waiting for longer than that: were it not, the
/// connection would tell of its end.
async fn a_waiting_session(project: &Project) -> (Player, Exchange, JoinHandle<Value>) {
    let chat = project.login("ann", "chat").await;
    let mut stream = chat.mcp.listen().await;
    news(&mut stream).await;
    let poll = long_poll(&chat, "poll");
    let silence = stream.next_within(Duration::from_secs(IDLE + 4)).await;
    assert!(silence.is_err(), "it waits, so it is not idle: {silence:?}");
    (chat, stream, poll)
}

/// Row 2.2: a server that is asked to end does not wait for those who wait; they are answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_the_server() {
    let mut app = TestApp::new(PROGRAM).env("SHIKIRI_CHAT_IDLE_SECONDS", IDLE).start().await;
    let project = Project::start(&app.local(), "p", &["ann"]).await;
    let (_chat, _stream, poll) = a_waiting_session(&project).await;
    let (code, took) = app.terminate().await;
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(answer(&poll.await.unwrap())["pending_messages"], json!([]));
}

/// Row 2.1: a session waits as long as its client does. When the client goes away the session is
/// idle, and ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_of_a_client_that_went_away_keeps_no_session_alive() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_CHAT_IDLE_SECONDS", IDLE).start().await;
    let project = Project::start(&app.local(), "p", &["ann"]).await;
    let (chat, mut stream, poll) = a_waiting_session(&project).await;
    poll.abort();
    news(&mut stream).await;
    assert_eq!(of_teams(&tools(&chat.mcp).await), names(&[&["authenticate"]]));
}

/// Row 2.5: a session in the header is put out when it ends, with the stream that it has open.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_is_put_out() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_SESSION_SECONDS", "8").start().await;
    let project = Project::start(&app.local(), "p", &["ann"]).await;
    let token = project.login("ann", "task").await.token;
    let mcp = McpClient::connect(&app.client().with_key(&token)).await;
    let mut stream = mcp.listen().await;
    assert_eq!(stream.status, 200);
    stream.rest().await;
    assert_eq!(stream.broken, None, "it came to its end");
    assert_eq!(mcp.request("tools/list", json!({})).await.status, 401);
}

/// Row 2.16: the answer was written to a session that died before it read it. The next one of the
/// agent is told, and that it may know.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_in_an_unread_answer_is_told_to_the_next_session() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_CHAT_IDLE_SECONDS", "6").start().await;
    let project = Project::start(&app.local(), "p", &["ann", "ben"]).await;
    let ben = project.login("ben", "chat").await;
    let ann = project.login("ann", "chat").await;
    let opening = json!({ "target_agent_id": "p-ben", "initial_message": "りんご" });
    let talk = id_of(&ann.call("start_conversation", opening).await, "conversation_id");
    let end = json!({ "conversation_id": talk });
    ben.call("end_conversation", end).await;
    let client = ModernClient::new(&app.client());
    let look = json!({ "session_token": ann.token });
    let params = json!({ "name": "get_pending_messages", "arguments": look });
    let answered = client.try_send(&client.prepare("tools/call", params)).await.unwrap();
    assert_eq!(answered.status, 200);
    drop(answered);
    let next = project.login("ann", "chat").await;
    let news = next.call("get_pending_messages", json!({ "wait_seconds": 20 })).await;
    let told =
        json!([{ "conversation_id": talk, "reason": "participant_ended", "told_before": true }]);
    assert_eq!(news["ended_conversations"], told);
    let again = next.call("get_pending_messages", json!({})).await;
    assert_eq!(again["ended_conversations"], json!([]));
}

/// Rows 2.14, 2.16: a conversation can be read by those who take part, and by the tenant's keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_a_resource_for_those_it_concerns() {
    let app = TestApp::new(PROGRAM).start().await;
    let project = Project::start(&app.local(), "p", &["ann", "ben", "cho"]).await;
    let other_tenant = app.tenant("other").await;
    let ann = project.login("ann", "chat").await;
    let opening = json!({ "target_agent_id": "p-ben", "initial_message": "hello" });
    let started = ann.called("start_conversation", opening).await;
    let link = &started["content"][1];
    let dialogue = id_of(&started["structuredContent"], "conversation_id");
    let uri = format!("shikiri://dialogues/{dialogue}");
    assert_eq!((&link["type"], &link["uri"]), (&json!("resource_link"), &json!(uri)));
    let connect = async |agent: &str, purpose: &str| {
        let token = project.login(agent, purpose).await.token;
        McpClient::connect(&app.client().with_key(&token)).await
    };
    let key = McpClient::connect(&app.client()).await;
    let ben = connect("ben", "task").await;
    let templates = ben.result("resources/templates/list", json!({})).await;
    let templates = templates["resourceTemplates"].as_array().unwrap().iter();
    let templates: Vec<_> = templates.map(|one| id_of(one, "uriTemplate")).collect();
    assert_eq!(templates, ["shikiri://dialogues/{id}"]);
    for reader in [&connect("ann", "chat").await, &ben, &key] {
        let read = reader.result("resources/read", json!({ "uri": uri })).await;
        let text = id_of(&read["contents"][0], "text");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&read["state"], &read["turn"]), (&json!("pending"), &json!("p-ben")));
        assert_eq!(read["messages"][0]["content"], "hello");
        assert_eq!(read["conversation_id"], dialogue);
    }
    let strangers = [connect("cho", "chat").await, McpClient::connect(&other_tenant.client).await];
    for stranger in &strangers {
        let mut read = stranger.request("resources/read", json!({ "uri": uri })).await;
        read.error(-32002).await;
    }
    for nothing in ["", "dia_no", "../runs", "a/b"] {
        let uri = format!("shikiri://dialogues/{nothing}");
        key.request("resources/read", json!({ "uri": uri })).await.error(-32002).await;
    }
}
