//! A server that was given secrets of every kind, and all the places where they must not be.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use shikiri_testkit::{Answer, Client, McpClient, TestApp, script};
use tempfile::TempDir;

use super::super::kit::Talk;
use super::canaries::{Canaries, head, holds, show};
use super::echo::Echo;
use super::processes::Processes;
use crate::PROGRAM;

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
    echo '{"type":"assistant","message":{"id":"2","model":"m","content":[{"type":"tool_use","id":"t","name":"'$token'","input":{"'$token'":"'$all'"}}]}}'
    echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"'$all'"}]}}'
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
        let canaries = Canaries::new();
        let blabber = TempDir::new().unwrap();
        let claude = blabber.path().join("claude");
        script(&claude, BLABBER);
        let app = TestApp::new(PROGRAM)
            .env("SHIKIRI_CLAUDE_BIN", claude.display())
            // No process listens there.
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

    /// Every byte of the data folder. What a model's record keeps for its engine is there by
    /// intent, and in that row alone.
    pub(super) fn look_at_disk(&self) {
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
