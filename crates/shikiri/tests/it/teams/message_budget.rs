//! How many messages two agents exchange because of one thing, through the real server.

use serde_json::{Value, json};
use shikiri_testkit::{TestApp, TestDatabase, have_postgres};

use super::world::{Project, refusal};
use crate::PROGRAM;

const MOST: usize = 8;
const REFUSED: &str = "message_budget_spent";

/// Each of the two sends before it reads, in a session of its own, until it is refused.
async fn exchange(project: &Project) -> usize {
    let mut sent = 0;
    loop {
        let (from, to) = if sent % 2 == 0 { ("ann", "ben") } else { ("ben", "ann") };
        let session = project.login(from, "chat").await;
        let message = json!({ "target_agent_id": project.agent(to), "content": "And?" });
        let answer = session.called("send_message", message).await;
        if answer["isError"] == true {
            assert_eq!(refusal(&answer), REFUSED);
            return sent;
        }
        sent += 1;
        assert!(sent <= MOST, "no end");
    }
}

/// Whom the server told something.
async fn told(project: &Project) -> Vec<Value> {
    let mut messages = project.list("messages").await;
    messages.retain(|message| message["notice"] == true);
    for notice in &messages {
        assert_eq!(notice["from_agent_id"], "shikiri");
        assert!(notice["content"].as_str().unwrap().contains("p-ann and p-ben"), "{notice}");
    }
    let mut told: Vec<_> = messages.iter().map(|notice| notice["to_agent_id"].clone()).collect();
    told.sort_by_key(Value::to_string);
    told
}

async fn check(app: &TestApp) {
    let project = Project::start(&app.local(), "p", &["ann", "ben", "cho"]).await;
    project.write("hana", "ann", "Ask ben.").await;
    assert_eq!(exchange(&project).await, MOST);
    // Both agents and the person are told, once.
    let everybody = ["p-ann", "p-ben", "p-hana"].map(Value::from);
    assert_eq!(told(&project).await, everybody);
    assert_eq!(exchange(&project).await, 0);
    assert_eq!(told(&project).await, everybody);
    // Neither a talk nor an answer is a way around it.
    let ben = project.login("ben", "chat").await;
    let talk = json!({ "target_agent_id": "p-ann", "initial_message": "And?" });
    assert_eq!(ben.refused("start_conversation", talk).await, REFUSED);
    let pending = ben.pending().await["pending_messages"].as_array().unwrap().clone();
    let notice = pending.iter().find(|message| message["notice"] == true).expect("a notice");
    let answer = json!({ "message_id": notice["message_id"], "content": "Why?" });
    assert_eq!(ben.refused("respond_chat", answer).await, "invalid_argument");
    let answer = json!({ "message_id": pending[0]["message_id"], "content": "Why?" });
    assert_eq!(ben.refused("respond_chat", answer).await, REFUSED);
    // Others are not concerned, and a person sets them off again.
    ben.call("send_message", json!({ "target_agent_id": "p-cho", "content": "Hello" })).await;
    ben.call("send_message", json!({ "target_agent_id": "p-hana", "content": "Done" })).await;
    project.write("hana", "ben", "Once more.").await;
    ben.call("send_message", json!({ "target_agent_id": "p-ann", "content": "Hello" })).await;
    assert_eq!(exchange(&project).await, MOST - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_login_refills_what_two_agents_may_say_because_of_one_message() {
    check(&TestApp::new(PROGRAM).env("SHIKIRI_MESSAGES_PER_CAUSE", MOST).start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_login_refills_it_on_postgresql() {
    if !have_postgres("message budgets") {
        return;
    }
    let database = TestDatabase::create().await;
    let app = TestApp::new(PROGRAM).env("SHIKIRI_MESSAGES_PER_CAUSE", MOST);
    check(&app.store(database.url()).start().await).await;
}
