//! The real Claude Code in isolation: its own home and project folder, nothing of the caller's
//! environment, and a fake model as its only API.
//!
//! `print` runs one prompt to its end. `host` acts as the program around it (an editor, the Agent
//! SDK), which is asked for permissions and for user input that MCP servers request.

mod host;
#[cfg(test)]
mod mcp_server;
mod process;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::process::Command;

pub use host::{ClaudeHost, ControlRequest};
pub use process::ClaudeEnded;

use crate::fake_model::FakeModel;
use crate::peers::peer;
use process::Running;

/// One run takes two or three seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Disables update checks, telemetry and model calls of its own.
const OFFLINE: [(&str, &str); 5] = [
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    ("DISABLE_NON_ESSENTIAL_MODEL_CALLS", "1"),
    ("DISABLE_TELEMETRY", "1"),
];

/// The newest version and the oldest supported one, as far as they are installed.
pub fn claude_programs() -> Vec<PathBuf> {
    ["SHIKIRI_PEER_CLAUDE", "SHIKIRI_PEER_CLAUDE_OLD"].into_iter().filter_map(peer).collect()
}

/// How to run it. Runs of one `ClaudeCli` share their home and project, so that they can resume
/// each other. The folders are removed when it is dropped, unless a test has failed.
#[derive(Debug)]
pub struct ClaudeCli {
    program: PathBuf,
    api: String,
    folder: Option<TempDir>,
    servers: Map<String, Value>,
    allowed: Vec<String>,
    env: Vec<(String, String)>,
    args: Vec<String>,
    patience: Duration,
}

impl ClaudeCli {
    /// `program` is the path of `claude`.
    pub fn new(program: impl AsRef<Path>, model: &FakeModel) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        for name in ["home", "project", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder in it");
        }
        Self {
            program: program.as_ref().to_owned(),
            api: model.url(),
            folder: Some(folder),
            servers: Map::new(),
            allowed: Vec::new(),
            env: Vec::new(),
            args: Vec::new(),
            patience: PATIENCE,
        }
    }

    /// With an MCP server over Streamable HTTP, whose tools it may all call.
    #[must_use]
    pub fn mcp_http(self, name: &str, url: &str, headers: &[(&str, &str)]) -> Self {
        let headers: Map<_, _> = headers.iter().map(|(n, v)| (n.to_string(), json!(v))).collect();
        self.mcp(name, json!({ "type": "http", "url": url, "headers": headers }))
    }

    /// With an MCP server that it starts itself, whose tools it may all call.
    #[must_use]
    pub fn mcp_stdio(self, name: &str, program: &str, args: &[&str]) -> Self {
        self.mcp(name, json!({ "type": "stdio", "command": program, "args": args }))
    }

    fn mcp(mut self, name: &str, server: Value) -> Self {
        self.servers.insert(name.to_owned(), server);
        self.allow(&format!("mcp__{name}"))
    }

    /// Allows a tool without asking, or a rule such as `Bash(ls:*)`.
    #[must_use]
    pub fn allow(mut self, tool: &str) -> Self {
        self.allowed.push(tool.to_owned());
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.env.push((name.to_owned(), value.to_string()));
        self
    }

    #[must_use]
    pub fn arg(mut self, arg: impl ToString) -> Self {
        self.args.push(arg.to_string());
        self
    }

    /// The time limit of a run, and of a wait for one of its messages.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Its working folder.
    pub fn project(&self) -> PathBuf {
        self.subfolder("project")
    }

    /// Where it keeps its transcripts: `.claude/projects`.
    pub fn home(&self) -> PathBuf {
        self.subfolder("home")
    }

    fn subfolder(&self, name: &str) -> PathBuf {
        self.folder.as_ref().expect("kept until dropped").path().join(name)
    }

    /// Runs one prompt to its end, without a host that answers questions.
    pub async fn print(&self, prompt: &str) -> ClaudeEnded {
        let mut command = self.command();
        command.args(["-p", prompt]).stdin(std::process::Stdio::null());
        Running::start(command, self.patience).end().await
    }

    /// Starts it as part of another program, which is the test.
    pub async fn host(&self) -> ClaudeHost {
        let mut command = self.command();
        command.args(["--input-format", "stream-json", "--permission-prompt-tool=stdio"]);
        command.stdin(std::process::Stdio::piped());
        ClaudeHost::start(Running::start(command, self.patience)).await
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(self.project()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home()).env("TMPDIR", self.subfolder("tmp"));
        command.envs([("LANG", "C.UTF-8"), ("SHELL", "/bin/sh"), ("TERM", "dumb")]);
        // Some modes are refused to root outside a sandbox.
        command.env("IS_SANDBOX", "1");
        command.env("ANTHROPIC_BASE_URL", &self.api).env("ANTHROPIC_API_KEY", "sk-ant-fake");
        command.envs(OFFLINE).envs(self.env.iter().map(|(name, value)| (name, value)));

        let servers = json!({ "mcpServers": self.servers }).to_string();
        command.args(["--output-format", "stream-json", "--verbose"]);
        command.args(["--strict-mcp-config", "--mcp-config", &servers]);
        if !self.allowed.is_empty() {
            // One argument: a list of several would swallow the arguments after it.
            command.arg(format!("--allowedTools={}", self.allowed.join(",")));
        }
        command.args(&self.args);
        command
    }
}

impl Drop for ClaudeCli {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take()
            && std::thread::panicking()
        {
            eprintln!("--- the home and project of claude are kept: {}", folder.keep().display());
        }
    }
}
