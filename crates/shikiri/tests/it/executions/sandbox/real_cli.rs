//! The attacks once more, by the real Claude Code: a scripted model has its Bash tool make them.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use serde_json::json;
use shikiri_testkit::{FakeModel, Reply, Tenant, TestApp, claude_programs, skip};

use super::super::kit::{Talk, terminal};
use super::network::say_to_all;
use crate::PROGRAM;

const OPERATOR_KEY: &str = "sk-operator-4711";
const NEIGHBOUR: &str = "canary-of-the-neighbour";
/// What `network::say_to_all` says.
const SERVICE: &str = "canary-0815";

/// A server whose tenant `acme` has the real CLI, with a scripted model behind it. None, and said
/// loudly, where the CLI is not installed.
async fn real_cli() -> Option<(FakeModel, TestApp, Tenant)> {
    let Some(program) = claude_programs().into_iter().next() else {
        skip("the real Claude Code in its sandbox", "it is not installed");
        return None;
    };
    let model = FakeModel::start().await;
    let app = TestApp::new(PROGRAM)
        .env("SHIKIRI_CLAUDE_BIN", program.display())
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", OPERATOR_KEY)
        .env("CLAUDE_CODE_MAX_RETRIES", 1)
        .start()
        .await;
    let record = json!({ "id": "cli", "engine": "claude-code", "model_name": "claude-sonnet-4-5" });
    app.client().post("/v1/models", &record).await.expect(201);
    let tenant = app.tenant("acme").await;
    let change = json!({ "model_id": "cli" });
    app.client().patch("/v1/tenants/acme", &change).await.expect(200);
    Some((model, app, tenant))
}

/// An MCP server that is a program: its one tool tells what it can see of a file.
const MCP_PROGRAM: &str = r#"
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    method, params = asked["method"], asked.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "looks", "version": "1"}}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        result = {"tools": [{"name": "look", "description": "Looks at a file", "inputSchema": schema}]}
    elif method == "tools/call":
        path = params["arguments"]["path"]
        text = "seen: %s, read: %s" % (os.path.exists(path), os.access(path, os.R_OK))
        result = {"content": [{"type": "text", "text": text}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_lets_the_real_cli_use_an_mcp_program_and_confines_it() {
    let Some((model, app, tenant)) = real_cli().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("looks.py");
    std::fs::write(&program, MCP_PROGRAM).unwrap();
    for path in [folder.path(), &program] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let command = json!(["/usr/bin/python3", program.display().to_string()]);
    let server = json!({ "name": "looks", "type": "stdio", "command": command });
    app.client().post(&tenant.path("/mcp-servers"), &server).await.expect(201);
    let look = |path: &str| Reply::call("mcp__looks__look", json!({ "path": path }));
    let admin_key = app.data_folder().join("admin.key");
    let replies =
        [look("/etc/hosts"), look(&admin_key.display().to_string()), Reply::text("見た。")];
    model.script("見て", replies);
    let told = Talk::start(&tenant).await.say("見て").await;
    assert_eq!(terminal(&told).data["result"], "見た。", "{told:#?}");
    let results = told.iter().filter(|event| event.kind == "tool_result");
    let results: Vec<String> = results.map(|event| event.data["content"].to_string()).collect();
    assert_eq!(results.len(), 2, "{told:#?}");
    assert!(results[0].contains("seen: True, read: True"), "{results:?}");
    assert!(results[1].contains("seen: False, read: False"), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_holds_against_the_bash_tool_of_the_real_cli() {
    let Some((model, app, tenant)) = real_cli().await else { return };
    let (talk, other) = (Talk::start(&tenant).await, Talk::start(&tenant).await);
    let data = app.data_folder();
    let note = data.join("engines").join(&other.id).join("work/note");
    std::fs::create_dir_all(note.parent().unwrap()).unwrap();
    std::fs::write(&note, NEIGHBOUR).unwrap();
    let (services, port) = services();

    let attacks = attacks(&data.display().to_string(), &note, port, services.path());
    let count = attacks.len();
    let calls = attacks.map(|code| Reply::call("Bash", json!({ "command": code })));
    model.script("攻めて", calls.into_iter().chain([Reply::text("終わり。")]));
    let told = talk.say("攻めて").await;
    assert_eq!(terminal(&told).data["result"], "終わり。", "{told:#?}");
    let results: Vec<String> = told
        .iter()
        .filter(|event| event.kind == "tool_result")
        .map(|event| event.data["content"].to_string())
        .collect();
    assert_eq!(results.len(), count, "{told:#?}");
    assert!(results.iter().all(|result| result.contains("over")), "{results:#?}");
    // The variable is there, with the run's own token.
    assert!(results[2].contains("=YEK_IPA_CIPORHTNA"), "{}", results[2]);

    // The link is in place of the session's file: the next turn works all the same.
    model.script("続けて", [Reply::text("続き。")]);
    let next = talk.say("続けて").await;
    assert_eq!(terminal(&next).data["result"], "続き。", "{next:#?}");
    assert_eq!(app.client().get("/readyz").await.status, 200);

    let turned: String = OPERATOR_KEY.chars().rev().collect();
    let admin_key = app.admin_key();
    let shadow = std::fs::read_to_string("/etc/shadow").unwrap_or_default();
    let shadow = shadow.lines().next().unwrap_or(NEIGHBOUR);
    let asked: String = model.requests().iter().map(|asked| asked.body.to_string()).collect();
    let mut places = vec![("events", format!("{told:?}{next:?}")), ("requests", asked)];
    for file in ["state.db", "state.db-wal"] {
        let bytes = std::fs::read(data.join(file)).unwrap_or_default();
        places.push((file, String::from_utf8_lossy(&bytes).into_owned()));
    }
    for secret in [OPERATOR_KEY, &turned, &admin_key, NEIGHBOUR, SERVICE, shadow] {
        for (place, words) in &places {
            assert!(!words.contains(secret), "{secret} is in the {place}");
        }
    }
}

/// A port of the machine and a socket in this folder, which tell all who connect the same.
fn services() -> (tempfile::TempDir, u16) {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    };
    let unix = UnixListener::bind(folder.path().join("socket")).unwrap();
    open(folder.path());
    open(&folder.path().join("socket"));
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    say_to_all!(tcp);
    say_to_all!(unix);
    (folder, port)
}

/// Each ends with `over`, whatever it reached.
fn attacks(
    data: &str,
    note: &std::path::Path,
    port: u16,
    services: &std::path::Path,
) -> [String; 4] {
    let (note, socket) = (note.display(), services.join("socket"));
    let python = "PATH=/usr/bin:$PATH python3 -c";
    [
        format!(
            "cat {data}/admin.key; cat {note}; cat /etc/shadow; \
             ls {data} /etc/ssl/private; echo over"
        ),
        format!(
            "(exec 3<>/dev/tcp/127.0.0.1/{port}; head -n 1 <&3); {python} 'import socket; \
             s = socket.socket(socket.AF_UNIX); s.connect(\"{}\"); print(s.recv(99))'; echo over",
            socket.display()
        ),
        // Turned round, as the filter of what is told would not know it.
        "printenv | rev; cat /proc/*/environ | tr '\\0' '\\n' | rev; echo over".to_owned(),
        format!(
            "for f in $(find $HOME -name '*.jsonl'); do rm $f; ln -s {data}/admin.key $f; ls -l $f; \
             done; perl -e 'for(1..1500){{mkdir q(d);chdir q(d)}}'; echo over"
        ),
    ]
}
