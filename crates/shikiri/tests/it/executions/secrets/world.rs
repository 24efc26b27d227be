//! A server that was given secrets of every kind, and all the places where they must not be.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use shikiri_testkit::{Answer, Builder, Client, McpClient, TestApp, script, until};
use tempfile::TempDir;

use super::super::kit::Talk;
use super::canaries::{Canaries, head, holds, show};
use super::echo::Echo;
use super::processes::Processes;
use crate::PROGRAM;

/// In the place of Claude Code: it tells all that it was given, on every way that it has, and what
/// its MCP server answers. It keeps that in its session's file. As the model `silent` it hangs before
/// it has read anything.
const BLABBER: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo '2.1.325 (Claude Code)'; exit; fi
case "$*" in *--model=silent*) while read -r line; do :; done; exit ;; esac
while [ $# -gt 0 ]; do
  if [ "$1" = --mcp-config ]; then
    token=$(grep -o 'token-[0-9a-f]*' "$2")
    url=$(grep -o 'http://127[^"]*' "$2" | head -n 1)
    key=$(grep -o 'Bearer [^"]*' "$2" | head -n 1)
    said=$(curl -s -H "Authorization: $key" --data '{"jsonrpc":"2.0","id":1,"method":"ping"}' "$url" | tr -d '"{}\\')
  fi
  shift
done
all="$token $ANTHROPIC_API_KEY $ANTHROPIC_AUTH_TOKEN"
mkdir -p "$CLAUDE_CONFIG_DIR/projects/p"
echo "{\"all\":\"$all\",\"said\":\"$said\"}" > "$CLAUDE_CONFIG_DIR/projects/p/s.jsonl"
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
    echo '{"type":"assistant","message":{"id":"2","model":"m","content":[{"type":"tool_use","id":"t","name":"'$token'","input":{"'$token'":"'$all'"}}]}}'
    echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"'"$all $said"'"}]}}'
    echo '{"type":"result","is_error":false,"num_turns":1,"session_id":"s","result":"'$all'"}'
    ;;
  esac
done
"#;

/// The server with a tenant whose MCP server wants a token, and a model with an environment.
pub(super) struct World {
    pub(super) app: TestApp,
    _blabber: TempDir,
    pub(super) canaries: Canaries,
    pub(super) talk: Talk,
    pub(super) echo: Echo,
    pub(super) server: String,
    pub(super) processes: Processes,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::on(TestApp::new(PROGRAM)).await
    }

    pub(super) async fn on(app: Builder) -> Self {
        let canaries = Canaries::new();
        let blabber = TempDir::new().unwrap();
        let claude = blabber.path().join("claude");
        script(&claude, BLABBER);
        let app = app
            .env("SHIKIRI_CLAUDE_BIN", claude.display())
            // No process listens there.
            .env("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
            .env("SHIKIRI_LOG", "trace")
            .env("SHIKIRI_LOCK_WAIT_SECONDS", "0.2")
            .env("ANTHROPIC_API_KEY", &canaries.server_env)
            .start()
            .await;
        let processes = Processes::watch(&canaries);
        for (id, engine) in
            [("secretive", "offline"), ("blabbing", "claude-code"), ("silent", "claude-code")]
        {
            let env = json!({ "ANTHROPIC_AUTH_TOKEN": canaries.model_env });
            let model = json!({ "id": id, "engine": engine, "model_name": id, "env": env });
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
        let made = app.client().post(&tenant.path("/mcp-servers"), &server).await.expect(201);
        let server = tenant.path(&format!("/mcp-servers/{}", made["id"].as_str().unwrap()));
        let talk = Talk::start(&tenant).await;
        Self { app, _blabber: blabber, canaries, talk, echo, server, processes }
    }

    pub(super) fn body(&self, input: &str) -> Value {
        let mut body = Talk::body(&format!("{}\n{input}", self.canaries.plain));
        body["tokens"] = json!({ "github": self.canaries.token });
        body
    }

    pub(super) async fn post(&self, body: &Value, headers: &[(&str, &str)]) -> Answer {
        let answer = self.talk.post(body, headers).await;
        self.canaries.in_answer(&format!("the answer to {headers:?}"), &answer);
        answer
    }

    pub(super) async fn get(&self, client: &Client, path: &str) -> Answer {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        self.canaries.in_answer(path, &answer);
        answer
    }

    /// Every way to look at an execution.
    pub(super) async fn look_everywhere(&self, execution: &str) {
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

    pub(super) fn look_at_log(&self) {
        let log = self.app.log();
        assert!(log.contains("answered a request"), "the log is that of everything: {log}");
        self.canaries.look("the log", log.as_bytes());
    }

    /// Begins a turn with a CLI that hangs, and waits until all its files are written.
    pub(super) async fn hang(&self) -> (Talk, String) {
        let talk = Talk::start(&self.talk.tenant).await;
        let mut body = self.body("やあ");
        body["model_id"] = json!("silent");
        let begun = talk.post(&body, &[("Prefer", "respond-async")]).await.expect(202);
        let id = begun["id"].as_str().unwrap().to_owned();
        let home = self.app.data_folder().join("engines").join(&talk.id);
        let is_servers_file = |file: &PathBuf| {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("servers-") && name.ends_with(".json")
        };
        until("the CLI has its servers", async || {
            let mut files = Vec::new();
            walk(&home, &mut files);
            files.iter().any(is_servers_file)
        })
        .await;
        (talk, id)
    }

    /// Everything that is stored in PostgreSQL.
    pub(super) async fn rows_of_postgres(&self) -> String {
        self.app.database().expect("a server on PostgreSQL").text_of_all_rows().await
    }

    /// Every file of the data folder.
    pub(super) fn look_at_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        walk(&self.app.data_folder(), &mut files);
        for file in &files {
            // A file may be removed at any time.
            let bytes = std::fs::read(file).unwrap_or_default();
            for secret in [&self.canaries.token, &self.canaries.server_env] {
                assert!(
                    !holds(&bytes, head(secret)),
                    "{secret} is in {}: {}",
                    file.display(),
                    show(&bytes, secret)
                );
            }
        }
        files
    }

    /// Every byte of the data folder. What a model's record keeps for its engine is there by
    /// intent, and in that row alone.
    pub(super) fn look_at_disk(&self) {
        let files = self.look_at_files();
        let has_plain =
            |file: &PathBuf| holds(&std::fs::read(file).unwrap_or_default(), &self.canaries.plain);
        assert!(files.iter().any(has_plain), "the search would not find what is there");
        let path = self.app.data_folder().join("state.db");
        let database = SqliteDatabase::open_reader(&path, &DatabaseOptions::default()).unwrap();
        // Models hold it sealed.
        assert_eq!(rows_with(&database, &self.canaries.model_env), Vec::<String>::new());
        assert!(rows_with(&database, &self.canaries.plain).len() > 2);
    }
}

/// What of the database holds a word: records by their name, and streams.
fn rows_with(database: &SqliteDatabase, word: &str) -> Vec<String> {
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

/// Entries may come and go meanwhile.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}
