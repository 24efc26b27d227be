//! `shikiri mcp`: the door over stdin and stdout, as a client that starts it meets it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_testkit::{Cli, Client, StdioClient, TestApp, until};
use tempfile::TempDir;

use super::{linked_run, yes};
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(30);

fn start(folder: &TempDir) -> StdioClient {
    StdioClient::start(&mut Cli::new(PROGRAM, folder.path()).command(&["mcp"]))
}

/// A process with a client of the older era that can be asked everything.
fn connected(folder: &TempDir) -> StdioClient {
    let mut client = start(folder);
    client.initialize(json!({ "elicitation": {}, "sampling": {} }), "pipe");
    client
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p" } })
}

/// A request's params in the newer era.
fn modern(mut params: Value, capabilities: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    params
}

#[test]
fn both_eras_are_spoken_over_one_pair_of_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = start(&folder);
    let early = client.request("tools/list", json!({}));
    assert_eq!(client.reply(early)["error"]["code"], -32600, "not initialized");
    let found = client.result("server/discover", modern(json!({}), json!({})));
    assert_eq!(found["supportedVersions"][0], "2026-07-28");

    let hello = client.initialize(json!({ "elicitation": {} }), "pipe");
    assert_eq!(hello["protocolVersion"], "2025-11-25");
    assert_eq!(client.result("ping", json!({})), json!({}));
    let input = json!({ "steps": 2, "step_ms": 1 });
    let older = client.result("tools/call", call("long_running_agent", input.clone()));
    let newer = modern(call("long_running_agent", input), json!({}));
    let newer = client.result("tools/call", newer);
    for result in [&older, &newer] {
        assert_eq!(result["structuredContent"], json!({ "steps": 2 }));
    }
    assert_eq!((older.get("resultType"), &newer["resultType"]), (None, &json!("complete")));
    let progress = |m: &&Value| m["method"] == "notifications/progress";
    assert!(client.seen.iter().filter(progress).count() >= 4, "{:?}", client.seen);

    for (version, code) in [("2025-11-25", -32022), ("2030-01-01", -32022)] {
        let mut params = modern(json!({}), json!({}));
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(version);
        let refused = client.request("tools/list", params);
        assert_eq!(client.reply(refused)["error"]["code"], code, "{version}");
    }
    let (code, errors) = client.end();
    assert_eq!((code, errors.as_str()), (0, ""));
}

#[test]
fn questions_are_asked_and_answered_over_the_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = connected(&folder);
    let id = client.request("tools/call", call("travel_agent", json!({ "step_ms": 1 })));
    let question = client.until("a question", |m| m["method"] == "elicitation/create");
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": yes("by bus") }));
    let result = client.reply(id);
    assert_eq!(result["result"]["structuredContent"]["notes"], "by bus", "{result}");

    let input = json!({ "step_ms": 1 });
    let asked = modern(call("travel_agent", input.clone()), json!({ "elicitation": {} }));
    let asked = client.result("tools/call", asked);
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let mut again = modern(call("travel_agent", input), json!({ "elicitation": {} }));
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ key: yes("by foot") });
    let result = client.result("tools/call", again.clone());
    assert_eq!(result["structuredContent"]["notes"], "by foot");
    let repeated = client.result("tools/call", again.clone());
    assert_eq!(repeated["structuredContent"], result["structuredContent"]);
    again["inputResponses"] = json!({ key: yes("by boat") });
    let used = client.request("tools/call", again);
    assert_eq!(client.reply(used)["error"]["code"], -32602);

    // Who cannot be asked has not agreed.
    let plain = modern(call("travel_agent", json!({ "step_ms": 1 })), json!({}));
    let result = client.result("tools/call", plain);
    assert_eq!(result["structuredContent"]["booked"], false);
}

#[test]
fn requests_are_answered_as_they_finish_each_under_its_own_id() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = connected(&folder);
    let trip = client.request("tools/call", call("travel_agent", json!({ "step_ms": 1 })));
    let question = client.until("a question", |m| m["method"] == "elicitation/create");
    let calls: Vec<_> = (1..=20)
        .map(|steps| {
            let input = json!({ "steps": steps, "step_ms": 1 });
            (steps, client.request("tools/call", call("long_running_agent", input)))
        })
        .collect();
    let ping = client.request("ping", json!({}));
    client.reply(ping);
    for (steps, id) in calls.into_iter().rev() {
        let reply = client.reply(id);
        assert_eq!(reply["result"]["structuredContent"], json!({ "steps": steps }));
    }
    assert!(!client.seen.iter().any(|m| m["id"] == trip), "it waits for its answer");
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": yes("") }));
    assert_eq!(client.reply(trip)["result"]["structuredContent"]["booked"], true);
    let replies = client.seen.iter().filter(|m| m.get("result").is_some()).count();
    assert_eq!(replies, 1 + 1 + 20 + 1, "one for each request");
}

