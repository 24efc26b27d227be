//! What lies around the CLI: MCP servers, skills, Bedrock, and a server that dies.

use std::sync::Mutex;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde_json::Value;
use shikiri_executions::execution::ResolvedServer;
use shikiri_model::ids::TenantId;
use shikiri_model::models::ActiveStatus;
use shikiri_model::server::McpServerTransport;
use shikiri_model::skill::Skill;
use shikiri_testkit::{Follower, Signal, Usage, role, spawn_role, until};

use super::*;

const FREE: Usage = Usage {
    input_tokens: 0,
    output_tokens: 0,
    cache_read_input_tokens: 0,
    cache_creation_input_tokens: 0,
    cache_creation_1h_input_tokens: 0,
};

/// The smallest MCP server: two tools, of which each tells the header that it was called with. It
/// keeps the headers that it saw.
#[derive(Clone, Default)]
struct Mcp(Arc<Mutex<Vec<String>>>);

impl Mcp {
    /// Gives its address. It ends with the test's runtime.
    async fn start(&self) -> String {
        let router = Router::new().fallback(serve).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}/mcp")
    }
}

async fn serve(State(mcp): State<Mcp>, headers: HeaderMap, body: String) -> Response {
    let message: Value = serde_json::from_str(&body).unwrap_or_default();
    let token = headers.get("authorization").map_or("none", |value| value.to_str().unwrap());
    mcp.0.lock().unwrap().push(token.to_owned());
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "test", "version": "0" },
        }),
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            json!({ "tools": [tool("read"), tool("write")] })
        }
        "tools/call" => json!({ "content": [{ "type": "text", "text": format!("saw {token}") }] }),
        _ if message.get("id").is_none() => return StatusCode::ACCEPTED.into_response(),
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
            return Json(answer).into_response();
        }
    };
    Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).into_response()
}

fn server(name: &str, url: &str, allowed: Option<&[&str]>) -> ResolvedServer {
    ResolvedServer {
        id: None,
        name: name.to_owned(),
        transport: McpServerTransport::Http { url: url.to_owned() },
        headers: [("Authorization".to_owned(), "Bearer canary-5711".to_owned())].into(),
        allowed_tools: allowed.map(|all| all.iter().map(ToString::to_string).collect()),
        allow_private: true,
        is_own: false,
    }
}

#[tokio::test]
async fn servers_get_their_headers_which_no_other_sees_and_a_dead_one_is_told() {
    for cli in claude_programs() {
        let world = world_of(&cli).await;
        let mcp = Mcp::default();
        let url = mcp.start().await;
        let calls = Reply::call("mcp__docs__read", json!({}))
            .and_call("mcp__docs__write", json!({}))
            .and_call("Bash", json!({ "command": "cat ../home/servers-* ; ps -eo args" }));
        world.model.script("go", [calls, Reply::text("done")]);
        let servers = vec![
            server("docs", &url, Some(&["read"])),
            server("dead", "http://127.0.0.1:1/mcp", None),
            server("greedy", "http://127.0.0.1:1/${ANTHROPIC_API_KEY}", None),
        ];
        let port = url.rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap();
        let loopback_ports = vec![port.parse().unwrap()];
        let ended = world.run(TurnRequest { servers, loopback_ports, ..world.order("go") }).await;

        assert_eq!(ended.result(), "done");
        let warned: Vec<_> = ended.of("warning").into_iter().map(|w| &w["server"]).collect();
        assert_eq!(warned, ["greedy", "dead"]);
        let seen = mcp.0.lock().unwrap().clone();
        assert!(!seen.is_empty() && seen.iter().all(|token| token == "Bearer canary-5711"));
        let mut results = ended.of("tool_result");
        results.sort_by_key(|result| result["tool_use_id"].to_string());
        assert!(results[0]["content"].to_string().contains("saw [REDACTED]"), "{results:?}");
        assert_eq!(
            (&results[0]["is_error"], &results[1]["is_error"]),
            (&json!(false), &json!(true))
        );
        assert!(results[1]["content"].to_string().contains("is not allowed here"));
        assert!(results[2]["content"].to_string().contains("No such file"), "it has gone by then");
        let told = format!("{:?}", ended.account.messages);
        assert!(!told.contains("canary-5711") && !told.contains("sk-ant-canary"), "{told}");
        ended.outcome.unwrap();
    }
}

