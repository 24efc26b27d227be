//! Some seconds of nonsense in the protocol's clothes: messages that are nearly right. The door may
//! refuse them; it may not fail, hang or fall over.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Map, Value, json};
use shikiri_testkit::{Client, Exchange, McpClient, Rng, TestApp, long};
use tokio::task::JoinSet;

use super::run_over_rest;
use crate::PROGRAM;

const WORKERS: usize = 4;
/// For one answer; what streams is let go after its head.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_nearly_right_do_no_harm() {
    let mut rng = Rng::seeded("mcp nonsense");
    let time = Duration::from_secs(if long() { 120 } else { 5 });
    let mut app = TestApp::new(PROGRAM).env("SHIKIRI_DURABILITY", "normal").start().await;
    let pid = app.server().pid();
    // Another client's run, which must not notice.
    let untouched = app.start_run("travel_agent", json!({ "step_ms": 1 })).await;
    let fuzzed = app.tenant("fuzzed").await;
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let host = McpClient::connect(&fuzzed.client).await;
        workers.spawn(send_nonsense(host, fuzzed.client.clone(), rng.fork(), time));
    }
    let mut tally = [0_u64; 6];
    for worker in workers.join_all().await {
        for (sum, count) in tally.iter_mut().zip(worker) {
            *sum += count;
        }
    }
    assert_eq!(app.server().ended(), None, "the server ended");
    assert_eq!(app.server().pid(), pid);
    assert!(!app.log().contains("panicked"), "{}", app.log());
    let host = McpClient::connect(&app.client()).await;
    assert_eq!(host.result("ping", json!({})).await, json!({}));
    assert_eq!(run_over_rest(&app.client(), &untouched).await["status"], "waiting");
    eprintln!("nonsense: 2xx {}, 4xx {} in {time:?}", tally[2], tally[4]);
    assert!(tally[2] > 50 && tally[4] > 50, "too few: {tally:?}");
}

/// How many answers there were of each hundred.
async fn send_nonsense(host: McpClient, client: Client, mut rng: Rng, time: Duration) -> [u64; 6] {
    let start = Instant::now();
    let mut tally = [0; 6];
    // A busy machine is given longer for as much.
    while start.elapsed() < time || (tally.iter().sum::<u64>() < 100 && start.elapsed() < time * 12)
    {
        let body = body(&mut rng);
        let request =
            if rng.one_in(2) { host.http(Method::POST) } else { bare(&client, &mut rng, &body) };
        let shown = String::from_utf8_lossy(&body).into_owned();
        let request = request.header("content-type", "application/json").body(body);
        let sent = tokio::time::timeout(PATIENCE, Exchange::open(request)).await;
        let answer = sent.unwrap_or_else(|_| panic!("no answer to {shown}"));
        assert!((200..500).contains(&answer.status), "{} for {shown}", answer.status);
        tally[usize::from(answer.status / 100)] += 1;
    }
    tally
}

/// Headers of the newer era, which may or may not fit the body.
fn bare(client: &Client, rng: &mut Rng, body: &[u8]) -> reqwest::RequestBuilder {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("x").to_owned();
    let mut request = client.request(Method::POST, "/mcp").header("accept", "*/*");
    let (method, name) = (text(&body["method"]), text(&body["params"]["name"]));
    for (header, value) in [
        ("mcp-protocol-version", "2026-07-28".to_owned()),
        ("mcp-method", method),
        ("mcp-name", name),
        ("last-event-id", "7".to_owned()),
    ] {
        let is_visible = value.bytes().all(|b| (0x20..0x7f).contains(&b));
        if is_visible && !rng.one_in(6) {
            request = request.header(header, value);
        }
    }
    request
}

fn body(rng: &mut Rng) -> Vec<u8> {
    let mut text = message(rng).to_string().into_bytes();
    match rng.range(0, 8) {
        0 => {
            let at = rng.index(text.len());
            text[at] ^= 1 << rng.range(0, 8);
        }
        1 => text.truncate(rng.index(text.len())),
        2 => text = "[".repeat(usize::try_from(rng.range(1, 3_000)).unwrap_or(1)).into_bytes(),
        _ => {}
    }
    text
}

