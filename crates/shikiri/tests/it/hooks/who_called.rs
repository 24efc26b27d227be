//! Which subagent called a tool of ours: what its hook told, joined with the call's mark.

use serde_json::{Value, json};
use shikiri_model::connection::McpConnection;
use shikiri_model::ids::TenantId;
use shikiri_model::record::{Document as _, RecordQuery};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_store::{Store as _, store};
use shikiri_testkit::{
    ClaudeCli, Client, FakeModel, McpClient, ModernClient, Reply, TestApp, claude_programs,
};

use crate::PROGRAM;

/// Two subagents of one type, told apart by the roles in their prompts.
async fn spawn(client: &Client) {
    for (agent, role) in [("a1", "tester"), ("a2", "coder")] {
        let call = json!({
            "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Agent",
            "tool_use_id": format!("spawn-{agent}"),
            "tool_input": { "subagent_type": "worker", "prompt": format!("[ROLE:{role}] go") },
        });
        let start = json!({ "session_id": "s", "hook_event_name": "SubagentStart",
                            "agent_id": agent, "agent_type": "worker" });
        for event in [call, start] {
            client.post("/hooks/claude", &event).await.expect(200);
        }
    }
}

/// The hook that comes before a call.
async fn before(client: &Client, agent: Option<&str>, tool_use_id: &str) {
    let mut event = json!({
        "session_id": "s", "hook_event_name": "PreToolUse",
        "tool_name": "mcp__shikiri__run_list", "tool_use_id": tool_use_id,
    });
    if let Some(agent) = agent {
        event["agent_id"] = json!(agent);
        event["agent_type"] = json!("worker");
    }
    client.post("/hooks/claude", &event).await.expect(200);
}

fn call(tool: &str, tool_use_id: Option<&str>) -> Value {
    let arguments = match tool {
        "long_running_agent" => json!({ "steps": 1, "step_ms": 1 }),
        _ => json!({}),
    };
    let mut params = json!({ "name": tool, "arguments": arguments, "_meta": {} });
    if let Some(id) = tool_use_id {
        params["_meta"]["claudecode/toolUseId"] = json!(id);
    }
    params
}

/// The calls that stand in the streams of connections, by the tool and its mark.
async fn noted(app: &TestApp) -> Vec<Value> {
    let file = app.data_folder().join("state.db");
    let store = SqliteStore::open(&file, SqliteOptions::default()).unwrap();
    let tenant = TenantId::local();
    let kind = McpConnection::KIND;
    let query = RecordQuery { kind, tenant: Some(tenant.clone()), limit: 10, ..Default::default() };
    let mut calls = Vec::new();
    for record in store.list(query).await.unwrap() {
        let connection = store::decode::<McpConnection>(&record).unwrap().value;
        let page = store.read(&tenant, &connection.stream(), 0, usize::MAX).await.unwrap();
        let events = page.chunks.iter().flat_map(|chunk| chunk.events());
        let noted = events.filter(|event| event.kind == "call");
        calls.extend(noted.map(|event| serde_json::from_str::<Value>(event.data).unwrap()));
    }
    calls
}

fn who(call: &Value) -> [Option<&str>; 3] {
    ["agent_id", "agent_type", "role"].map(|name| call.get(name).map(|v| v.as_str().unwrap()))
}

/// Subagents share one connection; each call is written down with the one that made it.
#[tokio::test(flavor = "multi_thread")]
async fn each_call_is_written_down_with_the_subagent_that_made_it() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    spawn(&client).await;
    let callers =
        [(Some("a2"), "m-2"), (Some("a1"), "m-1"), (None, "m-main"), (Some("a2"), "m-2b")];
    for (agent, id) in callers {
        before(&client, agent, id).await;
    }
    let older = McpClient::connect(&client).await;
    let newer = ModernClient::new(&client);
    // Not in the order of their hooks, as calls of parallel subagents come.
    let marks = [Some("m-1"), Some("m-2"), Some("m-2b"), Some("m-main"), Some("unknown"), None];
    for tool in ["run_list", "long_running_agent"] {
        for mark in marks {
            older.result("tools/call", call(tool, mark)).await;
            newer.result("tools/call", call(tool, mark)).await;
        }
    }
    let calls = noted(&app).await;
    assert_eq!(calls.len(), 2 * 2 * marks.len(), "{calls:#?}");
    for call in &calls {
        let expected = match call["tool_use_id"].as_str() {
            Some("m-1") => [Some("a1"), Some("worker"), Some("tester")],
            Some("m-2" | "m-2b") => [Some("a2"), Some("worker"), Some("coder")],
            _ => [None; 3],
        };
        assert_eq!(who(call), expected, "{call}");
    }
    // What the run was started by says so too.
    let run = calls.iter().find(|c| c["tool_use_id"] == "m-2" && c["run_id"].is_string()).unwrap();
    let uri = format!("shikiri://runs/{}/events", run["run_id"].as_str().unwrap());
    let read = older.result("resources/read", json!({ "uri": uri })).await;
    let text = read["contents"][0]["text"].as_str().unwrap();
    let events: Value = serde_json::from_str(text).unwrap();
    assert_eq!(who(&events["events"][0]["data"]["origin"]["who"])[2], Some("coder"));
}

