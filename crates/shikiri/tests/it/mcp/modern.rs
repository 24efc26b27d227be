//! The era without sessions: every request stands alone and says what it needs to.

use reqwest::Method;
use serde_json::{Value, json};
use shikiri_testkit::{Exchange, McpClient, Message, ModernClient, TestApp};

use super::{run_over_rest, yes};
use crate::PROGRAM;

#[tokio::test(flavor = "multi_thread")]
async fn discovery_tells_versions_capabilities_and_how_long_to_keep_them() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    let mut answer = host.request("server/discover", json!({})).await;
    assert_eq!((answer.status, answer.is_stream()), (200, false));
    let found = answer.result().await;
    let versions = json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"]);
    assert_eq!(found["supportedVersions"], versions);
    for capability in ["tools", "resources", "prompts", "logging", "completions"] {
        assert!(found["capabilities"][capability].is_object(), "{capability}: {found}");
    }
    let extensions = &found["capabilities"]["extensions"];
    assert!(extensions["io.modelcontextprotocol/tasks"].is_object(), "{extensions}");
    // It holds a name for this client alone, which nothing tells from others of its key.
    assert_eq!(found["cacheScope"], "private");
    assert!(found["_meta"]["shikiri/lane"].is_string(), "{found}");
    assert!(found["ttlMs"].as_u64().unwrap() > 0);
    let server = &found["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!((&server["name"], found["instructions"].is_string()), (&json!("shikiri"), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_result_has_a_type_and_no_stream_an_id() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    for (method, params) in [
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "travel_agent" })),
        ("tools/call", json!({ "name": "run_status", "arguments": { "run_id": "run_0" } })),
        (
            "tools/call",
            json!({ "name": "long_running_agent", "arguments": { "steps": 2, "step_ms": 1 } }),
        ),
    ] {
        let mut answer = host.request(method, params).await;
        let result = answer.result().await;
        assert_eq!(result["resultType"], "complete", "{method}: {result}");
        assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "shikiri");
        assert!(answer.seen.iter().all(|m| m.event_id.is_none()), "{method}: {:?}", answer.seen);
        assert_eq!(answer.header("mcp-session-id"), None, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_nothing_to_get_delete_resume_or_initialise() {
    let app = TestApp::new(PROGRAM).start().await;
    for method in [Method::GET, Method::DELETE, Method::PUT] {
        let request = app.client().request(method.clone(), "/mcp");
        let request = request.header("accept", "text/event-stream").header("last-event-id", "1");
        let answer = Exchange::open(request.header("mcp-protocol-version", "2026-07-28")).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
    }
    // A session's id means nothing here, not even a wrong one.
    let host = ModernClient::new(&app.client());
    let request = host.prepare("tools/list", json!({})).header("mcp-session-id", Some("con_0"));
    assert!(host.send(&request).await.result().await["tools"].is_array());
    for method in ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
        let mut answer = host.request(method, json!({ "uri": "shikiri://runs/run_0" })).await;
        assert_eq!(answer.status, 404, "{method}");
        answer.error(-32601).await;
    }
    // And the other way round.
    let older = McpClient::connect(&app.client()).await;
    for method in ["tasks/get", "tasks/cancel", "subscriptions/listen"] {
        let mut answer = older.request(method, json!({ "taskId": "run_0" })).await;
        assert_eq!(answer.status, 200, "{method}");
        answer.error(-32601).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_asked_by_an_answer_that_asks_back() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    let input = json!({ "topic": "rice", "step_ms": 1 });
    let asked = host.called("research_agent", input.clone()).await;
    let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "sampling/createMessage");
    assert_eq!(question["params"]["maxTokens"], 100);
    let said = json!({
        "role": "assistant", "model": "m", "content": { "type": "text", "text": "Grains." },
    });
    let mut call = host.go_on("research_agent", input, &asked, json!({ key: said })).await;
    assert_eq!(
        call.result().await["structuredContent"],
        json!({ "topic": "rice", "summary": "Grains.", "summary_source": "client" })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_told_before_the_question_is_not_told_again_after_it() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    let input = json!({ "step_ms": 1 });
    let mut first = host.call("travel_agent", input.clone()).await;
    let asked = first.result().await;
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let mut request = host.prepare(
        "tools/call",
        json!({
            "name": "travel_agent", "arguments": input, "requestState": asked["requestState"],
            "inputResponses": { key: yes("") }, "_meta": { "progressToken": "second" },
        }),
    );
    request.body["id"] = json!("second");
    let mut second = host.send(&request).await;
    assert_eq!(second.reply().await["id"], "second");
    // A heartbeat, which a busy machine may cause, repeats what was told and a fraction more.
    let is_own = |p: &&Value| p["progress"].as_f64().is_some_and(|value| value.fract() == 0.0);
    let told = |messages: &[Message]| -> Vec<Value> {
        let told = super::params(messages.iter(), "notifications/progress");
        told.iter().filter(is_own).map(|p| p["message"].clone()).collect()
    };
    assert_eq!(told(&second.seen), [json!("Booking flight..."), json!("Booked")]);
    assert!(!told(&first.seen).contains(&json!("Booked")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_must_say_in_headers_and_body_what_it_is() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    let run = json!({ "name": "long_running_agent", "arguments": { "steps": 1 } });
    let good = || host.prepare("tools/call", run.clone());
    let mut unnamed = good();
    unnamed.body["params"]["_meta"] = json!({});
    let mut incapable = good();
    *incapable.meta("clientCapabilities") = Value::Null;
    let mut old = good().header("mcp-protocol-version", Some("2025-11-25"));
    *old.meta("protocolVersion") = json!("2025-11-25");
    let mut future = good().header("mcp-protocol-version", Some("2030-01-01"));
    *future.meta("protocolVersion") = json!("2030-01-01");
    let mut loud = good();
    *loud.meta("logLevel") = json!("loud");
    for (what, request, code) in [
        ("no _meta", unnamed, -32602),
        ("no capabilities", incapable, -32602),
        ("a level that is none", loud, -32602),
        ("no version in the headers", good().header("mcp-protocol-version", None), -32020),
        ("two versions", good().header("mcp-protocol-version", Some("2025-11-25")), -32020),
        ("no method in the headers", good().header("mcp-method", None), -32020),
        ("another method", good().header("mcp-method", Some("tools/list")), -32020),
        ("no name in the headers", good().header("mcp-name", None), -32020),
        ("another name", good().header("mcp-name", Some("run_status")), -32020),
        ("a name in bad code", good().header("mcp-name", Some("=?base64?*?=")), -32020),
        ("an older version", old, -32022),
        ("an unknown version", future, -32022),
    ] {
        let mut answer = host.send(&request).await;
        assert_eq!(answer.status, 400, "{what}");
        let reply = answer.reply().await;
        assert_eq!(reply["error"]["code"], code, "{what}: {reply}");
        assert_eq!(reply["id"], request.body["id"], "{what}");
        if code == -32022 {
            let supported = reply["error"]["data"]["supported"].as_array().unwrap();
            assert!(supported.contains(&json!("2026-07-28")), "{reply}");
        }
    }
    assert_eq!(super::count_runs(&app.client(), "local").await, 0, "nothing was started");
    // In code, a name is the same name.
    let coded = good().header("mcp-name", Some("=?base64?bG9uZ19ydW5uaW5nX2FnZW50?="));
    assert_eq!(host.send(&coded).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_and_notifications_get_no_answer() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    let mut notice = host.prepare("notifications/cancelled", json!({ "requestId": 1 }));
    notice.body.as_object_mut().unwrap().remove("id");
    let mut taken = host.send(&notice).await;
    assert_eq!((taken.status, taken.next().await), (202, None));
    let mut answer = host.prepare("x", json!({}));
    answer.body = json!({ "jsonrpc": "2.0", "id": "q_0.run_0", "result": yes("") });
    let mut refused = host.send(&answer).await;
    assert_eq!(refused.status, 400);
    refused.error(-32600).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_stops_when_its_waiting_caller_hangs_up_and_what_was_started_to_last_goes_on() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    let lasting = json!({ "agent": "long_running_agent", "input": { "steps": 60, "step_ms": 20 } });
    let lasting = super::linked_run(&host.called("run_agent", lasting).await);
    let mut wait = host.call("run_wait", json!({ "run_id": lasting })).await;
    wait.until("progress", |m| m.method() == Some("notifications/progress")).await;
    drop(wait);
    let mut call = host.call("long_running_agent", json!({ "steps": 9_000, "step_ms": 20 })).await;
    call.until("progress", |m| m.json["params"]["message"] == "step 1 done").await;
    drop(call);
    let listed = host.result("resources/list", json!({})).await;
    let run = listed["resources"][0]["name"].as_str().unwrap().to_owned();
    assert_ne!(run, lasting, "the newest is the first");
    host.called("run_wait", json!({ "run_id": run })).await;
    assert_eq!(run_over_rest(&app.client(), &run).await["status"], "cancelled");
    host.called("run_wait", json!({ "run_id": lasting })).await;
    assert_eq!(run_over_rest(&app.client(), &lasting).await["status"], "completed");
}