#[tokio::test]
async fn skills_are_offered_to_the_model_and_can_be_used() {
    for cli in claude_programs() {
        let world = world_of(&cli).await;
        let skill = Skill {
            name: "folding".into(),
            tenant: TenantId::local(),
            description: "Folds paper cranes".into(),
            content: "First crease: MOUNTAIN-FOLD.".into(),
            files: [("steps/two.md".to_owned(), "VALLEY-FOLD".to_owned())].into(),
            status: ActiveStatus::Active,
        };
        let uses = Reply::call("Skill", json!({ "skill": "shikiri:folding" }));
        let read = Reply::call("Bash", json!({ "command": "cat ../home/plugin/skills/*/steps/*" }));
        world.model.script("go", [uses, read, Reply::text("folded")]);
        let order = TurnRequest { skills: vec![skill], ..world.order("go") };
        let ended = world.run(order).await;
        assert_eq!(ended.result(), "folded");
        let asked = world.model.messages();
        assert!(asked[0].body.to_string().contains("shikiri:folding: Folds paper cranes"));
        assert!(asked[1].body.to_string().contains("MOUNTAIN-FOLD"));
        assert_eq!(ended.of("tool_result")[1]["content"], "VALLEY-FOLD");

        world.model.script("again", [Reply::text("none")]);
        let ended = world.run(world.order("again")).await;
        assert_eq!(ended.result(), "none");
        let asked = world.model.messages().pop().unwrap();
        assert!(!asked.body.to_string().contains("folding"), "a skill that is not ordered is gone");
    }
}

#[tokio::test]
async fn bedrock_is_spoken_to_at_its_base_url_with_subagents_on_their_model() {
    for cli in claude_programs() {
        let world = world_of(&cli).await;
        let spawn = json!({
            "description": "d", "prompt": "helper, work", "subagent_type": "general-purpose",
            "run_in_background": false,
        });
        world.model.script("helper, work", [Reply::text("helped")]);
        world.model.script("go", [Reply::call("Agent", spawn), Reply::text("through Bedrock")]);
        // Newer versions first try two models of their own with a single token, which they count
        // nowhere and nothing turns off. Here that is free.
        world.model.answer(|request| {
            let is_check = request.body["max_tokens"] == 1;
            is_check.then(|| Reply::text(".").usage(FREE))
        });
        let mut order = world.order("go");
        order.model.model_name = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0".into();
        order.subagent_model = Some("eu.anthropic.claude-haiku-4-5-20251001-v1:0".into());
        order.env.remove("ANTHROPIC_BASE_URL");
        let env = [
            ("CLAUDE_CODE_USE_BEDROCK", "1".to_owned()),
            ("AWS_REGION", "eu-west-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "AKIAFAKE".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "fake-secret".to_owned()),
            ("ANTHROPIC_MODEL", order.model.model_name.clone()),
            ("ANTHROPIC_BEDROCK_BASE_URL", world.model.url()),
        ];
        order.env.extend(env.map(|(name, value)| (name.to_owned(), value)));
        let ended = world.run(order).await;

        assert_eq!(ended.result(), "through Bedrock");
        assert!(world.model.messages().iter().all(|request| request.path.starts_with("/model/")));
        let models: Vec<_> = ended.rows().into_iter().map(|row| row.model).collect();
        assert_eq!(
            models,
            [
                "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
                "eu.anthropic.claude-haiku-4-5-20251001-v1:0"
            ]
        );
        ended.assert_exact(&world);
    }
}

/// In the role of a server: starts a turn whose command never ends, and waits to be killed.
async fn be_a_server() {
    let cli = PathBuf::from(std::env::var_os("TEST_CLI").unwrap());
    let mut order: TurnRequest = world_of(&cli).await.order("go");
    order.home = PathBuf::from(std::env::var_os("TEST_HOME").unwrap());
    order.folder = PathBuf::from(std::env::var_os("TEST_WORK").unwrap());
    let url = std::env::var("TEST_MODEL").unwrap();
    order.env.insert("ANTHROPIC_BASE_URL".to_owned(), url);
    let (told, mut heard) = EngineSender::channel();
    tokio::spawn(async move { while heard.recv().await.is_some() {} });
    let _ = claude_code(&cli).run(order, told, CancellationToken::new()).await;
}

#[tokio::test]
async fn nothing_outlives_a_server_that_is_killed() {
    if role().is_some() {
        return be_a_server().await;
    }
    for cli in claude_programs() {
        for in_command in [true, false] {
            let world = world_of(&cli).await;
            let command = json!({ "command": "touch begun; while :; do sleep 1; done" });
            let slow = Reply::text(&"on ".repeat(5_000)).paced(Duration::from_millis(20));
            world
                .model
                .script("go", [if in_command { Reply::call("Bash", command) } else { slow }]);
            let this = "claude_code::outside::nothing_outlives_a_server_that_is_killed";
            let mut command = spawn_role(this, "server");
            command.env("TEST_CLI", &cli).env("TEST_MODEL", world.model.url());
            command.env("TEST_HOME", world.home()).env("TEST_WORK", world.work());
            let mut server = Follower::start(&mut command);
            let begun = async || match in_command {
                true => world.work().join("begun").exists(),
                false => !world.model.spent().is_empty(),
            };
            until("the turn is under way", begun).await;
            // The server itself, its supervisor, the CLI and perhaps the command.
            assert!(world.processes().len() >= 3, "{:?}", world.processes());
            server.signal(Signal::KILL);
            server.wait(PATIENCE);
            until_gone(&world.home()).await;
        }
    }
}
