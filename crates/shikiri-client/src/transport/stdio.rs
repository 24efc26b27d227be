//! A server as a local program: one message per line on its input and output.

use std::collections::{BTreeMap, VecDeque};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use shikiri_model::host::sanitize_line;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::MAX_MESSAGE;
use crate::error::ClientError;

/// The variables that a server's program inherits: paths and locale, but no secrets.
const INHERITED: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "NODE_EXTRA_CA_CERTS",
];
/// The number of lines of its error output that are kept for an error text.
const MAX_LAST_LINES: usize = 5;
/// How long it may take to exit after its input is closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may take to read a message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// How often the program is checked for its exit.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long to wait, after its exit, for its last output.
const LAST_LINES_TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) struct StdioTransport {
    input: AsyncMutex<Option<ChildStdin>>,
    child: AsyncMutex<Child>,
    /// Its process id, which is also its group's.
    pid: Option<rustix::process::Pid>,
    last_lines: Arc<Mutex<VecDeque<String>>>,
    /// Cancelled when its error output ends.
    is_silent: CancellationToken,
}

pub(crate) struct ServerProgram<'a> {
    pub(crate) command: &'a str,
    pub(crate) args: &'a [String],
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) cwd: Option<&'a str>,
}

impl StdioTransport {
    pub(crate) fn start(
        program: &ServerProgram<'_>,
    ) -> Result<(Self, BoundedLines<BufReader<ChildStdout>>), ClientError> {
        let mut command = Command::new(program.command);
        command.args(program.args).env_clear();
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(program.env);
        if let Some(folder) = program.cwd {
            command.current_dir(folder);
        }
        // Its own process group: Ctrl-C at our terminal does not reach it, and its children end
        // with it.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let program = sanitize_line(program.command);
            ClientError::Unreachable(format!("{program} could not be started: {error}"))
        })?;
        let last_lines = Arc::new(Mutex::new(VecDeque::new()));
        let is_silent = CancellationToken::new();
        if let Some(errors) = child.stderr.take() {
            let over = is_silent.clone().drop_guard();
            tokio::spawn(listen(errors, Arc::clone(&last_lines), over));
        }
        let output = child.stdout.take();
        let output =
            output.ok_or_else(|| ClientError::Unreachable("it has no output".to_owned()))?;
        let input = AsyncMutex::new(child.stdin.take());
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        let link = Self { input, child: AsyncMutex::new(child), pid, last_lines, is_silent };
        Ok((link, BoundedLines::new(BufReader::new(output))))
    }

    pub(crate) async fn send(&self, message: &Value) -> Result<(), ClientError> {
        let mut line =
            serde_json::to_vec(message).map_err(|error| ClientError::Garbled(error.to_string()))?;
        line.push(b'\n');
        let mut input = self.input.lock().await;
        // Put back when the line is written. A caller dropped before that may leave half a line,
        // and nothing can be sent after it.
        let Some(mut pipe) = input.take() else {
            return Err(ClientError::Unreachable(self.exit_reason().await));
        };
        let written = async {
            pipe.write_all(&line).await?;
            pipe.flush().await
        };
        match tokio::time::timeout(WRITE_TIMEOUT, written).await {
            Ok(Ok(())) => {
                *input = Some(pipe);
                Ok(())
            }
            Ok(Err(_)) => Err(ClientError::Unreachable(self.exit_reason().await)),
            Err(_) => Err(ClientError::Slow(WRITE_TIMEOUT.as_secs())),
        }
    }

    /// Returns when the program has ended, even if a child process keeps its output open.
    pub(crate) async fn wait_for_exit(&self) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let ended = self.child.lock().await.try_wait();
            if !matches!(ended, Ok(None)) {
                self.end_group();
                return;
            }
        }
    }

    /// Ends the program and its child processes.
    fn end_group(&self) {
        if let Some(pid) = self.pid {
            // The group may already be gone.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }

    /// Why the program no longer accepts messages, with its last error output.
    pub(crate) async fn exit_reason(&self) -> String {
        let _ = tokio::time::timeout(LAST_LINES_TIMEOUT, self.is_silent.cancelled()).await;
        // Its pipes are closed a moment before it has ended.
        let ending = async { self.child.lock().await.wait().await };
        if tokio::time::timeout(LAST_LINES_TIMEOUT, ending).await.is_err() {
            return "the program does not listen any more".to_owned();
        }
        let last_lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        match last_lines.back() {
            Some(last) => format!("the program ended; its last words: {last}"),
            None => "the program ended without a word".to_owned(),
        }
    }

    /// Lets the program exit by itself, then kills it.
    pub(crate) async fn close(&self) {
        // Another task may be blocked writing to a program that does not read.
        if let Ok(mut input) = tokio::time::timeout(EXIT_TIMEOUT, self.input.lock()).await {
            input.take();
        }
        let mut child = self.child.lock().await;
        let has_left = tokio::time::timeout(EXIT_TIMEOUT, child.wait()).await.is_ok();
        // Its child processes may still exist.
        self.end_group();
        if !has_left {
            let _ = child.start_kill();
            let _ = tokio::time::timeout(EXIT_TIMEOUT, child.wait()).await;
        }
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        // The process id is not reused until the exit status has been read.
        if self.child.try_lock().is_ok_and(|child| child.id().is_some()) {
            self.end_group();
        }
    }
}

async fn listen(
    errors: impl AsyncRead + Unpin,
    last_lines: Arc<Mutex<VecDeque<String>>>,
    _over: DropGuard,
) {
    let mut lines = BoundedLines::new(BufReader::new(errors));
    while let Ok(Some(line)) = lines.next().await {
        let line = sanitize_line(&String::from_utf8_lossy(&line));
        if line.is_empty() {
            continue;
        }
        tracing::debug!(line, "a server's program says");
        let mut last_lines = last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        last_lines.push_back(line);
        if last_lines.len() > MAX_LAST_LINES {
            last_lines.pop_front();
        }
    }
}

/// Reads lines of bounded length.
pub(crate) struct BoundedLines<R> {
    from: R,
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> BoundedLines<R> {
    fn new(from: R) -> Self {
        Self { from, line: Vec::new() }
    }

    /// None at the end. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        loop {
            let read = self.from.fill_buf().await;
            let bytes = read.map_err(|error| ClientError::Cut(error.to_string()))?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let end = bytes.iter().position(|b| *b == b'\n');
            let take = end.unwrap_or(bytes.len());
            self.line.extend_from_slice(&bytes[..take]);
            self.from.consume(end.map_or(take, |at| at + 1));
            if self.line.len() > MAX_MESSAGE {
                return Err(ClientError::Garbled("a line of more than 16 MiB".to_owned()));
            }
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
        }
    }
}
