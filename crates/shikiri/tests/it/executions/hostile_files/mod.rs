//! What an agent leaves in its folders is never followed, waited for or held in memory: the real
//! program, with a CLI that runs its prompt in bash as the Bash tool of Claude Code would.

mod folders;
mod session_files;
mod transcripts;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use shikiri_testkit::{TestApp, script};
use tempfile::TempDir;

use super::kit::{Event, Talk, events, terminal};
use crate::PROGRAM;

/// Longer than a busy machine needs, shorter than a pipe lasts.
const PATIENCE: Duration = Duration::from_secs(240);
/// Its session is always `s1`, kept below the project `p`. A prompt holds neither `"` nor `\`.
const SHELL_CLI: &str = r#"#!/bin/bash
if [ "$1" = --version ]; then echo '2.1.325 (Claude Code)'; exit; fi
while read -r line; do
  case "$line" in
  *'"subtype":"initialize"'*)
    echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize"}}'
    ;;
  *'"type":"user"'*)
    prompt=$(printf '%s' "$line" | sed 's/.*"content":"\([^"]*\)".*/\1/')
    project="$CLAUDE_CONFIG_DIR/projects/p"
    session="$project/s1.jsonl"
    subagents="$project/s1/subagents"
    mkdir -p "$subagents" 2>/dev/null
    export project session subagents
    echo '{"type":"system","subtype":"init","session_id":"s1","model":"m"}'
    said=$(bash -c "$prompt" 2>&1 | tr -d '"\\' | tr '\n' ' ' | head -c 2000)
    case "$prompt" in *FAIL*) exit 1 ;; esac
    echo '{"type":"result","is_error":false,"num_turns":1,"session_id":"s1","result":"'"$said"'"}'
    echo '{"type":"system","subtype":"session_state_changed","state":"idle"}'
    ;;
  esac
done
"#;

/// A server whose engine is that CLI, a conversation, and a folder that is none of the agent's.
struct HostileWorld {
    app: TestApp,
    talk: Talk,
    outside: TempDir,
    _program: TempDir,
}

impl HostileWorld {
    async fn start(workspace_enabled: bool) -> Self {
        let program = TempDir::new().unwrap();
        let claude = program.path().join("claude");
        script(&claude, SHELL_CLI);
        let app = TestApp::new(PROGRAM).env("SHIKIRI_CLAUDE_BIN", claude.display()).start().await;
        let model = json!({ "id": "shell", "engine": "claude-code" });
        app.client().post("/v1/models", &model).await.expect(201);
        let patch = json!({ "model_id": "shell", "workspace_enabled": workspace_enabled });
        app.client().patch("/v1/tenants/local", &patch).await.expect(200);
        let talk = Talk::start(&app.local()).await;
        Self { app, talk, outside: TempDir::new().unwrap(), _program: program }
    }

    /// A turn that must end well; what the commands printed.
    async fn run(&self, commands: &str) -> String {
        let told = self.turn(commands).await;
        let end = terminal(&told);
        assert_eq!(end.kind, "result", "{commands}: {}", end.data);
        end.data["result"].as_str().unwrap_or_default().to_owned()
    }

    async fn turn(&self, commands: &str) -> Vec<Event> {
        assert!(!commands.contains(['"', '\\', '\n']), "the CLI could not read {commands}");
        let body = Talk::body(commands);
        let asked = tokio::time::timeout(PATIENCE, self.talk.post(&body, &[])).await;
        let answer = asked.unwrap_or_else(|_| panic!("the turn did not end: {commands}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        events(&answer.text())
    }

    fn home(&self) -> PathBuf {
        self.app.data_folder().join("engines").join(&self.talk.id)
    }

    /// A file that the agent may not touch, with this content.
    fn victim(&self, content: &str) -> PathBuf {
        let path = self.outside.path().join("victim");
        std::fs::write(&path, content).unwrap();
        path
    }

    fn victim_content(&self) -> String {
        std::fs::read_to_string(self.outside.path().join("victim")).unwrap()
    }

    /// The session files that the store keeps of this conversation, as JSON.
    fn stored_session(&self) -> Option<Value> {
        let path = self.app.data_folder().join("state.db");
        let database = SqliteDatabase::open_reader(&path, &DatabaseOptions::default()).unwrap();
        let mut rows = database
            .prepare("SELECT doc FROM records WHERE kind = 'session_files' AND id = ?1")
            .unwrap();
        let mut docs = rows.query_map([&self.talk.id], |row| row.get::<_, String>(0)).unwrap();
        docs.next().map(|doc| serde_json::from_str(&doc.unwrap()).unwrap())
    }

    /// The server answers, on its blocking threads too.
    async fn assert_alive(&self) {
        for path in ["/readyz".to_owned(), self.talk.path("/files")] {
            let asked = self.app.client();
            let answer = tokio::time::timeout(PATIENCE, asked.get(&path)).await;
            let answer = answer.unwrap_or_else(|_| panic!("no answer to {path}"));
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        }
    }

    async fn delete_conversation(&self) {
        let path = self.talk.path("");
        let client = self.app.client();
        let deleted = tokio::time::timeout(PATIENCE, client.delete(&path)).await;
        deleted.expect("the conversation is deleted").expect(204);
        assert!(!self.home().exists());
        for root in ["engines", "workspaces"] {
            let trash = self.app.data_folder().join(root).join(".trash");
            let left = std::fs::read_dir(trash).into_iter().flatten().count();
            assert_eq!(left, 0, "in the trash of {root}");
        }
    }

    /// The most memory that the server ever had, in bytes.
    fn peak_memory(&mut self) -> usize {
        let status = format!("/proc/{}/status", self.app.server().pid());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
        eprintln!("the server's memory was at most {} MiB", kilobytes / 1024);
        kilobytes * 1024
    }
}
