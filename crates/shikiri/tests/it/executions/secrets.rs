//! Secrets are seen by those whom they are for, and by nobody else: canaries go in wherever a
//! secret can, and are then looked for in all that comes out.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_sqlite::{Database, OpenOptions};
use shikiri_testkit::{Answer, Client, McpClient, Rng, TestApp, wait_until};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::kit::{Talk, events, terminal};
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(20);

/// One secret of each kind, and a word that is none.
#[derive(Clone)]
struct Canaries {
    /// In `tokens`.
    token: String,
    /// In the server's environment.
    server_env: String,
    /// In a model's `env`.
    model_env: String,
    /// No secret: a search that does not find it finds nothing.
    plain: String,
}

impl Canaries {
    fn new() -> Self {
        let mut rng = Rng::seeded("secrets");
        let mut word = |kind: &str| format!("{kind}-{:016x}", rng.next());
        Self {
            token: word("token"),
            server_env: word("server"),
            model_env: word("model"),
            plain: word("plain"),
        }
    }

    fn secrets(&self) -> [&str; 3] {
        [&self.token, &self.server_env, &self.model_env]
    }

    /// Also a part of a secret is one: what was cut short still tells.
    #[track_caller]
    fn look(&self, place: &str, bytes: &[u8]) {
        for secret in self.secrets() {
            assert!(!holds(bytes, head(secret)), "{secret} is in {place}: {}", show(bytes, secret));
        }
    }

    #[track_caller]
    fn in_answer(&self, place: &str, answer: &Answer) {
        self.look(place, &answer.body);
        self.look(place, format!("{:?}", answer.headers).as_bytes());
    }
}

/// What of a word is looked for.
fn head(word: &str) -> &str {
    &word[..word.len() * 2 / 3]
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

fn show(bytes: &[u8], word: &str) -> String {
    let word = head(word).as_bytes();
    let at = bytes.windows(word.len()).position(|window| window == word).unwrap_or(0);
    let near = &bytes[at.saturating_sub(200)..bytes.len().min(at + 100)];
    String::from_utf8_lossy(near).into_owned()
}

/// In the place of Claude Code: it tells all that it was given, on every way that it has.
const BLABBER: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo '2.1.325 (Claude Code)'; exit; fi
while [ $# -gt 0 ]; do
  if [ "$1" = --mcp-config ]; then token=$(grep -o 'token-[0-9a-f]*' "$2"); fi
  shift
done
all="$token $ANTHROPIC_API_KEY $ANTHROPIC_AUTH_TOKEN"
echo "$all" >&2
while read -r line; do
  case "$line" in
  *initialize*)
    echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize"}}'
    ;;
  *)
    echo '{"type":"system","subtype":"init","session_id":"s","model":"m","mcp_servers":[{"name":"'$token'","status":"failed"}]}'
    echo '{"type":"system","subtype":"news","text":"'$all'"}'
    echo '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"'$all'"}}}'
    echo '{"type":"assistant","message":{"id":"1","model":"m","content":[{"type":"text","text":"'$all'"}]}}'
    echo '{"type":"assistant","message":{"id":"2","model":"m","content":[{"type":"tool_use","id":"t","name":"n","input":{"'$token'":"'$all'"}}]}}'
    echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"'$all'"}]}}'
    echo '{"type":"result","is_error":false,"num_turns":1,"session_id":"s","result":"'$all'"}'
    ;;
  esac
done
"#;

/// The server with a tenant whose MCP server wants a token, and a model with an environment.
struct World {
    app: TestApp,
    _blabber: TempDir,
    canaries: Canaries,
    talk: Talk,
    echo: Echo,
    server: String,
    processes: Processes,
}

