//! The MCP door as its clients meet it: raw messages in, every header and event out.

mod background;
mod bad_http;
mod bad_input;
mod call_keys;
mod catalogue;
mod claude_code;
mod clients;
mod conformance;
mod crossing;
mod handover;
mod heartbeats;
mod isolation;
mod modern;
mod nonsense;
mod resume;
mod rows;
mod samples;
mod served;
mod sessions;
mod stdio;
mod subscriptions;
mod tasks;
mod tickets;

use serde_json::{Value, json};
use shikiri_testkit::{Client, Message};

/// The params of the progress that a run told. In the older era what a heartbeat says again has
/// no event id, and is left out.
fn progress(messages: &[Message]) -> Vec<Value> {
    let of_run = messages.iter().filter(|message| message.event_id.is_some());
    params(of_run, "notifications/progress")
}

/// The params of the log messages among these.
fn logs(messages: &[Message]) -> Vec<Value> {
    params(messages.iter(), "notifications/message")
}

fn params<'a>(messages: impl Iterator<Item = &'a Message>, method: &str) -> Vec<Value> {
    let of_method = messages.filter(|message| message.method() == Some(method));
    of_method.map(|message| message.json["params"].clone()).collect()
}

/// The run that an answer links to.
#[track_caller]
fn linked_run(result: &Value) -> String {
    let content = result["content"].as_array().into_iter().flatten();
    let link = content.into_iter().find(|part| part["type"] == "resource_link");
    let uri = link.and_then(|link| link["uri"].as_str());
    let run = uri.and_then(|uri| uri.strip_prefix("shikiri://runs/"));
    run.unwrap_or_else(|| panic!("no link in {result}")).to_owned()
}

fn yes(notes: &str) -> Value {
    json!({ "action": "accept", "content": { "confirm": true, "notes": notes } })
}

/// A run as REST shows it.
async fn run_over_rest(client: &Client, run: &str) -> Value {
    client.get(&format!("/v1/tenants/local/runs/{run}")).await.expect(200)
}

/// How many runs the tenant has.
async fn count_runs(client: &Client, tenant: &str) -> usize {
    let page = client.get(&format!("/v1/tenants/{tenant}/runs?limit=200")).await.expect(200);
    assert_eq!(page["next_cursor"], Value::Null, "too many to count");
    page["items"].as_array().expect("a list").len()
}