#[test]
fn a_cancelled_request_is_not_answered_and_its_run_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = connected(&folder);
    let input = json!({ "steps": 10_000, "step_ms": 5 });
    let id = client.request("tools/call", call("long_running_agent", input));
    client.until("progress", |m| m["params"]["message"] == "step 1 done");
    cancel(&mut client, id);
    assert_eq!(until_ended(&mut client), ["cancelled"]);
    assert!(!client.seen.iter().any(|m| m["id"] == id && m.get("method").is_none()));
}

fn cancel(client: &mut StdioClient, id: i64) {
    let params = json!({ "requestId": id });
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
}

/// The statuses of all runs, once they have ended or shown that they will not.
fn until_ended(client: &mut StdioClient) -> Vec<String> {
    let listed = client.result("resources/list", json!({}));
    let runs: Vec<_> = listed["resources"].as_array().unwrap().clone();
    let wait = |run: &Value| {
        let wanted = call("run_wait", json!({ "run_id": run["name"], "max_seconds": 30 }));
        let ended = client.result("tools/call", wanted);
        ended["structuredContent"]["status"].as_str().unwrap().to_owned()
    };
    runs.iter().map(wait).collect()
}

/// A client that cancels at once means it too: the cancellation must not overtake the call.
#[test]
fn a_request_that_is_cancelled_at_once_leaves_no_run_behind() {
    const ROUNDS: usize = 10;
    let folder = tempfile::tempdir().unwrap();
    let mut client = connected(&folder);
    for _ in 0..ROUNDS {
        let input = json!({ "steps": 2, "step_ms": 5_000 });
        let id = client.request("tools/call", call("long_running_agent", input));
        cancel(&mut client, id);
    }
    let listed = |client: &mut StdioClient| {
        let listed = client.result("resources/list", json!({}));
        listed["resources"].as_array().unwrap().len()
    };
    let start = Instant::now();
    while listed(&mut client) < ROUNDS {
        assert!(start.elapsed() < PATIENCE, "not every call was taken");
    }
    assert_eq!(until_ended(&mut client), ["cancelled"; ROUNDS]);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_input_ends_the_process_does_and_its_run_goes_on_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = connected(&folder);
    let input = json!({ "steps": 40, "step_ms": 50 });
    client.request("tools/call", call("long_running_agent", input));
    client.until("progress", |m| m["params"]["message"] == "step 2 done");
    let listed = client.result("resources/list", json!({}));
    let run = listed["resources"][0]["name"].as_str().unwrap().to_owned();
    let (code, errors) = client.end();
    assert_eq!((code, errors.as_str()), (0, ""));

    let app = TestApp::new(PROGRAM).root(folder.path()).start().await;
    let ended = until_completed(&app.client(), &run).await;
    assert_eq!(ended["result"], json!({ "steps": 40 }));
}

async fn until_completed(client: &Client, run: &str) -> Value {
    let mut last = Value::Null;
    until("the run has ended", async || {
        last = super::run_over_rest(client, run).await;
        last["status"] == "completed"
    })
    .await;
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pipes_and_a_server_on_the_same_folder_see_the_same_runs() {
    let folder = tempfile::tempdir().unwrap();
    let app = TestApp::new(PROGRAM).root(folder.path()).start().await;
    let mut client = connected(&folder);
    let id = client.request("tools/call", call("travel_agent", json!({ "step_ms": 1 })));
    let question = client.until("a question", |m| m["method"] == "elicitation/create");
    let (asked, run) = question["id"].as_str().unwrap().split_once('.').unwrap();
    let answer = json!({
        "question_id": asked, "action": "accept", "content": { "confirm": true, "notes": "web" },
    });
    let path = format!("/v1/tenants/local/runs/{run}/answers");
    assert!(app.client().post(&path, &answer).await.status < 300);
    assert_eq!(client.reply(id)["result"]["structuredContent"]["notes"], "web");
}

#[test]
fn the_process_is_one_instance_named_by_its_environment_or_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        (vec![("SHIKIRI_AGENT_ID", "alpha"), ("CAI_AGENT_ID", "beta")], "alpha-{pid}"),
        (vec![("SHIKIRI_AGENT_ID", " "), ("CAI_AGENT_ID", "beta")], "beta-{pid}"),
        (vec![], "pipe-{pid}"),
    ];
    for (variables, expected) in names {
        let mut command = Cli::new(PROGRAM, folder.path()).command(&["mcp"]);
        let mut client = StdioClient::start(command.envs(variables));
        client.initialize(json!({}), "pipe");
        let input = json!({ "steps": 1, "step_ms": 1 });
        let mut params = call("long_running_agent", input);
        params["_meta"]["claudecode/toolUseId"] = json!("toolu_1");
        let run = linked_run(&client.result("tools/call", params));
        let uri = json!({ "uri": format!("shikiri://runs/{run}/events") });
        let read = client.result("resources/read", uri);
        let events: Value =
            serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
        let origin = &events["events"][0]["data"]["origin"];
        let instance = expected.replace("{pid}", &client.pid().to_string());
        assert_eq!(origin["who"], json!({ "instance": instance, "tool_use_id": "toolu_1" }));
        assert_eq!(client.end().0, 0);
    }
}