impl World {
    async fn new() -> Self {
        let canaries = Canaries::new();
        let blabber = TempDir::new().unwrap();
        let claude = blabber.path().join("claude");
        std::fs::write(&claude, BLABBER).unwrap();
        std::fs::set_permissions(&claude, Permissions::from_mode(0o755)).unwrap();
        let app = TestApp::new(PROGRAM)
            .env("SHIKIRI_CLAUDE_BIN", claude.display())
            // Nobody listens there.
            .env("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
            .env("SHIKIRI_LOG", "trace")
            .env("SHIKIRI_LOCK_WAIT_SECONDS", "0.2")
            .env("ANTHROPIC_API_KEY", &canaries.server_env)
            .start()
            .await;
        let processes = Processes::watch(&canaries);
        for (id, engine) in [("secretive", "offline"), ("blabbing", "claude-code")] {
            let env = json!({ "ANTHROPIC_AUTH_TOKEN": canaries.model_env });
            let model = json!({ "id": id, "engine": engine, "env": env });
            canaries.in_answer("the model", &app.client().post("/v1/models", &model).await);
        }
        let tenant = app.tenant("user").await;
        let of_tenant = json!({ "model_id": "secretive" });
        app.client().patch("/v1/tenants/user", &of_tenant).await.expect(200);
        let echo = Echo::start().await;
        let server = json!({
            "name": "hub", "type": "http", "url": echo.url, "allow_private": true,
            "headers_template": { "Authorization": "Bearer ${github}" },
        });
        let made = tenant.client.post(&tenant.path("/mcp-servers"), &server).await.expect(201);
        let server = tenant.path(&format!("/mcp-servers/{}", made["id"].as_str().unwrap()));
        let talk = Talk::start(&tenant).await;
        Self { app, _blabber: blabber, canaries, talk, echo, server, processes }
    }

    fn body(&self, input: &str) -> Value {
        let mut body = Talk::body(&format!("{}\n{input}", self.canaries.plain));
        body["tokens"] = json!({ "github": self.canaries.token });
        body
    }

    async fn post(&self, body: &Value, headers: &[(&str, &str)]) -> Answer {
        let answer = self.talk.post(body, headers).await;
        self.canaries.in_answer(&format!("the answer to {headers:?}"), &answer);
        answer
    }

    async fn get(&self, client: &Client, path: &str) -> Answer {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        self.canaries.in_answer(path, &answer);
        answer
    }

    /// Every way to look at an execution.
    async fn look_everywhere(&self, execution: &str) {
        let tenant = &self.talk.tenant;
        let execution_path = tenant.path(&format!("/executions/{execution}"));
        let run_path = tenant.path(&format!("/runs/{execution}"));
        for place in [execution_path, run_path] {
            self.get(&tenant.client, &place).await;
            let events = self.get(&tenant.client, &format!("{place}/events")).await;
            assert!(!events.body.is_empty());
        }
        for part in ["tools", "usage"] {
            let path = tenant.path(&format!("/executions/{execution}/{part}"));
            self.get(&tenant.client, &path).await;
        }
        for path in ["", "/conversations", "/runs", "/mcp-servers", "/usage", "/keys"] {
            self.get(&tenant.client, &tenant.path(path)).await;
        }
        for path in ["", "/messages", "/executions"] {
            self.get(&tenant.client, &self.talk.path(path)).await;
        }
        self.get(&tenant.client, &self.server).await;
        for path in ["/v1/models", "/v1/models/secretive", "/v1/tenants"] {
            self.get(&self.app.client(), path).await;
        }
        for path in ["/openapi.json", "/docs", "/metrics", "/healthz", "/readyz"] {
            self.get(&self.app.client().without_key(), path).await;
        }
        self.look_over_mcp(execution).await;
    }

    async fn look_over_mcp(&self, execution: &str) {
        let mcp = McpClient::connect(&self.talk.tenant.client).await;
        for tool in ["run_status", "run_wait"] {
            let told = mcp.called(tool, json!({ "run_id": execution })).await;
            assert!(told.to_string().contains(execution), "{told}");
            self.canaries.look(tool, told.to_string().as_bytes());
        }
        for rest in ["", "/events"] {
            let uri = format!("shikiri://runs/{execution}{rest}");
            let read = mcp.result("resources/read", json!({ "uri": uri })).await.to_string();
            self.canaries.look(&uri, read.as_bytes());
        }
    }

    fn look_at_log(&self) {
        let log = self.app.log();
        assert!(log.contains("answered a request"), "the log is that of everything: {log}");
        self.canaries.look("the log", log.as_bytes());
    }

    /// Every byte of the data folder. What a model's record keeps for its engine is there by
    /// intent, and in that row alone.
    fn look_at_disk(&self) {
        let mut found_plain = false;
        let mut files = Vec::new();
        walk(&self.app.data_folder(), &mut files);
        for file in files {
            let bytes = std::fs::read(&file).unwrap();
            found_plain |= holds(&bytes, &self.canaries.plain);
            for secret in [&self.canaries.token, &self.canaries.server_env] {
                assert!(
                    !holds(&bytes, head(secret)),
                    "{secret} is in {}: {}",
                    file.display(),
                    show(&bytes, secret)
                );
            }
        }
        assert!(found_plain, "the search would not find what is there");
        let path = self.app.data_folder().join("state.db");
        let database = Database::open_reader(&path, &OpenOptions::default()).unwrap();
        assert_eq!(
            rows_with(&database, &self.canaries.model_env),
            ["model blabbing", "model secretive"]
        );
        assert!(rows_with(&database, &self.canaries.plain).len() > 2);
    }
}

/// What of the database holds a word: records by their name, and streams.
fn rows_with(database: &Database, word: &str) -> Vec<String> {
    let questions = [
        "SELECT kind || ' ' || id FROM records WHERE instr(doc, ?1) ORDER BY 1",
        "SELECT 'event ' || id FROM events WHERE instr(body, ?1)",
        "SELECT 'note ' || id FROM streams WHERE instr(coalesce(note, ''), ?1)",
        "SELECT 'fact ' || name FROM facts WHERE instr(value, ?1)",
    ];
    let ask = |question: &&str| {
        let mut statement = database.prepare(question).unwrap();
        let rows = statement.query_map([head(word)], |row| row.get::<_, String>(0)).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>()
    };
    questions.iter().flat_map(ask).collect()
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => walk(&entry.path(), files),
            kind if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

/// A server that repeats what it is sent, headers and all, in its refusals.
struct Echo {
    url: String,
    heard: Arc<std::sync::Mutex<String>>,
    task: tokio::task::JoinHandle<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let heard = Arc::<std::sync::Mutex<String>>::default();
        let ear = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = vec![0; 64 * 1024];
                let mut length = 0;
                while !holds(&request[..length], "initialize") {
                    match socket.read(&mut request[length..]).await {
                        Ok(0) | Err(_) => break,
                        Ok(read) => length += read,
                    }
                }
                let said = String::from_utf8_lossy(&request[..length]).into_owned();
                let message = format!("go away, you who sent {}", said.replace("\r\n", " "));
                let error = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -1, "message": message } });
                let body = error.to_string();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                     Connection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = socket.write_all(answer.as_bytes()).await;
                ear.lock().unwrap().push_str(&said);
            }
        });
        Self { url, heard, task }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Looks at every command line of this machine, again and again, until it is asked.