/// Like a message that the door takes, with something odd in it.
fn message(rng: &mut Rng) -> Value {
    let methods = [
        "tools/call",
        "tools/call",
        "tools/call",
        "tools/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
        "ping",
        "initialize",
        "server/discover",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "subscriptions/listen",
        "notifications/cancelled",
        "notifications/initialized",
        "nonsense",
    ];
    let mut message = json!({
        "jsonrpc": "2.0", "id": rng.range(0, 10), "method": rng.pick(&methods), "params": params(rng),
    });
    if rng.one_in(8) {
        message = json!({ "jsonrpc": "2.0", "id": "q_0.run_0", "result": params(rng) });
    }
    spoil(&mut message, rng);
    message
}

fn params(rng: &mut Rng) -> Value {
    let tools = [
        "long_running_agent",
        "travel_agent",
        "research_agent",
        "run_agent",
        "run_status",
        "run_wait",
        "run_answer",
        "run_update",
        "run_cancel",
    ];
    let mut params = json!({
        "name": rng.pick(&tools),
        "arguments": {
            "steps": rng.range(0, 3), "step_ms": 0, "run_id": "run_0", "max_seconds": 0,
            "agent": "long_running_agent", "input": { "steps": 1, "step_ms": 0 },
        },
        "uri": "shikiri://runs/run_0", "taskId": "run_0", "cursor": null, "level": "info",
        "ref": { "type": "ref/prompt", "name": "travel_agent" },
        "argument": { "name": "destination", "value": "P" },
        "notifications": { "toolsListChanged": true, "taskIds": ["run_0"] },
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "n" },
        "requestId": 1, "requestState": "x", "inputResponses": {},
        "_meta": {
            "progressToken": rng.range(0, 3),
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {
                "extensions": { "io.modelcontextprotocol/tasks": {} },
            },
        },
    });
    // Arguments that fit one tool, so that some of it is done.
    if rng.one_in(2) {
        params["name"] = json!("long_running_agent");
        params["arguments"] = json!({ "steps": 1, "step_ms": 0 });
        params.as_object_mut().map(|fields| fields.remove("requestState"));
    }
    for _ in 0..rng.range(0, 3) {
        spoil(&mut params, rng);
    }
    params
}

/// Leaves something out or puts something odd in, anywhere.
fn spoil(value: &mut Value, rng: &mut Rng) {
    let Value::Object(fields) = value else { return };
    let names: Vec<String> = fields.keys().cloned().collect();
    if names.is_empty() || rng.one_in(2) {
        return;
    }
    let name = rng.pick(&names).clone();
    match rng.range(0, 4) {
        0 => drop(fields.remove(&name)),
        1 => drop(fields.insert(name, odd(rng, 3))),
        2 => drop(fields.insert(text(rng), odd(rng, 2))),
        _ => spoil(&mut fields[&name], rng),
    }
}

fn odd(rng: &mut Rng, depth: u64) -> Value {
    match rng.range(0, if depth == 0 { 7 } else { 9 }) {
        0 => Value::Null,
        1 => rng.one_in(2).into(),
        2 => rng.next().into(),
        3 => json!(-1.5e300),
        4 => text(rng).into(),
        5 => "x".repeat(usize::try_from(rng.range(0, 5_000)).unwrap_or(0)).into(),
        6 => json!(i64::MIN),
        7 => (0..rng.range(0, 4)).map(|_| odd(rng, depth - 1)).collect(),
        _ => Value::Object(
            (0..rng.range(0, 4)).map(|_| (text(rng), odd(rng, depth - 1))).collect::<Map<_, _>>(),
        ),
    }
}

fn text(rng: &mut Rng) -> String {
    let odd =
        ['a', '1', ' ', '"', '\\', '\0', '\n', '/', ':', '.', 'é', '日', '\u{202e}', '😀', '{'];
    (0..rng.range(0, 12)).map(|_| *rng.pick(&odd)).collect()
}
