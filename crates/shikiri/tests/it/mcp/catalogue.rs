//! What there is to list: tools with their schemas and hints, resources by pages, prompts, and
//! completions.

use std::collections::BTreeSet;

use jsonschema::Validator;
use serde_json::{Value, json};
use shikiri_testkit::{McpClient, ModernClient, TestApp};

use super::{linked_run, yes};
use crate::PROGRAM;

const RUN_TOOLS: [&str; 6] =
    ["run_agent", "run_answer", "run_cancel", "run_status", "run_update", "run_wait"];

/// Tools that change nothing.
const READS: [&str; 7] = [
    "lane_info",
    "run_list",
    "run_status",
    "run_wait",
    "help",
    "get_delegation",
    "get_conversation_messages",
];
/// Tools that change nothing more when they are called again.
const SETTLES: [&str; 5] = [
    "run_cancel",
    "get_next_action",
    "report_completed",
    "end_conversation",
    "report_delegation_completed",
];

async fn tools(host: &McpClient) -> Vec<Value> {
    host.result("tools/list", json!({})).await["tools"].as_array().unwrap().clone()
}

fn tool<'a>(tools: &'a [Value], name: &str) -> &'a Value {
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

fn schema(tool: &Value, which: &str) -> Validator {
    let schema = &tool[which];
    assert_eq!(schema["type"], "object", "{}: {which}", tool["name"]);
    jsonschema::draft202012::new(schema).unwrap_or_else(|e| panic!("{} {which}: {e}", tool["name"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_says_what_it_takes_gives_and_does() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let tools = tools(&host).await;
    let names: BTreeSet<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), tools.len(), "a name is one tool's");
    for name in RUN_TOOLS.iter().chain(&["travel_agent", "research_agent", "long_running_agent"]) {
        assert!(names.contains(name), "{name}");
    }
    for tool in &tools {
        let name = tool["name"].as_str().unwrap();
        for text in ["title", "description"] {
            assert!(!tool[text].as_str().unwrap_or_default().is_empty(), "{name} has no {text}");
        }
        schema(tool, "inputSchema");
        schema(tool, "outputSchema");
        let hints = &tool["annotations"];
        let reads = READS.contains(&name);
        assert_eq!(hints["readOnlyHint"], reads, "{name}");
        if !reads {
            assert_eq!(hints["destructiveHint"], name == "run_cancel", "{name}");
            assert_eq!(hints["idempotentHint"], SETTLES.contains(&name), "{name}");
        }
    }
    // Agents also tell whether the caller stays.
    let wait = &tool(&tools, "travel_agent")["inputSchema"]["properties"]["wait"];
    assert_eq!((&wait["type"], &wait["default"]), (&json!("boolean"), &json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn structured_content_fits_the_tools_output_schema() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let tools = tools(&host).await;
    let fits = |name: &str, result: &Value| {
        let tool = tool(&tools, name);
        let content = &result["structuredContent"];
        let checked = schema(tool, "outputSchema").validate(content).map_err(|e| e.to_string());
        assert_eq!(checked, Ok(()), "{name}: {content}");
    };
    let quick = json!({ "step_ms": 1 });
    let mut trip = host.call("travel_agent", quick.clone()).await;
    let question = trip.question().await;
    let run = question["id"].as_str().unwrap().split_once('.').unwrap().1;
    // While it waits, the tools about runs tell of its question.
    fits("run_status", &host.called("run_status", json!({ "run_id": run })).await);
    fits("run_wait", &host.called("run_wait", json!({ "run_id": run })).await);
    let update = json!({ "run_id": run, "input": { "destination": "Rome" } });
    fits("run_update", &host.called("run_update", update).await);
    host.answer(&question, yes("")).await;
    fits("travel_agent", &trip.result().await);
    fits("run_status", &host.called("run_status", json!({ "run_id": run })).await);

    let mut research = host.call("research_agent", quick).await;
    let question = research.question().await;
    host.fail(&question, 1, "no model").await;
    fits("research_agent", &research.result().await);
    let long = json!({ "steps": 1, "step_ms": 1 });
    fits("long_running_agent", &host.called("long_running_agent", long).await);

    let trip = json!({ "agent": "travel_agent", "input": { "step_ms": 1 } });
    let started = host.called("run_agent", trip).await;
    fits("run_agent", &started);
    let run = linked_run(&started);
    let waiting = host.called("run_wait", json!({ "run_id": run })).await;
    let question = &waiting["structuredContent"]["questions"][0]["question_id"];
    let answer = json!({ "run_id": run, "question_id": question, "answer": yes("") });
    fits("run_answer", &host.called("run_answer", answer).await);
    fits("run_cancel", &host.called("run_cancel", json!({ "run_id": run })).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_are_listed_in_pages_without_gap_or_repetition() {
    const RUNS: usize = 120;
    let app = TestApp::new(PROGRAM).env("SHIKIRI_DURABILITY", "normal").start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut started = BTreeSet::new();
    for _ in 0..RUNS {
        let input = json!({ "steps": 1, "step_ms": 0 });
        let run = json!({ "agent": "long_running_agent", "input": input });
        let result = host.called("run_agent", run).await;
        started.insert(format!("shikiri://runs/{}", linked_run(&result)));
    }
    let newer = ModernClient::new(&app.client());
    for modern in [false, true] {
        let (mut listed, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
        loop {
            let params = json!({ "cursor": cursor });
            let page = if modern {
                newer.result("resources/list", params).await
            } else {
                host.result("resources/list", params).await
            };
            for resource in page["resources"].as_array().unwrap() {
                assert_eq!(resource["mimeType"], "application/json");
                listed.push(resource["uri"].as_str().unwrap().to_owned());
            }
            pages += 1;
            match page.get("nextCursor") {
                Some(next) => cursor = next.clone(),
                None => break,
            }
        }
        assert!(pages > 1, "{pages} page");
        assert_eq!((listed.len(), listed.into_iter().collect()), (RUNS, started.clone()));
    }
    let complete = json!({
        "ref": { "type": "ref/resource", "uri": "shikiri://runs/{id}/events" },
        "argument": { "name": "id", "value": "run_" },
    });
    let completion = &host.result("completion/complete", complete).await["completion"];
    assert_eq!(completion["values"].as_array().unwrap().len(), 100, "no more are allowed");
    assert_eq!((&completion["total"], &completion["hasMore"]), (&json!(RUNS), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_have_templates_and_their_events_can_be_read() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let listed = host.result("resources/templates/list", json!({})).await;
    let templates = listed["resourceTemplates"].as_array().unwrap();
    let templates: Vec<_> = templates.iter().map(|t| t["uriTemplate"].as_str().unwrap()).collect();
    let expected =
        ["shikiri://runs/{id}", "shikiri://runs/{id}/events", "shikiri://dialogues/{id}"];
    assert_eq!(templates, expected);

    let result = host.called("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
    let run = linked_run(&result);
    let uri = format!("shikiri://runs/{run}/events");
    let read = host.result("resources/read", json!({ "uri": uri })).await;
    let content = &read["contents"][0];
    assert_eq!((&content["uri"], &content["mimeType"]), (&json!(uri), &json!("application/json")));
    let events: Value = serde_json::from_str(content["text"].as_str().unwrap()).unwrap();
    assert_eq!((&events["run_id"], &events["more"]), (&json!(run), &json!(false)));
    let events = events["events"].as_array().unwrap();
    let seqs: Vec<_> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["event"], "result");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_agent_has_a_prompt_with_its_arguments() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let listed = host.result("prompts/list", json!({})).await;
    let prompts = listed["prompts"].as_array().unwrap();
    let names: Vec<_> = prompts.iter().map(|prompt| prompt["name"].as_str().unwrap()).collect();
    let samples: Vec<_> = names.iter().filter(|name| !name.starts_with("ask_")).collect();
    assert_eq!(samples, [&"long_running_agent", &"research_agent", &"travel_agent"]);
    let trip = prompts.iter().find(|prompt| prompt["name"] == "travel_agent").unwrap();
    let arguments = trip["arguments"].as_array().unwrap();
    assert!(arguments.iter().any(|argument| argument["name"] == "destination"), "{arguments:?}");

    let wanted =
        json!({ "name": "travel_agent", "arguments": { "destination": "Oslo", "step_ms": "5" } });
    let prompt = host.result("prompts/get", wanted).await;
    let message = &prompt["messages"][0];
    assert_eq!(message["role"], "user");
    let text = message["content"]["text"].as_str().unwrap();
    for part in ["travel_agent", r#""destination":"Oslo""#, r#""step_ms":5"#] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let wrong = json!({ "name": "travel_agent", "arguments": { "step_ms": "soon" } });
    host.request("prompts/get", wrong).await.error(-32602).await;

    let complete = async |reference: Value, name: &str, value: &str| {
        let argument = json!({ "name": name, "value": value });
        let params = json!({ "ref": reference, "argument": argument });
        host.request("completion/complete", params).await
    };
    let prompt = json!({ "type": "ref/prompt", "name": "travel_agent" });
    let mut found = complete(prompt.clone(), "destination", "Pa").await;
    let completion = json!({ "values": ["Paris"], "total": 1, "hasMore": false });
    assert_eq!(found.result().await["completion"], completion);
    let mut none = complete(prompt.clone(), "destination", "Xx").await;
    assert_eq!(none.result().await["completion"]["values"], json!([]));
    let mut none = complete(prompt, "no_such_argument", "").await;
    assert_eq!(none.result().await["completion"]["values"], json!([]));
    for unknown in [
        json!({ "type": "ref/prompt", "name": "absent" }),
        json!({ "type": "ref/resource", "uri": "shikiri://nothing/{id}" }),
        json!({ "type": "ref/tool", "name": "travel_agent" }),
        json!({}),
    ] {
        complete(unknown, "x", "").await.error(-32602).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_say_how_long_they_may_be_kept_and_only_where_that_is_known() {
    let app = TestApp::new(PROGRAM).start().await;
    let older = McpClient::connect(&app.client()).await;
    let newer = ModernClient::new(&app.client());
    let result = older.called("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
    let uri = format!("shikiri://runs/{}", linked_run(&result));
    for (method, params, scope) in [
        ("tools/list", json!({}), "public"),
        ("prompts/list", json!({}), "public"),
        ("resources/templates/list", json!({}), "public"),
        ("resources/list", json!({}), "private"),
        ("resources/read", json!({ "uri": uri }), "private"),
    ] {
        let kept = newer.result(method, params.clone()).await;
        assert_eq!(kept["cacheScope"], scope, "{method}");
        let is_lasting = kept["ttlMs"].as_u64().unwrap() > 0;
        assert_eq!(is_lasting, scope == "public", "a run changes at any time: {method}");
        let plain = older.result(method, params).await;
        for field in ["ttlMs", "cacheScope", "resultType"] {
            assert_eq!(plain.get(field), None, "{method}");
        }
    }
}