/// Another tenant's hook says nothing about one's own calls.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_is_looked_up_among_the_callers_own_hooks() {
    let app = TestApp::new(PROGRAM).start().await;
    let acme = app.tenant("acme").await;
    spawn(&acme.client).await;
    before(&acme.client, Some("a1"), "m-1").await;
    let ours = McpClient::connect(&app.client()).await;
    ours.result("tools/call", call("run_list", Some("m-1"))).await;
    let calls = noted(&app).await;
    assert_eq!((calls.len(), who(&calls[0])), (1, [None; 3]));
}

/// The real Claude Code, with hooks that it posts to the server and the server's tools: each
/// subagent gets its role's text, and its call is known as its own.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_real_claude_code_are_known_by_their_subagents() {
    for program in claude_programs() {
        let model = FakeModel::start().await;
        let cli = ClaudeCli::new(program, &model).allow("Agent").allow("Task");
        let app = TestApp::new(PROGRAM).root(cli.project()).env("HOME", cli.home().display());
        let app = app.start().await;
        let conventions =
            "[roles.tester]\ntext = \"規約・tester\"\n[roles.coder]\ntext = \"規約・coder\"\n";
        std::fs::write(app.data_folder().join("conventions.toml"), conventions).unwrap();
        let base = app.client().base().to_owned();
        app.cli().run(&["hooks", "install", "--local", "--http", &base]).done();
        let key = format!("Bearer {}", app.admin_key());
        let url = format!("{base}/mcp");
        let cli = cli
            .mcp_http("shikiri", &url, &[("Authorization", &key)])
            .allow("mcp__shikiri__run_list");
        let spawn = |role: &str| {
            json!({ "description": role, "subagent_type": "general-purpose",
                    "prompt": format!("[ROLE:{role}] {role}の仕事をせよ") })
        };
        let both = Reply::call("Agent", spawn("tester")).and_call("Agent", spawn("coder"));
        model.script("二人を働かせよ", [both, Reply::text("終わり")]);
        for role in ["tester", "coder"] {
            let call = Reply::call("mcp__shikiri__run_list", json!({}));
            model.script(&format!("{role}の仕事をせよ"), [call, Reply::text("済み")]);
        }
        let ended = cli.print("二人を働かせよ").await;
        assert_eq!(ended.result()["is_error"], false, "{ended:?}");

        let mut told = Vec::new();
        for request in model.messages() {
            let body = request.body.to_string();
            if let Some(agent) = request.agent_id()
                && request.tool_results().len() == 1
            {
                let roles = ["tester", "coder"];
                let given = roles.into_iter().filter(|r| body.contains(&format!("規約・{r}")));
                told.push((agent.to_owned(), given.collect::<Vec<_>>()));
            }
        }
        told.sort();
        let mut known: Vec<_> = noted(&app)
            .await
            .iter()
            .map(|call| {
                let [agent, _, role] = who(call).map(|word| word.unwrap_or_default().to_owned());
                (agent, role)
            })
            .collect();
        known.sort();
        assert_eq!(known.len(), 2, "{known:?}\n{}", app.log());
        let told: Vec<_> =
            told.into_iter().map(|(agent, roles)| (agent, roles.join(" "))).collect();
        assert_eq!(told, known, "what each was told and what its call is known by");
        assert_ne!(known[0].1, known[1].1);
    }
}
