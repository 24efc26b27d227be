//! Each test runs the real program, in the newest version and in the oldest supported one.

use serde_json::json;

use super::mcp_server::{McpServer, STDIO};
use super::*;
use crate::fake_model::{Gate, Reply, Usage};

#[tokio::test]
async fn a_prompt_is_answered_and_its_usage_is_told() {
    for program in claude_programs() {
        let model = FakeModel::start().await;
        let usage = Usage { input_tokens: 1234, output_tokens: 56, ..Usage::default() };
        model.script("say hello", [Reply::text("hello there").usage(usage)]);
        let ended = ClaudeCli::new(program, &model).print("say hello").await;

        assert_eq!(ended.text(), "hello there");
        let usage = &ended.result()["usage"];
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(1234), &json!(56)));
        let messages = model.messages();
        assert_eq!(messages.len(), 1, "{messages:#?}");
        assert_eq!(messages[0].session_id(), ended.result()["session_id"].as_str());
        assert_eq!(messages[0].header("x-api-key"), Some("sk-ant-fake"));
        assert_eq!(messages[0].agent_id(), None);
        assert_eq!(model.unscripted().len(), 0);
    }
}

#[tokio::test]
async fn a_tool_is_called_over_http_and_its_result_reaches_the_model() {
    for program in claude_programs() {
        let (model, mcp) = (FakeModel::start().await, McpServer::start().await);
        let read = Reply::with(|request| Reply::text(&request.tool_results()[0].text));
        model.script("echo", [Reply::call("mcp__test__echo", json!({ "text": "木" })), read]);
        let claude = ClaudeCli::new(program, &model);
        let claude = claude.mcp_http("test", &mcp.url, &[("x-who", "the test")]);
        let ended = claude.print("echo please").await;

        assert_eq!(ended.text(), "echo: 木");
        assert!(ended.result()["permission_denials"].as_array().unwrap().is_empty());
        let results = model.messages()[1].tool_results();
        let (headers, call) = mcp.message("tools/call");
        assert_eq!(headers["x-who"], "the test");
        assert_eq!(call["params"]["arguments"], json!({ "text": "木" }));
        assert_eq!(call["params"]["_meta"]["claudecode/toolUseId"], results[0].tool_use_id);
        assert_eq!(model.unscripted().len(), 0);
    }
}

#[tokio::test]
async fn a_tool_is_called_over_stdio() {
    for program in claude_programs() {
        let model = FakeModel::start().await;
        let read = Reply::with(|request| Reply::text(&request.tool_results()[0].text));
        model.script("ping", [Reply::call("mcp__sh__ping", json!({})), read]);
        let claude = ClaudeCli::new(program, &model).mcp_stdio("sh", "sh", &["-c", STDIO]);
        assert_eq!(claude.print("ping it").await.text(), "pong");
    }
}

#[tokio::test]
async fn a_host_answers_what_a_server_asks_and_no_answer_is_a_cancellation() {
    for program in claude_programs() {
        let (model, mcp) = (FakeModel::start().await, McpServer::start().await);
        let read = Reply::with(|request| Reply::text(&request.tool_results()[0].text));
        model.script("ask me", [Reply::call("mcp__test__ask", json!({})), read]);
        let claude = ClaudeCli::new(program, &model).mcp_http("test", &mcp.url, &[]);

        let mut host = claude.host().await;
        host.say("ask me").await;
        let question = host.asked("elicitation").await;
        assert_eq!(question.request["mcp_server_name"], "test");
        assert_eq!(question.request["message"], "Which colour?");
        let answer = json!({ "action": "accept", "content": { "colour": "red" } });
        host.answer(&question, answer.clone()).await;
        let result = host.message("result").await;
        assert_eq!(result["result"], answer.to_string());
        assert_eq!(host.end().await.code, 0);

        let mcp = McpServer::start().await;
        let claude = claude.mcp_http("test", &mcp.url, &[]);
        let ended = claude.print("ask me").await;
        assert_eq!(ended.text(), json!({ "action": "cancel" }).to_string());
    }
}

/// Both agents have asked the model before either gets its answer. They are told apart by their
/// prompts and by the ids in their requests.
#[tokio::test]
async fn two_agents_at_once_get_their_own_replies() {
    for program in claude_programs() {
        let model = FakeModel::start().await;
        let agent = |who: &str| {
            let prompt = format!("You are {who}.");
            json!({
                "description": who, "prompt": prompt, "subagent_type": "general-purpose",
                "run_in_background": false,
            })
        };
        let gate = Gate::new();
        for who in ["ann", "bo"] {
            model.script(
                &format!("You are {who}"),
                [Reply::text(&format!("{who} is done")).held(&gate)],
            );
        }
        let calls = Reply::call("Agent", agent("ann")).and_call("Agent", agent("bo"));
        model.script("both", [calls, Reply::text("both are done")]);

        let claude = ClaudeCli::new(program, &model);
        let running = claude.print("both");
        let opening = async {
            for who in ["You are ann", "You are bo"] {
                model.asked(PATIENCE, |request| request.says(who)).await;
            }
            gate.open();
        };
        let (ended, ()) = tokio::join!(running, opening);

        assert_eq!(ended.text(), "both are done");
        let messages = model.messages();
        let ids: std::collections::HashSet<_> =
            messages.iter().filter_map(|r| r.agent_id()).collect();
        assert_eq!((messages.len(), ids.len()), (4, 2), "{ids:?}");
        // In the order in which the agents ended, which may vary.
        let mut results = messages[3].tool_results();
        results.sort_by(|a, b| a.tool_use_id.cmp(&b.tool_use_id));
        for (result, who) in results.iter().zip(["ann", "bo"]) {
            assert!(result.text.contains(&format!("{who} is done")), "{results:#?}");
        }
        assert_eq!(model.unscripted().len(), 0);
    }
}

#[tokio::test]
async fn an_overloaded_api_is_asked_again_and_a_refusal_is_the_end() {
    for program in claude_programs() {
        let model = FakeModel::start().await;
        model.script("go", [Reply::text("at last").after_failures(1, 529, "overloaded_error")]);
        model.script("no", [Reply::error(400, "invalid_request_error")]);
        let claude = ClaudeCli::new(program, &model);

        let ended = claude.print("go").await;
        assert_eq!(ended.text(), "at last");
        let retries = ended.messages.iter().filter(|message| message["subtype"] == "api_retry");
        assert_eq!(retries.count(), 1, "{ended:#?}");
        let ended = claude.print("no").await;
        assert_eq!((ended.code, &ended.result()["is_error"]), (1, &json!(true)), "{ended:#?}");
    }
}

#[tokio::test]
async fn nothing_of_it_is_left_when_it_is_dropped() {
    for program in claude_programs() {
        let model = FakeModel::start().await;
        model.script("wait", [Reply::text("never").held(&Gate::new())]);
        // A server that does not end when its client is gone.
        let stubborn = format!("{STDIO}\nsleep 600");
        let claude = ClaudeCli::new(program, &model).mcp_stdio("sh", "sh", &["-c", &stubborn]);
        let mut host = claude.host().await;
        host.say("wait").await;
        model.asked(PATIENCE, |request| request.is_message()).await;
        let marker = claude.project();
        assert!(processes_in(&marker) >= 2, "claude and its server");
        drop(host);
        crate::until("all are gone", async || processes_in(&marker) == 0).await;
    }
}

fn processes_in(folder: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let folders = processes.filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok());
    folders.filter(|cwd| cwd == folder).count()
}
