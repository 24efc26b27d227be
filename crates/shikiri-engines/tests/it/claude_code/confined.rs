//! What a run can reach of the machine that it runs on.

use shikiri_executions::execution::ResolvedServer;
use shikiri_model::server::McpServerTransport;
use shikiri_testkit::peer;

use super::*;

/// What the commands of a turn gave, one by one.
async fn commands(world: &World, order: TurnRequest, commands: &[String]) -> Vec<String> {
    let calls = commands.iter().map(|command| Reply::call("Bash", json!({ "command": command })));
    world.model.script(&order.prompt, calls.chain([Reply::text("done")]));
    let ended = world.run(order).await;
    assert_eq!(ended.result(), "done");
    let results = ended.of("tool_result");
    results.iter().map(|result| result["content"].as_str().unwrap().to_owned()).collect()
}

/// A run is either not allowed to, or finds nothing there.
fn is_refused(result: &str) -> bool {
    ["denied", "No such file", "No such process"].iter().any(|words| result.contains(words))
}

#[tokio::test]
async fn a_command_reaches_its_own_folders_and_no_others() {
    for cli in claude_programs() {
        let world = world_of(&cli).await;
        let data = world.place.path();
        std::fs::write(data.join("admin.key"), "the-admin-key").unwrap();
        std::fs::create_dir(data.join("neighbour")).unwrap();
        std::fs::write(data.join("neighbour/diary"), "dear-diary").unwrap();
        let (place, pid) = (data.display(), std::process::id());
        let model = world.model.url();
        let address = model.trim_start_matches("http://").replace(':', "/");
        let results = commands(
            &world,
            world.order("go"),
            &[
                format!("cat {place}/admin.key ../admin.key 2>&1; echo over"),
                format!("ls {place} {place}/neighbour 2>&1; cat ../neighbour/* 2>&1; echo over"),
                format!("echo mine > ../neighbour/new; cp {place}/admin.key . ; ls ; echo over"),
                format!("cat /proc/{pid}/environ; ls /proc/{pid}/cwd/; echo over"),
                format!("kill -0 {pid} && echo reached || echo denied; echo over"),
                "mknod disk b 254 0 && echo reached || echo denied; echo over".to_owned(),
                "ln ../admin.key here; ln -s ../admin.key there; cat there; echo over".to_owned(),
                "echo 木 > own && cp own $TMPDIR/b && mv $TMPDIR/b c && cat c && rm c".to_owned(),
                // The model API is reached through the run's gateway alone.
                format!(
                    "(exec 3<>/dev/tcp/{address}) 2>/dev/null && echo reached; \
                     gateway=${{ANTHROPIC_BASE_URL#http://}}; gateway=${{gateway%%/*}}; \
                     exec 3<>/dev/tcp/${{gateway/://}} && echo connected; id -u"
                ),
            ],
        )
        .await;
        let (held, free) = results.split_at(7);
        for result in held {
            assert!(is_refused(result) && result.ends_with("over"), "{result}");
            for secret in ["the-admin-key", "dear-diary", "diary\n", "PATH=", "reached"] {
                assert!(!result.contains(secret), "{secret} in {result}");
            }
        }
        assert!(!data.join("neighbour/new").exists());
        let user = match rustix::process::getuid().as_raw() {
            0 => shikiri_sandbox::ENGINE_USER,
            user => user,
        };
        assert_eq!(free, ["木".to_owned(), format!("connected\n{user}")]);
    }
}

/// The folder of a server may well be one of those that hold programs, such as `/opt`.
#[tokio::test]
async fn what_is_hidden_is_out_of_reach_below_a_folder_that_is_not() {
    for cli in claude_programs() {
        let mut world = world_of(&cli).await;
        let place = world.place.path().to_owned();
        for (name, content) in [("tools/a/tool", "a-tool"), ("tools/data/admin.key", "the-key")] {
            let file = place.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content).unwrap();
        }
        let engine = claude_code(&cli).with_readable(vec![place.join("tools")]);
        world.engine = Arc::new(engine.with_hidden(vec![place.join("tools/data")]));
        let command = "cat ../tools/a/tool; cat ../tools/data/admin.key; echo over";
        let results = commands(&world, world.order("go"), &[command.to_owned()]).await;
        assert!(results[0].starts_with("a-tool"), "{results:?}");
        assert!(is_refused(&results[0]) && !results[0].contains("the-key"), "{results:?}");
    }
}

/// The smallest MCP server over stdio, with a library that is installed beside its Python.
const SCRIPT: &str = r#"
import json, sys, idna
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    tools = [{"name": "read", "inputSchema": {"type": "object"}}]
    result = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "test", "version": "0"}},
        "tools/list": {"tools": tools},
        "tools/call": {"content": [{"type": "text", "text": "read with " + idna.__name__}]},
    }.get(asked["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

#[tokio::test]
async fn a_server_that_is_a_program_finds_its_script_and_its_libraries() {
    let Some(python) = peer("SHIKIRI_PEER_PYTHON") else { return };
    for cli in claude_programs() {
        let world = world_of(&cli).await;
        let script = world.place.path().join("server.py");
        std::fs::write(&script, SCRIPT).unwrap();
        let command = [&python, &script].map(|path| path.to_str().unwrap().to_owned()).to_vec();
        let server = ResolvedServer {
            id: None,
            name: "docs".to_owned(),
            transport: McpServerTransport::Stdio { command },
            headers: std::collections::BTreeMap::new(),
            allowed_tools: None,
            allow_private: false,
            is_own: false,
        };
        world.model.script("go", [Reply::call("mcp__docs__read", json!({})), Reply::text("done")]);
        let ended = world.run(TurnRequest { servers: vec![server], ..world.order("go") }).await;
        assert_eq!(ended.warnings(), Vec::<&str>::new(), "{:?}", ended.of("warning"));
        let result = ended.of("tool_result")[0];
        assert!(result["content"].to_string().contains("read with idna"), "{result}");
    }
}
