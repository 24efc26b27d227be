//! Requests that are wrong: refused in the protocol's words, and nothing happens.

use reqwest::Method;
use serde_json::{Value, json};
use shikiri_testkit::{Exchange, McpClient, ModernClient, TestApp, until};

use super::count_runs;
use crate::PROGRAM;

async fn post(host: &McpClient, body: &str) -> Exchange {
    let request = host.http(Method::POST).header("content-type", "application/json");
    Exchange::open(request.body(body.to_owned())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_message_is_refused() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for (body, code, id) in [
        ("", -32700, Value::Null),
        ("{", -32700, Value::Null),
        ("\u{feff}{}", -32700, Value::Null),
        ("7", -32600, Value::Null),
        ("null", -32600, Value::Null),
        ("{}", -32600, Value::Null),
        ("[]", -32600, Value::Null),
        (&format!("[{call},{call}]"), -32600, Value::Null),
        (r#"{"id":1,"method":"tools/list"}"#, -32600, json!(1)),
        (r#"{"jsonrpc":"1.0","id":1,"method":"tools/list"}"#, -32600, json!(1)),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600, json!(1)),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600, json!(1)),
        (r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":[],"method":"tools/list"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":[1]}"#, -32602, json!(2)),
        (r#"{"jsonrpc":"2.0","id":2,"result":1,"error":{}}"#, -32600, json!(2)),
    ] {
        let mut answer = post(&host, body).await;
        assert_eq!(answer.status, 400, "{body}");
        let reply = answer.reply().await;
        assert_eq!((&reply["error"]["code"], &reply["id"]), (&json!(code), &id), "{body}");
    }
    assert!(host.result("tools/list", json!({})).await["tools"].is_array(), "it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_methods_tools_prompts_and_cursors_are_named() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    for (method, params, code, named) in [
        ("tools/destroy", json!({}), -32601, "tools/destroy"),
        ("", json!({}), -32601, "\"\""),
        ("tools/call", json!({ "name": "no_such_tool" }), -32602, "no_such_tool"),
        ("tools/call", json!({}), -32602, "name"),
        ("tools/call", json!({ "name": 7 }), -32602, "name"),
        ("tools/call", json!({ "name": "run_status", "arguments": [] }), -32602, "arguments"),
        ("prompts/get", json!({ "name": "no_such_prompt" }), -32602, "no_such_prompt"),
        ("prompts/get", json!({ "name": "travel_agent", "arguments": { "x": "1" } }), -32602, "x"),
        ("tools/list", json!({ "cursor": "1000" }), -32602, "cursor"),
        ("tools/list", json!({ "cursor": 7 }), -32602, "cursor"),
        ("resources/list", json!({ "cursor": "nonsense" }), -32602, "cursor"),
        ("resources/list", json!({ "cursor": "0:nonsense" }), -32602, "cursor"),
        ("resources/list", json!({ "cursor": "99:" }), -32602, "cursor"),
        ("completion/complete", json!({}), -32602, "argument"),
        ("logging/setLevel", json!({}), -32602, "level"),
    ] {
        let mut answer = host.request(method, params.clone()).await;
        assert_eq!(answer.status, 200, "{method} {params}");
        let error = answer.error(code).await;
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(named), "{method} {params}: {message}");
    }
}

/// (agent or tool, arguments that its schema does not allow)
fn bad_arguments() -> Vec<(&'static str, Value)> {
    vec![
        ("travel_agent", json!({ "destination": 7 })),
        ("travel_agent", json!({ "destination": "  " })),
        ("travel_agent", json!({ "destination": "x".repeat(1_001) })),
        ("travel_agent", json!({ "step_ms": -1 })),
        ("travel_agent", json!({ "step_ms": 3_600_001 })),
        ("travel_agent", json!({ "wait": "yes" })),
        ("travel_agent", json!({ "hotel": true })),
        ("research_agent", json!({ "topic": null })),
        ("long_running_agent", json!({ "steps": 0 })),
        ("long_running_agent", json!({ "steps": 10_001 })),
        ("long_running_agent", json!({ "steps": 1.5 })),
        ("long_running_agent", json!({ "steps": "3" })),
        ("run_agent", json!({})),
        ("run_agent", json!({ "agent": "no_such_agent" })),
        ("run_agent", json!({ "agent": "travel_agent", "input": { "hotel": true } })),
        ("run_agent", json!({ "agent": "travel_agent", "input": [] })),
        ("run_agent", json!({ "agent": "travel_agent", "idempotency_key": "" })),
        ("run_agent", json!({ "agent": "travel_agent", "idempotency_key": "x".repeat(201) })),
        ("run_agent", json!({ "agent": "travel_agent", "extra": 1 })),
        ("run_status", json!({})),
        ("run_status", json!({ "run_id": 7 })),
        ("run_status", json!({ "run_id": "run_0", "extra": 1 })),
        ("run_wait", json!({ "run_id": "run_0", "max_seconds": -1 })),
        ("run_wait", json!({ "run_id": "run_0", "max_seconds": "soon" })),
        ("run_answer", json!({ "run_id": "run_0" })),
        ("run_update", json!({ "run_id": "run_0" })),
        ("run_cancel", json!({})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_do_not_fit_are_told_to_the_model_and_start_nothing() {
    let app = TestApp::new(PROGRAM).start().await;
    let older = McpClient::connect(&app.client()).await;
    let newer = ModernClient::new(&app.client()).with_tasks();
    for (tool, arguments) in bad_arguments() {
        for result in [
            older.called(tool, arguments.clone()).await,
            newer.called(tool, arguments.clone()).await,
        ] {
            assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
            let error = &result["structuredContent"]["error"];
            assert_eq!(error["code"], "invalid_argument", "{tool} {arguments}: {result}");
            assert_eq!(result["content"][0]["text"], error["message"]);
        }
    }
    // What is well-formed and not there is another matter.
    for (tool, arguments, code) in [
        ("run_status", json!({ "run_id": "run_0" }), "run_not_found"),
        ("run_status", json!({ "run_id": "../etc" }), "run_not_found"),
        (
            "run_agent",
            json!({ "conversation": "cnv_none", "input": "x" }),
            "conversation_not_found",
        ),
        ("run_wait", json!({ "run_id": "run_0" }), "run_not_found"),
        ("run_cancel", json!({ "run_id": "run_0" }), "run_not_found"),
        ("run_update", json!({ "run_id": "run_0", "input": {} }), "run_not_found"),
        (
            "run_answer",
            json!({ "run_id": "run_0", "question_id": "q_0", "answer": {} }),
            "run_not_found",
        ),
    ] {
        let result = older.called(tool, arguments.clone()).await;
        assert_eq!(result["structuredContent"]["error"]["code"], code, "{tool} {arguments}");
    }
    assert_eq!(count_runs(&app.client(), "local").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_four_mebibytes_is_413() {
    const LIMIT: usize = 4 * 1024 * 1024;
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let body = |length: usize| {
        let (start, end) = (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":""#, r#""}}"#);
        format!("{start}{}{end}", "x".repeat(length - start.len() - end.len()))
    };
    let mut fits = post(&host, &body(LIMIT)).await;
    assert_eq!(fits.result().await, json!({}));
    let mut over = post(&host, &body(LIMIT + 1)).await;
    assert_eq!(over.status, 413);
    over.error(-32600).await;
    // Its size cannot be hidden by not telling it.
    let parts = futures_util::stream::iter(
        (0..5).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1024 * 1024])),
    );
    let request = host.http(Method::POST).header("content-type", "application/json");
    let chunked = Exchange::open(request.body(reqwest::Body::wrap_stream(parts))).await;
    assert_eq!(chunked.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_a_question_change_nothing() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut call = host.call("travel_agent", json!({ "step_ms": 1 })).await;
    let question = call.question().await;
    let id = question["id"].as_str().unwrap();
    let (asked, run) = id.split_once('.').unwrap();
    for made_up in [
        json!(1),
        json!("1"),
        json!(""),
        json!(null),
        json!(asked),
        json!(run),
        json!(format!("{run}.{asked}")),
        json!(format!("q_0.{run}")),
        json!(format!("{asked}.run_0")),
        json!(format!("{id} ")),
        json!(format!("{id}.{id}")),
    ] {
        let answer = json!({ "jsonrpc": "2.0", "id": made_up, "result": super::yes("") });
        assert_eq!(host.post(&answer).await.status, 400, "{made_up}");
        let failure = json!({ "jsonrpc": "2.0", "id": made_up, "error": { "code": 1 } });
        assert_eq!(host.post(&failure).await.status, 400, "{made_up}");
    }
    // The question is on its way before its run has come to rest.
    until("the run waits for its answer", async || {
        let status = host.called("run_status", json!({ "run_id": run })).await;
        assert_eq!(status["structuredContent"]["questions"][0]["question_id"], asked);
        status["structuredContent"]["status"] == "waiting"
    })
    .await;
    // Notifications that mean nothing are taken and ignored.
    for (method, params) in [
        ("notifications/cancelled", json!({ "requestId": 999 })),
        ("notifications/cancelled", json!({})),
        ("notifications/cancelled", json!({ "requestId": { "odd": 1 } })),
        ("notifications/roots/list_changed", json!({})),
        ("notifications/nonsense", json!({ "x": 1 })),
    ] {
        assert_eq!(host.notify(method, params).await.status, 202, "{method}");
    }
    assert_eq!(host.answer(&question, super::yes("")).await.status, 202);
    assert_eq!(call.result().await["structuredContent"]["booked"], true);
}