#[test]
fn nonsense_on_the_input_is_answered_and_survived() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = connected(&folder);
    for (line, code) in [
        ("nonsense", -32700),
        ("{", -32700),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        ("\u{0}", -32700),
    ] {
        client.write(line);
        let answer = client.until("an error", |m| m.get("error").is_some());
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(code), &Value::Null),
            "{line}"
        );
    }
    client.write("");
    // Answers and unexpected notices get no answer.
    client.send(&json!({ "jsonrpc": "2.0", "id": "q_0.run_0", "result": {} }));
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/nonsense" }));
    cancel(&mut client, 999);
    assert_eq!(client.result("ping", json!({})), json!({}));
    let unknown = client.request("no/such/method", json!({}));
    assert_eq!(client.reply(unknown)["error"]["code"], -32601);
    assert_eq!(client.end(), (0, String::new()));
}

#[test]
fn a_line_without_end_is_refused_and_ends_the_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = connected(&folder);
    // Just over: what is not read any more would break the pipe.
    client.write(&"x".repeat(4 * 1024 * 1024));
    let answer = client.until("an error", |m| m.get("error").is_some());
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    assert_eq!(client.end().0, 0);
}

#[test]
fn a_subscriber_on_the_pipes_is_told_of_changes() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = connected(&folder);
    let trip = json!({ "agent": "travel_agent", "input": { "step_ms": 1 } });
    let run = linked_run(&client.result("tools/call", call("run_agent", trip)));
    let uri = format!("shikiri://runs/{run}");
    client.result("resources/subscribe", json!({ "uri": uri }));
    // As often as it takes until the run waits for its answer.
    let status = call("run_status", json!({ "run_id": run }));
    while client.result("tools/call", status.clone())["structuredContent"]["status"] != "waiting" {}
    let told = client.seen.len();
    client.result("tools/call", call("run_cancel", json!({ "run_id": run })));
    let is_update = |m: &Value| m["method"] == "notifications/resources/updated";
    if !client.seen[told..].iter().any(is_update) {
        client.until("an update", is_update);
    }
    let update = client.seen[told..].iter().find(|message| is_update(message)).unwrap();
    assert_eq!(update["params"], json!({ "uri": uri }));

    let filter = json!({ "notifications": { "resourceSubscriptions": [uri] } });
    let listening = client.request("subscriptions/listen", modern(filter, json!({})));
    let acknowledged = "notifications/subscriptions/acknowledged";
    client.until("an acknowledgement", |m| m["method"] == acknowledged);
    cancel(&mut client, listening);
    assert_eq!(client.reply(listening)["result"]["resultType"], "complete");
}

#[test]
fn a_killed_process_leaves_its_run_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let lease = ("SHIKIRI_NODE_LEASE_SECONDS", "0.6");
    let again = |folder: &TempDir| {
        let mut command = Cli::new(PROGRAM, folder.path()).command(&["mcp"]);
        let mut client = StdioClient::start(command.env(lease.0, lease.1));
        client.initialize(json!({}), "pipe");
        client
    };
    let mut client = again(&folder);
    let input = json!({ "steps": 20, "step_ms": 20 });
    client.request("tools/call", call("long_running_agent", input));
    client.until("progress", |m| m["params"]["message"] == "step 2 done");
    client.kill9();
    let mut client = again(&folder);
    assert_eq!(until_ended(&mut client), ["completed"]);
}