struct Processes {
    enough: Arc<AtomicBool>,
    thread: Option<JoinHandle<(Option<String>, bool)>>,
    /// Shows that the search finds what is there.
    decoy: Child,
}

impl Processes {
    fn watch(canaries: &Canaries) -> Self {
        let mut decoy = Command::new("sh");
        decoy.args(["-c", "read line", &canaries.plain]).stdin(Stdio::piped());
        let decoy = decoy.spawn().unwrap();
        let enough = Arc::new(AtomicBool::new(false));
        let (canaries, asked) = (canaries.clone(), Arc::clone(&enough));
        let thread = std::thread::spawn(move || {
            let (mut leak, mut saw_plain) = (None, false);
            while !asked.load(Ordering::Relaxed) {
                for line in command_lines() {
                    saw_plain |= holds(&line, &canaries.plain);
                    if canaries.secrets().iter().any(|secret| holds(&line, head(secret))) {
                        leak = Some(String::from_utf8_lossy(&line).replace('\0', " "));
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            (leak, saw_plain)
        });
        Self { enough, thread: Some(thread), decoy }
    }

    fn found_nothing(mut self) {
        self.enough.store(true, Ordering::Relaxed);
        let (leak, saw_plain) = self.thread.take().unwrap().join().unwrap();
        assert_eq!(leak, None, "a secret stands on a command line");
        assert!(saw_plain, "the search would not find what is there");
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        let _ = self.decoy.kill();
        let _ = self.decoy.wait();
    }
}

fn command_lines() -> Vec<Vec<u8>> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_in_secret_is_found_nowhere() {
    let mut world = World::new().await;
    // A whole turn, one that fails, one that is asked for twice, and one without its reader.
    let whole = world.post(&world.body("#offline events=3 tools=1 subagents=1"), &[]).await;
    let told = events(&whole.text());
    let done = terminal(&told).data["execution_id"].as_str().unwrap().to_owned();
    let failed = world.post(&world.body("#offline events=1 error=壊れた"), &[]).await;
    let told = events(&failed.text());
    assert_eq!(terminal(&told).data["code"], "SDK_ERROR", "{told:?}");
    let failed = terminal(&told).data["execution_id"].as_str().unwrap().to_owned();
    let twice = [("Idempotency-Key", "twice"), ("Prefer", "respond-async")];
    let running = world.post(&world.body("#offline hang=1"), &twice).await.expect(202);
    let running = running["id"].as_str().unwrap().to_owned();
    assert_eq!(world.post(&world.body("#offline hang=1"), &twice).await.expect(202)["id"], running);
    world.look_at_disk();
    refusals(&world).await;
    world.canaries.in_answer("a cancel", &world.talk.cancel(&running).await);
    world.talk.follow(&running, 0).await;
    for execution in [&done, &failed, &running] {
        world.look_everywhere(execution).await;
    }
    a_cli_that_tells_all(&world).await;
    trying_a_server(&world).await;
    look_at_terminal(&world, &done);

    // In the middle of a turn the process is gone: its write-ahead log is all there is.
    world.post(&world.body("#offline hang=1"), &[("Prefer", "respond-async")]).await.expect(202);
    world.app.kill9();
    world.look_at_disk();
    world.app.restart().await;
    assert_eq!(world.app.terminate().await.0, 0);
    assert!(!world.app.data_folder().join("state.db-wal").exists(), "the log is taken up");
    world.look_at_disk();
    world.look_at_log();
    world.processes.found_nothing();
}

/// Whatever is wrong with a request, its answer does not repeat what is secret in it.
async fn refusals(world: &World) {
    let Canaries { token, .. } = &world.canaries;
    let other = |tokens: Value| {
        let mut body = world.body("やあ");
        body["tokens"] = tokens;
        body
    };
    let missing = world.post(&other(json!({ "gitlab": token })), &[]).await;
    assert_eq!(missing.problem(400)["code"], "MISSING_TOKEN");
    for wrong in [
        json!({ "github": format!("{token}\r\nX-Evil: 1") }),
        json!({ "github": format!("{token}{}", "x".repeat(20_000)) }),
        json!({ "github": [token] }),
        json!({ "github": { "value": token } }),
        json!(token),
        json!([token]),
    ] {
        let refused = world.post(&other(wrong), &[]).await;
        assert_eq!(refused.problem(400)["code"], "INVALID_REQUEST");
    }
    let mut unknown = world.body("やあ");
    unknown["token"] = json!(token);
    world.post(&unknown, &[]).await.problem(400);
    let mut nowhere = world.body("やあ");
    nowhere["model_id"] = json!("none");
    world.post(&nowhere, &[]).await.problem(404);
    let mut unskilled = world.body("やあ");
    unskilled["preferred_skills"] = json!(["none"]);
    world.post(&unskilled, &[]).await.problem(400);
    let model_env = &world.canaries.model_env;
    for env in
        [json!(model_env), json!({ "A": [model_env] }), json!({ "A": format!("{model_env}\0") })]
    {
        let model = json!({ "id": "wrong", "engine": "offline", "env": env });
        let refused = world.app.client().post("/v1/models", &model).await;
        world.canaries.in_answer("a refused model", &refused);
        refused.problem(400);
    }
    let status = async |status: &str| {
        let change = json!({ "status": status });
        world.app.client().patch("/v1/tenants/user", &change).await.expect(200);
    };
    status("inactive").await;
    let mut admin = world.talk.clone();
    admin.tenant.client = world.app.client();
    let inactive = admin.post(&world.body("やあ"), &[]).await;
    world.canaries.in_answer("an inactive tenant", &inactive);
    assert_eq!(inactive.problem(403)["code"], "TENANT_INACTIVE");
    status("active").await;
    let locked = world.post(&world.body("やあ"), &[]).await;
    assert_eq!(locked.problem(409)["code"], "CONVERSATION_LOCKED");
}

/// What an engine's program says goes on to readers, without what it should have kept to itself.
async fn a_cli_that_tells_all(world: &World) {
    let talk = Talk::start(&world.talk.tenant).await;
    let mut body = world.body("やあ");
    body["model_id"] = json!("blabbing");
    let answer = talk.post(&body, &[]).await;
    let told = events(&answer.text());
    let end = &terminal(&told).data;
    assert_eq!(end["result"], "[REDACTED] [REDACTED] [REDACTED]", "{}", answer.text());
    world.canaries.in_answer("what a CLI told", &answer);
    let path = talk.path("/messages");
    world.get(&talk.tenant.client, &path).await;
    world.look_everywhere(end["execution_id"].as_str().unwrap()).await;
    world.look_at_disk();
}

/// The server that the token is for gets it; what it makes of it is not repeated.
async fn trying_a_server(world: &World) {
    let client = &world.talk.tenant.client;
    let check = format!("{}/check", world.server);
    let with = json!({ "tokens": { "github": world.canaries.token } });
    let tried = client.post(&check, &with).await;
    world.canaries.in_answer("a check", &tried);
    assert!(tried.expect(200)["detail"].as_str().unwrap().contains("go away"), "{}", tried.text());
    let heard = || world.echo.heard.lock().unwrap().clone();
    wait_until("the token arrived", PATIENCE, async || heard().contains(&world.canaries.token))
        .await;
    for wrong in [json!({}), json!({ "github": "a\nb" }), json!(world.canaries.token)] {
        let refused = client.post(&check, &json!({ "tokens": wrong })).await;
        world.canaries.in_answer("a refused check", &refused);
        refused.problem(400);
    }
}

fn look_at_terminal(world: &World, execution: &str) {
    let cli = world.app.cli();
    for args in [
        &["models", "show", "secretive", "--json"][..],
        &["models", "list"],
        &["executions", "show", execution, "--tenant", "user", "--json"],
        &["runs", "show", execution, "--tenant", "user", "--json"],
        &["doctor"],
    ] {
        let ended = cli.run(args);
        world.canaries.look(&args.join(" "), ended.stdout.as_bytes());
        world.canaries.look(&args.join(" "), ended.stderr.as_bytes());
        assert_ne!(ended.code, 2, "{args:?}: {}", ended.stderr);
    }
}
