//! Two clients that use the same request ids at the same time, thousands of times: each gets its
//! own answers and no others.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use shikiri_testkit::{McpClient, TestApp, long};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::served::{Served, agent};
use crate::PROGRAM;

/// Calls in flight of one client.
const AT_ONCE: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_with_equal_ids_never_get_each_others_answers() {
    let calls = if long() { 5_000 } else { 1_000 };
    let app = TestApp::new(PROGRAM).env("SHIKIRI_DURABILITY", "normal").start().await;
    let mut clients = JoinSet::new();
    for name in ["left", "right"] {
        let host = McpClient::connect(&app.client()).await;
        clients.spawn(async move {
            let room = Arc::new(Semaphore::new(AT_ONCE));
            let mut answers = JoinSet::new();
            for id in 0..calls {
                let permit = Arc::clone(&room).acquire_owned().await.unwrap();
                let host = host.clone();
                answers.spawn(async move {
                    // It is not there, and the answer says which was not.
                    let run = format!("run_{name}{id}");
                    let arguments = json!({ "run_id": run });
                    let id = json!(id);
                    let mut call = host.call_as(&id, &id, "run_status", arguments).await;
                    let messages = call.rest().await;
                    drop(permit);
                    let [message] = &messages[..] else { panic!("not one: {messages:?}") };
                    assert_eq!(message.json["id"], id);
                    let text = message.json["result"]["content"][0]["text"].as_str().unwrap();
                    assert!(text.contains(&run), "{run} was answered with {text}");
                    message.event_id.clone().unwrap()
                });
            }
            answers.join_all().await
        });
    }
    let ids = clients.join_all().await.concat();
    assert_eq!(ids.len(), 2 * calls);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "an event id is one event's");
}

/// The same with runs: what they tell, ask and result in.
#[tokio::test(flavor = "multi_thread")]
async fn runs_of_two_clients_with_equal_ids_and_tokens_do_not_cross() {
    let calls: u32 = if long() { 1_000 } else { 100 };
    let echo = agent("echo", |context, input: Value| async move {
        let name = input["name"].as_str().unwrap_or_default().to_owned();
        context.progress(50.0, 100.0, &name).await;
        context.log("info", "echo", &name).await;
        let form = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let answer = context.ask_human(form, &name, None).await;
        Ok(json!({ "name": name, "answer": answer.content["name"] }))
    });
    let served = Served::start(vec![echo]).await;
    let mut clients = JoinSet::new();
    for side in ["left", "right"] {
        let host = McpClient::connect(served.client()).await;
        clients.spawn(async move {
            let room = Arc::new(Semaphore::new(AT_ONCE));
            let mut answers = JoinSet::new();
            for id in 0..calls {
                let permit = Arc::clone(&room).acquire_owned().await.unwrap();
                let host = host.clone();
                answers.spawn(async move {
                    call_echo(&host, id, &format!("{side}-{id}")).await;
                    drop(permit);
                });
            }
            answers.join_all().await.len()
        });
    }
    let answered: usize = clients.join_all().await.into_iter().sum();
    assert_eq!(answered, 2 * calls as usize);
}

async fn call_echo(host: &McpClient, id: u32, name: &str) {
    let id = json!(id);
    let mut call = host.call_as(&id, &id, "echo", json!({ "name": name })).await;
    let question = call.question().await;
    assert_eq!(question["params"]["message"], name);
    let answer = json!({ "action": "accept", "content": { "name": name } });
    assert_eq!(host.answer(&question, answer).await.status, 202);
    let reply = call.reply().await;
    assert_eq!(reply["id"], id);
    assert_eq!(reply["result"]["structuredContent"], json!({ "name": name, "answer": name }));
    for message in &call.seen {
        let said = &message.json["params"];
        match message.method() {
            // What was said before the run began is the server's.
            Some("notifications/progress") if said["message"] != "queued" => {
                assert_eq!((&said["message"], &said["progressToken"]), (&json!(name), &id));
            }
            Some("notifications/message") => assert_eq!(said["data"], name),
            _ => {}
        }
    }
}
