//! `requestState`: the ticket with which a call of the newer era goes on after it was asked
//! something. It brings one answer, for its receiver, for the same request.

use serde_json::{Value, json};
use shikiri_testkit::{Client, ModernClient, TestApp, have_postgres};

use super::{count_runs, yes};
use crate::PROGRAM;

const TOOL: &str = "travel_agent";

fn input() -> Value {
    json!({ "destination": "Rome", "step_ms": 1 })
}

/// An answer that asks for the price to be confirmed, and the key of its question.
async fn asked(host: &ModernClient) -> (Value, String) {
    let asked = host.called(TOOL, input()).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    (asked, key)
}

async fn another_key(app: &TestApp, tenant: &str) -> Client {
    let path = format!("/v1/tenants/{tenant}/keys");
    let made = app.client().post(&path, &json!({ "name": "another" })).await.expect(201);
    app.client().with_key(made["key"].as_str().unwrap())
}

/// The only run there is waits for its question.
async fn assert_untouched(client: &Client) {
    assert_eq!(count_runs(client, "local").await, 1);
    let runs = client.get("/v1/tenants/local/runs").await.expect(200);
    let run = &runs["items"][0];
    assert_eq!(run["status"], "waiting", "{run}");
    assert_eq!(run["questions"].as_array().unwrap().len(), 1, "{run}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_continues_its_call_and_sent_again_is_the_same_run() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    let (asked, key) = asked(&host).await;
    let question = &asked["inputRequests"][&key];
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(
        question["params"]["message"],
        "Please confirm the estimated price of $1200 for your trip to Rome"
    );
    let responses = json!({ &key: yes("by train") });
    let mut call = host.go_on(TOOL, input(), &asked, responses.clone()).await;
    let result = call.result().await;
    assert_eq!((&result["resultType"], &result["isError"]), (&json!("complete"), &json!(false)));
    assert_eq!(
        result["structuredContent"],
        json!({
            "destination": "Rome", "status": "booked", "booked": true, "price_usd": 1200,
            "notes": "by train",
        })
    );
    let again = host.go_on(TOOL, input(), &asked, responses).await.result().await;
    assert_eq!(
        again["structuredContent"], result["structuredContent"],
        "a lost answer is read again"
    );
    let other = json!({ &key: yes("by plane") });
    host.go_on(TOOL, input(), &asked, other).await.error(-32602).await;
    assert_eq!(count_runs(&app.client(), "local").await, 1, "it was one run from first to last");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_use_one_ticket_at_once_are_one_too_many() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    let (asked, key) = asked(&host).await;
    let go_on = |notes: &str| {
        let (host, asked, responses) = (host.clone(), asked.clone(), json!({ &key: yes(notes) }));
        async move { host.go_on(TOOL, input(), &asked, responses).await.reply().await }
    };
    let (a, b) = tokio::join!(go_on("a"), go_on("b"));
    let refused = [&a, &b].iter().filter(|reply| reply["error"]["code"] == -32602).count();
    assert_eq!(refused, 1, "{a}\n{b}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_or_foreign_ticket_is_refused_and_changes_nothing() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let host = ModernClient::new(&client);
    let (asked, key) = asked(&host).await;
    let ticket = asked["requestState"].as_str().unwrap();
    let responses = json!({ &key: yes("forged") });

    let flipped = |at: usize| {
        let mut bytes = ticket.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'a' { b'b' } else { b'a' };
        json!(String::from_utf8(bytes).unwrap())
    };
    for forged in [
        flipped(ticket.len() - 1),
        flipped(ticket.len() / 2),
        flipped(0),
        json!(format!("{ticket}x")),
        json!(&ticket[..ticket.len() - 1]),
        json!(""),
        json!("null"),
        json!(null),
        json!(7),
        json!({ "run": 1 }),
        // Long enough to be a nuisance.
        json!("x".repeat(100_000)),
    ] {
        let forged = json!({ "requestState": forged });
        let mut call = host.go_on(TOOL, input(), &forged, responses.clone()).await;
        call.error(-32602).await;
    }
    assert_untouched(&client).await;

    // Another key of the same tenant, and one of another tenant.
    let foreign = [another_key(&app, "local").await, app.tenant("other").await.client];
    for client in &foreign {
        let mut call = host.through(client).go_on(TOOL, input(), &asked, responses.clone()).await;
        call.error(-32602).await;
    }
    assert_untouched(&client).await;
    assert_eq!(count_runs(&client, "other").await, 0);

    // Other arguments, another tool, another method: another request.
    for (tool, arguments) in [
        (TOOL, json!({ "destination": "Paris", "step_ms": 1 })),
        (TOOL, json!({ "destination": "Rome", "step_ms": 1, "wait": true })),
        (TOOL, json!({})),
        ("research_agent", input()),
        ("long_running_agent", json!({})),
    ] {
        let mut call = host.go_on(tool, arguments, &asked, responses.clone()).await;
        call.error(-32602).await;
    }
    assert_untouched(&client).await;

    // After all that it still is the owner's.
    let mut call = host.go_on(TOOL, input(), &asked, json!({ &key: yes("mine") })).await;
    assert_eq!(call.result().await["structuredContent"]["notes"], "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_answer_the_question_is_asked_again() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    let (first, key) = asked(&host).await;
    let mut asked = first.clone();
    for responses in [
        json!({}),
        json!({ "q_unknown": yes("") }),
        json!({ &key: { "action": "accept", "content": { "confirm": "maybe" } } }),
        json!({ &key: { "action": "accept" } }),
    ] {
        let again = host.go_on(TOOL, input(), &asked, responses.clone()).await.result().await;
        assert_eq!(again["resultType"], "input_required", "{responses}");
        assert_eq!(again["inputRequests"], asked["inputRequests"], "{responses}");
        assert_ne!(again["requestState"], asked["requestState"], "a ticket is used up");
        asked = again;
    }
    // The question is still open, but not to who shows a used ticket.
    let late = json!({ &key: yes("twice") });
    host.go_on(TOOL, input(), &first, late).await.error(-32602).await;
    assert_untouched(&app.client()).await;
    // A malformed answer does not cost the ticket.
    host.go_on(TOOL, input(), &asked, json!([yes("")])).await.error(-32602).await;
    let no = json!({ &key: { "action": "decline" } });
    let result = host.go_on(TOOL, input(), &asked, no).await.result().await;
    assert_eq!(result["structuredContent"]["status"], "cancelled", "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_good_after_a_restart_and_on_another_node() {
    let quick = |app: shikiri_testkit::Builder| app.env("SHIKIRI_NODE_LEASE_SECONDS", "0.6");
    let mut worlds = vec![quick(TestApp::new(PROGRAM)).start().await];
    if have_postgres("a ticket on another node") {
        worlds.push(quick(TestApp::new(PROGRAM).postgres()).start().await);
    }
    for mut app in worlds {
        let host = ModernClient::new(&app.client());
        let (asked, key) = asked(&host).await;
        app.restart().await;
        let other = app.another().await;
        let elsewhere = Client::new(other.base()).with_key(&app.admin_key());
        let host = host.through(&elsewhere);
        let mut call = host.go_on(TOOL, input(), &asked, json!({ &key: yes("moved") })).await;
        assert_eq!(call.result().await["structuredContent"]["notes"], "moved");
    }
}
