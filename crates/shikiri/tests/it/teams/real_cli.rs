//! A task with a talk, played by the real Claude Code as both agents, in both versions: the server
//! starts it with a door to itself, and a scripted model calls the tools.

use std::path::Path;

use serde_json::{Value, json};
use shikiri_testkit::{FakeModel, ModelRequest, Reply, TestApp, claude_programs};

use super::coordinator::{GAME, Office, PATIENCE, server};

const MODEL: &str = "claude-sonnet-4-5";

async fn start(program: &Path, model: &FakeModel) -> TestApp {
    let app = server()
        .env("SHIKIRI_SPAWN_GUARD_SECONDS", 60)
        .env("SHIKIRI_CLAUDE_BIN", program.display())
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "sk-test")
        .env("CLAUDE_CODE_MAX_RETRIES", 1)
        .start()
        .await;
    let record = json!({ "id": "claude", "engine": "claude-code", "model_name": MODEL });
    app.client().post("/v1/models", &record).await.expect(201);
    app.client().patch("/v1/tenants/local", &json!({ "model_id": "claude" })).await.expect(200);
    app
}

/// A tool of the server, as the CLI calls it.
fn call(tool: &str, input: Value) -> Reply {
    Reply::call(&format!("mcp__shikiri__{tool}"), input)
}

/// What a tool has just answered; null before the first call.
fn heard(request: &ModelRequest) -> Value {
    let results = request.tool_results();
    let text = results.last().map(|result| result.text.clone()).unwrap_or_default();
    let start = text.find('{').unwrap_or(text.len());
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter();
    values.next().and_then(Result::ok).unwrap_or_default()
}

/// The model of a task session.
fn works(request: &ModelRequest) -> Reply {
    let heard = heard(request);
    let next = || call("get_next_action", json!({ "wait_seconds": 30 }));
    let whole = request.body["messages"].to_string();
    let task = whole.find("tsk_").map(|at| whole[at..].chars().take(36).collect::<String>());
    match heard["action"].as_str() {
        Some("work") => {
            let wanted = json!({ "target_agent_id": "worker-b", "purpose": "6往復しりとり" });
            call("delegate_to_chat_session", wanted)
        }
        Some("delegation_result") => {
            let said = heard["messages"].as_array().map_or(0, Vec::len);
            let result = format!("{said} messages");
            call("report_completed", json!({ "task_id": task, "result": result }))
        }
        Some("none") => Reply::text("終わり"),
        _ => next(),
    }
}

/// The model of a chat session.
fn talks(request: &ModelRequest) -> Reply {
    let heard = heard(request);
    let first = |list: &str| heard[list].as_array().and_then(|all| all.first()).cloned();
    let answer = |to: &Value| {
        let answer = json!({ "conversation_id": to["conversation_id"], "content": "ことば" });
        call("respond_conversation_message", answer)
    };
    if let Some(delegation) = first("pending_delegations") {
        return call(
            "start_conversation",
            json!({
                "target_agent_id": delegation["target_agent_id"], "initial_message": "りんご",
                "max_turns": 12, "delegation_id": delegation["delegation_id"],
            }),
        );
    }
    if let Some(turn) = first("invitations").or_else(|| first("pending_messages")) {
        return answer(&turn);
    }
    match first("ended_conversations") {
        Some(_) => Reply::text("終わり"),
        None => call("get_pending_messages", json!({ "wait_seconds": 30 })),
    }
}

/// Row 2.19 with the program that agents really are.
#[tokio::test(flavor = "multi_thread")]
async fn two_real_agents_play_six_rounds_and_the_task_is_done() {
    for program in claude_programs() {
        let model = FakeModel::start().await;
        model.answer(|request| {
            if request.says("This is your task session") {
                Some(works(request))
            } else {
                request.says("This is your chat session").then(|| talks(request))
            }
        });
        let mut app = start(&program, &model).await;
        let office = Office::open(&app, &["worker-a", "worker-b"], "auto").await;
        let task = office.assign("worker-a", GAME).await;
        let done = office.done(&task).await;
        assert_eq!(done["result"], "12 messages");
        office.check_game().await;
        for agent in ["worker-a", "worker-b"] {
            let who = format!("agent id {agent}");
            model.asked(PATIENCE, |r| r.says(&who) && r.says("chat session")).await;
        }
        assert_eq!(model.unscripted().len(), 0, "{:#?}", model.unscripted());
        // Nothing had to be asked for, and the token is in nothing that was said or told.
        app.terminate().await;
        let asked = format!("{:?}", model.requests());
        assert!(!asked.contains("is not allowed here"), "a tool was refused");
        let store = std::fs::read(app.data_folder().join("state.db")).unwrap();
        for (name, text) in
            [("model", asked.into_bytes()), ("log", app.log().into()), ("store", store)]
        {
            let token = b"sst_local.";
            assert!(
                !text.windows(token.len()).any(|part| part == token),
                "a token is in the {name}"
            );
        }
    }
}
