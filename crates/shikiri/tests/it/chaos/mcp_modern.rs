//! The newer era, whose requests stand alone, over kills: a call that asks back is gone on with by
//! another life of the server or by another node, once; so is a task.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use shikiri_testkit::{
    Client, Exchange, ModernClient, Prepared, Rng, Tenant, TestApp, have_postgres, long, until,
};

use super::mcp_check::{bookings, events, run_faults};
use crate::PROGRAM;

const LEASE: &str = "0.4";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_server_asked_or_promised_holds_after_its_restart() {
    let mut app = TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", LEASE).start().await;
    let local = app.local();
    for _ in 0..if long() { 25 } else { 2 } {
        a_call_goes_on(&mut app, &local).await;
        a_task_goes_on(&mut app, &local).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_node_asked_or_promised_holds_at_another() {
    if !have_postgres("mcp_modern") {
        return;
    }
    let app = TestApp::new(PROGRAM).postgres().env("SHIKIRI_NODE_LEASE_SECONDS", LEASE);
    let mut app = app.start().await;
    let other = app.another().await;
    let client = Client::new(other.base()).with_key(&app.admin_key());
    let there = Tenant { client, ..app.local() };
    for _ in 0..if long() { 15 } else { 2 } {
        a_call_goes_on(&mut app, &there).await;
        a_task_goes_on(&mut app, &there).await;
    }
}

/// Kills at any moment of a continuation: what its ticket brought is not lost, whether or not it
/// was used before, and sent again it is the same run.
#[tokio::test(flavor = "multi_thread")]
async fn a_continuation_that_is_killed_and_sent_again_books_once() {
    let rounds = if long() { 100 } else { 6 };
    let mut rng = Rng::seeded("mcp_modern");
    let mut app = TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", LEASE).start().await;
    let local = app.local();
    let mut repeated = 0;
    for _ in 0..rounds {
        let client = ModernClient::new(&local.client);
        let asked = client.called("travel_agent", trip()).await;
        let again = continuation(&client, &asked);
        let sending = tokio::spawn(try_send(local.client.clone(), again.clone()));
        let life = if rng.one_in(3) { 0 } else { rng.range(0, 30_000) };
        tokio::time::sleep(Duration::from_micros(life)).await;
        app.kill9();
        let heard = sending.await.expect("a sender");
        app.restart().await;
        // A client without an answer asks once more: the same request.
        let reply = try_send(local.client.clone(), again).await.expect("an answer");
        assert_eq!(reply["result"]["structuredContent"]["booked"], true, "{reply}");
        if let Some(heard) = &heard {
            assert_eq!(run_of(&heard["result"]), run_of(&reply["result"]), "another run");
            repeated += 1;
        }
        let run = newest_run(&local).await;
        let status = async || local.run(&run).await["status"].clone();
        let what = "the run has ended: a ticket that is used has brought its answer";
        until(what, async || status().await == "completed").await;
        is_booked_once(&local, &run).await;
    }
    eprintln!("{rounds} continuations with a kill: {repeated} had been answered before");
}

/// The question was an answer's; its own answer comes after the kill, and elsewhere if `there` is.
async fn a_call_goes_on(app: &mut TestApp, there: &Tenant) {
    let asked = ModernClient::new(&app.client()).called("travel_agent", trip()).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    app.kill9();
    restart_if_alone(app, there).await;
    let client = ModernClient::new(&there.client);
    let again = continuation(&client, &asked);
    let booked = client.send(&again).await.result().await;
    assert_eq!(booked["structuredContent"]["status"], "booked", "{booked}");
    let run = run_of(&booked);
    // The same answer again is the same run; another one comes too late.
    let repeated = client.send(&again).await.result().await;
    assert_eq!(run_of(&repeated), run, "{repeated}");
    let other = answered(&client, &asked, json!({ "action": "decline" }));
    client.send(&other).await.error(-32602).await;
    is_booked_once(there, &run).await;
    app.restart().await;
}

/// The task was promised; it is asked for, answered and read after kills, and elsewhere.
async fn a_task_goes_on(app: &mut TestApp, there: &Tenant) {
    let here = ModernClient::new(&app.client()).with_tasks();
    let promised = here.called("travel_agent", trip()).await;
    let id = promised["taskId"].as_str().expect("a task").to_owned();
    app.kill9();
    restart_if_alone(app, there).await;
    let client = ModernClient::new(&there.client).with_tasks();
    let asking = until_task(&client, &id, "input_required").await;
    let responses = answers(&asking["inputRequests"], &yes());
    // The server that asked is killed again, and the answer goes to one that is left.
    app.kill9();
    restart_if_alone(app, there).await;
    client.update_task(&id, responses.clone()).await.result().await;
    let done = until_task(&client, &id, "completed").await;
    assert_eq!(done["result"]["structuredContent"]["status"], "booked", "{done}");
    let told = events(there, &id).await;
    // Too late to be anything.
    client.update_task(&id, responses).await.result().await;
    assert_eq!(events(there, &id).await, told);
    is_booked_once(there, &id).await;
    app.restart().await;
}

/// With another node, the killed one stays away for now.
async fn restart_if_alone(app: &mut TestApp, there: &Tenant) {
    if there.client.base() == app.client().base() {
        app.restart().await;
    }
}

async fn until_task(client: &ModernClient, id: &str, status: &str) -> Value {
    let mut task = Value::Null;
    until(&format!("the task is {status}"), async || {
        task = client.task("get", id).await.result().await;
        task["status"] == status
    })
    .await;
    task
}

async fn is_booked_once(local: &Tenant, run: &str) {
    let told = events(local, run).await;
    assert_eq!((run_faults(&told), bookings(&told)), (Vec::new(), 1), "{run}");
}

fn trip() -> Value {
    json!({ "destination": "Ōtsu", "step_ms": 15 })
}

/// The call again, with a yes to all that it asked.
fn continuation(client: &ModernClient, asked: &Value) -> Prepared {
    answered(client, asked, yes())
}

/// The call again, with this answer to all that it asked.
fn answered(client: &ModernClient, asked: &Value, answer: Value) -> Prepared {
    let params = json!({
        "name": "travel_agent",
        "arguments": trip(),
        "requestState": asked["requestState"],
        "inputResponses": answers(&asked["inputRequests"], &answer),
    });
    client.prepare("tools/call", params)
}

fn yes() -> Value {
    json!({ "action": "accept", "content": { "confirm": true } })
}

fn answers(requests: &Value, answer: &Value) -> Value {
    let keys = requests.as_object().expect("requests").keys();
    keys.map(|key| (key.clone(), answer.clone())).collect()
}

/// None if the server was gone before it answered.
async fn try_send(client: Client, prepared: Prepared) -> Option<Value> {
    let mut request = client.request(Method::POST, "/mcp");
    request = request.header("accept", "application/json, text/event-stream");
    for (name, value) in &prepared.headers {
        request = request.header(name, value);
    }
    let mut exchange = Exchange::try_open(request.json(&prepared.body)).await.ok()?;
    exchange.rest().await.into_iter().find(|message| message.is_reply()).map(|reply| reply.json)
}

fn run_of(result: &Value) -> String {
    let parts = result["content"].as_array().expect("content");
    let uri = parts.iter().find_map(|part| part["uri"].as_str()).expect("a link");
    uri.strip_prefix("shikiri://runs/").expect("a run's address").to_owned()
}

async fn newest_run(local: &Tenant) -> String {
    let page = local.client.get(&local.path("/runs?limit=1")).await.expect(200);
    page["items"][0]["id"].as_str().expect("a run").to_owned()
}
