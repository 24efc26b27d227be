//! A server whose Claude Code is a script that runs its prompt in bash, as the Bash tool of the real
//! one would.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use shikiri_testkit::{TestApp, script, unprivileged};
use tempfile::TempDir;

use super::super::kit::{Talk, events, terminal};
use crate::PROGRAM;

/// The prompt holds the commands in base64, and so does the result what they wrote.
const RUNS_ITS_PROMPT: &str = r#"#!/bin/bash
if [ "$1" = --version ]; then echo '2.1.325 (Claude Code)'; exit; fi
while read -r line; do
  case "$line" in
  *'"initialize"'*)
    echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize"}}'
    ;;
  *)
    echo '{"type":"system","subtype":"init","session_id":"s","model":"m"}'
    commands=$(grep -o 'RUN:[A-Za-z0-9+/=]*' <<< "$line" | head -n 1 | cut -c5- | base64 -d)
    told=$(bash -c "$commands" 2>&1 < /dev/null | head -c 200000 | base64 -w 0)
    echo '{"type":"result","is_error":false,"num_turns":1,"session_id":"s","result":"'$told'"}'
    ;;
  esac
done
"#;

/// Who runs the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerUser {
    /// Who runs the tests.
    Same,
    Unprivileged((u32, u32)),
}

impl ServerUser {
    /// Both, if the tests are run by root.
    pub(super) fn all() -> Vec<Self> {
        [Some(Self::Same), unprivileged().map(Self::Unprivileged)].into_iter().flatten().collect()
    }

    fn ids(self) -> Option<(u32, u32)> {
        match self {
            Self::Same => None,
            Self::Unprivileged(ids) => Some(ids),
        }
    }
}

pub(super) struct World {
    pub(super) app: TestApp,
    /// Of a tenant that is not `local`.
    pub(super) talk: Talk,
    /// Where the script lies.
    pub(super) _tools: TempDir,
}

impl World {
    pub(super) async fn start(user: ServerUser) -> Self {
        Self::start_with(user, &[], &[]).await
    }

    pub(super) async fn start_with(user: ServerUser, env: &[(&str, &str)], args: &[&str]) -> Self {
        let tools = tool_folder();
        let program = match user {
            ServerUser::Same => PathBuf::from(PROGRAM),
            ServerUser::Unprivileged(_) => open_program(&tools),
        };
        let app = TestApp::new(program).user(user.ids());
        Self::start_on(app, tools, env, args).await
    }

    /// A server that this shell command starts: `$@` is the program with its arguments.
    pub(super) async fn start_by(launcher: &str, args: &[&str]) -> Self {
        let tools = tool_folder();
        let program = tools.path().join("launcher");
        let own = open_program(&tools);
        let words = format!("#!/bin/sh\nset -- {} \"$@\"\n{launcher}\n", own.display());
        script(&program, &words);
        Self::start_on(TestApp::new(program), tools, &[], args).await
    }

    async fn start_on(
        app: shikiri_testkit::Builder,
        tools: TempDir,
        env: &[(&str, &str)],
        args: &[&str],
    ) -> Self {
        let claude = tools.path().join("claude");
        script(&claude, RUNS_ITS_PROMPT);
        let app = app.env("SHIKIRI_CLAUDE_BIN", claude.display());
        let app = env.iter().fold(app, |app, (name, value)| app.env(name, value));
        let app = args.iter().fold(app, |app, arg| app.arg(arg)).start().await;
        Self::on(app, tools).await
    }

    async fn on(app: TestApp, tools: TempDir) -> Self {
        let model = json!({ "id": "cli", "engine": "claude-code" });
        app.client().post("/v1/models", &model).await.expect(201);
        let tenant = app.tenant("acme").await;
        for id in ["acme", "local"] {
            let change = json!({ "model_id": "cli" });
            app.client().patch(&format!("/v1/tenants/{id}"), &change).await.expect(200);
        }
        let talk = Talk::start(&tenant).await;
        Self { app, talk, _tools: tools }
    }

    /// What these commands wrote, run by the engine in a turn of the conversation.
    pub(super) async fn bash(&self, commands: &str) -> String {
        let end = self.turn(commands).await;
        decode(end["result"].as_str().unwrap_or_else(|| panic!("no result: {end}")))
    }

    /// The last event of such a turn.
    pub(super) async fn turn(&self, commands: &str) -> Value {
        let answer = self.talk.post(&Talk::body(&prompt(commands)), &[]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let told = events(&answer.text());
        terminal(&told).data.clone()
    }

    pub(super) fn data(&self) -> PathBuf {
        self.app.data_folder()
    }

    pub(super) fn pid(&mut self) -> u32 {
        self.app.server().pid()
    }
}

/// The program where other users can start it: the build folder may lie in a closed home.
fn open_program(tools: &TempDir) -> PathBuf {
    let program = tools.path().join("shikiri");
    if std::fs::hard_link(PROGRAM, &program).is_err() {
        std::fs::copy(PROGRAM, &program).unwrap();
    }
    program
}

/// One that other users can look into.
fn tool_folder() -> TempDir {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    tempfile::Builder::new().permissions(open).tempdir().unwrap()
}

pub(super) fn prompt(commands: &str) -> String {
    format!("RUN:{}", coded(&[], commands))
}

pub(super) fn decode(text: &str) -> String {
    coded(&["-d"], text)
}

fn coded(options: &[&str], text: &str) -> String {
    use std::io::Write as _;
    let mut command = Command::new("base64");
    command.args(["-w", "0"]).args(options).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
