//! The process: its output is stored message by message, and its whole group ends with it.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use crate::kept::Kept;
use crate::process::code;

/// Messages that a failed test shows.
const SHOWN_MESSAGES: usize = 30;

/// How a run ended, and everything that it printed.
#[derive(Clone, Debug)]
pub struct ClaudeEnded {
    /// The exit code, or the negated signal.
    pub code: i32,
    pub messages: Vec<Value>,
    pub stderr: String,
}

/// A process in a group of its own, which is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    /// None once it was killed, because its id may then belong to another process.
    group: Option<Pid>,
    /// Messages in the order of arrival; a line that is no JSON is kept as a string.
    pub(super) messages: Arc<Kept<Value>>,
    stderr: Arc<Kept<String>>,
    readers: Vec<JoinHandle<()>>,
    pub(super) patience: Duration,
}

impl Running {
    pub(super) fn start(mut command: Command, patience: Duration) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let (messages, stderr) = (Arc::new(Kept::new()), Arc::new(Kept::new()));
        let message = |line: String| serde_json::from_str(&line).unwrap_or(Value::String(line));
        let readers = vec![
            keep(child.stdout.take().expect("piped"), &messages, message),
            keep(child.stderr.take().expect("piped"), &stderr, std::convert::identity),
        ];
        // It leads its group, so the group has its id.
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let group = pid.and_then(Pid::from_raw);
        Self { child, group, messages, stderr, readers, patience }
    }

    pub(super) fn take_stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("piped, and taken once")
    }

    /// Waits for its end; fails the test if it does not end in time.
    pub(super) async fn end(mut self) -> ClaudeEnded {
        let Ok(ended) = tokio::time::timeout(self.patience, self.child.wait()).await else {
            panic!("claude did not end within {:?}", self.patience);
        };
        // Children that it left behind still hold the pipes.
        self.kill_group();
        for reader in self.readers.drain(..) {
            let _ = reader.await;
        }
        let code = code(ended.expect("a child's status"));
        ClaudeEnded { code, messages: self.messages.all(), stderr: self.stderr() }
    }

    fn stderr(&self) -> String {
        self.stderr.all().join("\n")
    }

    fn kill_group(&mut self) {
        if let Some(group) = self.group.take() {
            // A group that has ended takes no signal, and needs none.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill_group();
        if std::thread::panicking() {
            let messages = self.messages.all();
            let shown = &messages[messages.len().saturating_sub(SHOWN_MESSAGES)..];
            let shown = shown.iter().map(|message| format!("{message}\n")).collect::<String>();
            eprintln!("--- claude printed last:\n{shown}--- and on stderr:\n{}", self.stderr());
        }
    }
}

impl ClaudeEnded {
    /// The last result.
    #[track_caller]
    pub fn result(&self) -> &Value {
        let result = self.messages.iter().rfind(|message| message["type"] == "result");
        result.unwrap_or_else(|| panic!("no result: {self:#?}"))
    }

    /// The final text of a successful run.
    #[track_caller]
    pub fn text(&self) -> &str {
        let result = self.result();
        assert!(self.code == 0 && result["is_error"] == false, "{self:#?}");
        result["result"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
    }
}

fn keep<T: Clone + Send + 'static>(
    output: impl AsyncRead + Unpin + Send + 'static,
    kept: &Arc<Kept<T>>,
    read: impl Fn(String) -> T + Send + 'static,
) -> JoinHandle<()> {
    let kept = Arc::clone(kept);
    tokio::spawn(async move {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            kept.push(read(line));
        }
        kept.close();
    })
}
