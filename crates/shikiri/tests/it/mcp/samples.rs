//! The sample agents as tools: exact texts, and what becomes of every answer that a client may
//! give or fail to give.

use serde_json::{Value, json};
use shikiri_testkit::{Client, McpClient, Message, ModernClient, TestApp};

use super::{logs, progress, yes};
use crate::PROGRAM;

fn trip(status: &str, notes: &str) -> Value {
    json!({
        "destination": "Paris", "status": status, "booked": status == "booked",
        "price_usd": 1200, "notes": notes,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_travel_agent_tells_its_steps_in_quarters_under_the_callers_token() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let token = json!("tök-1");
    let mut call =
        host.call_as(&json!("trip"), &token, "travel_agent", json!({ "step_ms": 1 })).await;
    let question = call.question().await;
    host.answer(&question, yes("")).await;
    let answer = call.reply().await;
    assert_eq!(answer["id"], "trip", "the answer and what was told before it are of one request");
    let steps = [
        (0.0, "Checking flights..."),
        (25.0, "Finding available dates..."),
        (50.0, "Confirming prices..."),
        (75.0, "Booking flight..."),
        (100.0, "Booked"),
    ];
    let expected = steps.map(|(progress, message)| {
        json!({ "progressToken": token, "progress": progress, "total": 100.0, "message": message })
    });
    assert_eq!(progress(&call.seen), expected);

    let tools = host.result("tools/list", json!({})).await;
    let tools = tools["tools"].as_array().unwrap();
    for agent in ["travel_agent", "research_agent", "long_running_agent"] {
        let tool = tools.iter().find(|tool| tool["name"] == agent).unwrap();
        let pace = &tool["inputSchema"]["properties"]["step_ms"];
        assert_eq!(pace["default"], 2000, "a step of {agent} takes two seconds");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_travel_agent_asks_for_the_price_to_be_confirmed() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let input = json!({ "destination": "大阪", "step_ms": 1 });
    let mut call = host.call("travel_agent", input).await;
    let question = call.question().await;
    assert_eq!(question["method"], "elicitation/create");
    let params = &question["params"];
    assert_eq!(
        params["message"],
        "Please confirm the estimated price of $1200 for your trip to 大阪"
    );
    let form = &params["requestedSchema"];
    assert_eq!(form["properties"]["confirm"]["type"], "boolean");
    assert_eq!(form["properties"]["notes"]["type"], "string");
    host.answer(&question, yes("窓側")).await;
    let result = call.result().await;
    let expected = json!({
        "destination": "大阪", "status": "booked", "booked": true, "price_usd": 1200, "notes": "窓側",
    });
    assert_eq!(result["structuredContent"], expected);
    assert_eq!(result["isError"], false);
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected, "the text says the same");
}

/// What a client makes of the question, and what the trip then comes to.
async fn answered(client: &Client, answer: impl AsyncFn(&McpClient, &Value) -> u16) -> Value {
    let host = McpClient::connect(client).await;
    let mut call = host.call("travel_agent", json!({ "step_ms": 1 })).await;
    let question = call.question().await;
    assert_eq!(answer(&host, &question).await, 202);
    call.result().await["structuredContent"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_clear_yes_books_the_trip() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let decline = json!({ "action": "decline", "content": { "confirm": false, "notes": "dear" } });
    let unsure = json!({ "action": "accept", "content": { "confirm": false, "notes": "hm" } });
    for (answer, expected) in [
        (yes("Confirmed by user"), trip("booked", "Confirmed by user")),
        (decline, trip("cancelled", "dear")),
        (json!({ "action": "decline" }), trip("cancelled", "")),
        (json!({ "action": "cancel" }), trip("cancelled", "")),
        (unsure, trip("cancelled", "hm")),
    ] {
        let shown = answer.to_string();
        let result = answered(&client, async |host, question| {
            host.answer(question, answer.clone()).await.status
        });
        assert_eq!(result.await, expected, "{shown}");
    }
    // What is no proper answer is a no, and says why.
    for odd in [
        json!({ "action": "accept" }),
        json!({ "action": "accept", "content": {} }),
        json!({ "action": "accept", "content": { "confirm": "yes" } }),
        json!({ "action": "accept", "content": [true] }),
        json!({ "action": "yes please" }),
        json!({}),
        json!("accept"),
    ] {
        let shown = odd.to_string();
        let result = answered(&client, async |host, question| {
            host.answer(question, odd.clone()).await.status
        })
        .await;
        assert_eq!((&result["status"], &result["booked"]), (&json!("cancelled"), &json!(false)));
        assert!(!result["notes"].as_str().unwrap().is_empty(), "{shown}: {result}");
    }
    let failed = answered(&client, async |host, question| {
        host.fail(question, -32603, "the window closed").await.status
    });
    assert_eq!(failed.await, trip("cancelled", "the client failed: the window closed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_once() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut call = host.call("travel_agent", json!({ "step_ms": 1 })).await;
    let question = call.question().await;
    let no = json!({ "action": "decline" });
    assert_eq!(host.answer(&question, no).await.status, 202);
    assert_eq!(host.answer(&question, yes("")).await.status, 400);
    assert_eq!(call.result().await["structuredContent"]["booked"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_research_agent_has_the_clients_model_summarise() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut call = host.call("research_agent", json!({ "topic": "tea", "step_ms": 1 })).await;
    let question = call.question().await;
    assert_eq!(question["method"], "sampling/createMessage");
    let text = "Please summarize the key findings for research on: tea";
    assert_eq!(
        question["params"],
        json!({
            "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
            "maxTokens": 100,
        })
    );
    let message = json!({
        "role": "assistant", "model": "interactive-client", "stopReason": "endTurn",
        "content": { "type": "text", "text": "Leaves in hot water." },
    });
    assert_eq!(host.answer(&question, message).await.status, 202);
    let result = call.result().await;
    assert_eq!(
        result["structuredContent"],
        json!({ "topic": "tea", "summary": "Leaves in hot water.", "summary_source": "client" })
    );
    let steps: Vec<_> = progress(&call.seen).iter().map(|p| p["message"].clone()).collect();
    let expected = [
        "Gathering sources...",
        "Analyzing data...",
        "Summarizing findings...",
        "Finalizing report...",
        "Report ready",
    ];
    assert_eq!(steps, expected.map(Value::from));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_leaves_research_without_a_summary() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    for fails in [true, false] {
        let mut call = host.call("research_agent", json!({ "step_ms": 1 })).await;
        let question = call.question().await;
        let taken = if fails {
            host.fail(&question, -1, "User rejected sampling").await
        } else {
            host.answer(&question, json!({ "role": "assistant", "model": "m" })).await
        };
        assert_eq!(taken.status, 202);
        assert_eq!(call.result().await["structuredContent"], no_summary());
    }
}

/// Why nothing was booked, and where a person can be asked.
pub(super) const UNASKED: &str = "the calling client does not support elicitation: start the agent \
    with run_agent, and let a person answer with `shikiri runs answer`, over REST, or in a client \
    that can be asked";

fn no_summary() -> Value {
    json!({ "topic": "AI trends", "summary": "", "summary_source": "none" })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cannot_be_asked_still_gets_its_answer() {
    let app = TestApp::new(PROGRAM).start().await;
    let unasked = trip("cancelled", UNASKED);
    // Asked by an address alone is not asked by a form.
    for capabilities in [json!({}), json!({ "elicitation": { "url": {} } })] {
        let older = McpClient::with_capabilities(&app.client(), capabilities.clone()).await;
        let newer = ModernClient::new(&app.client()).with_capabilities(capabilities);
        for (agent, expected) in [("travel_agent", &unasked), ("research_agent", &no_summary())] {
            let input = json!({ "step_ms": 1 });
            let mut call = older.call(agent, input.clone()).await;
            assert_eq!(call.result().await["structuredContent"], *expected);
            assert!(!call.seen.iter().any(Message::is_question), "{:?}", call.seen);
            let result = newer.called(agent, input).await;
            assert_eq!(
                (&result["structuredContent"], &result["resultType"]),
                (expected, &json!("complete"))
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_work_logs_every_step_under_its_own_name() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let input = json!({ "steps": 4, "step_ms": 1 });
    let mut call = host.call("long_running_agent", input.clone()).await;
    assert_eq!(call.result().await["structuredContent"], json!({ "steps": 4 }));
    let expected = [(1, 25), (2, 50), (3, 75), (4, 100)].map(|(i, percent)| {
        json!({
            "level": "info", "logger": "long_running_agent",
            "data": format!("Processing step {i}/4 ({percent}%)"),
        })
    });
    assert_eq!(logs(&call.seen), expected);

    // Who wants less is told less, from the next call on.
    for (level, count) in [("warning", 0), ("debug", 4)] {
        assert_eq!(host.result("logging/setLevel", json!({ "level": level })).await, json!({}));
        let mut call = host.call("long_running_agent", input.clone()).await;
        call.rest().await;
        assert_eq!(logs(&call.seen).len(), count, "{level}");
    }
    host.request("logging/setLevel", json!({ "level": "loud" })).await.error(-32602).await;

    // In the newer era only clients that asked for it are told.
    let newer = ModernClient::new(&app.client());
    for (host, count) in [(newer.clone(), 0), (newer.with_log_level("info"), 4)] {
        let mut call = host.call("long_running_agent", input.clone()).await;
        call.rest().await;
        assert_eq!(logs(&call.seen).len(), count, "{:?}", host.log_level);
    }
}

/// An answer that does not come is no yes either: the run is stopped or its question runs out,
/// and nothing is booked meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_client_left_books_nothing() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut call = host.call("travel_agent", json!({ "step_ms": 1 })).await;
    let question = call.question().await;
    let run = question["id"].as_str().unwrap().split_once('.').unwrap().1.to_owned();
    drop(call);
    assert_eq!(host.delete().await.status, 204);
    // The session is gone, so its answer has no reader.
    assert_eq!(host.answer(&question, yes("")).await.status, 404);
    let other = McpClient::connect(&app.client()).await;
    assert_eq!(other.answer(&question, yes("")).await.status, 400);
    let status = other.called("run_status", json!({ "run_id": run })).await;
    assert_eq!(status["structuredContent"]["status"], "waiting");
    other.called("run_cancel", json!({ "run_id": run })).await;
    let ended = other.called("run_wait", json!({ "run_id": run })).await;
    assert_eq!(ended["structuredContent"]["status"], "cancelled", "{ended}");
    assert_eq!(ended["structuredContent"].get("result"), None);
}
