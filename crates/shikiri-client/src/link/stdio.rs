//! A server as a program of ours: a line in, a line out.

use std::collections::{BTreeMap, VecDeque};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use shikiri_model::host::clean_line;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::MAX_MESSAGE;
use crate::error::ClientError;

/// What a server's program gets of our environment: where things are and how to speak, no keys.
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
/// Its last words, for the case that it dies.
const LAST_WORDS: usize = 5;
/// How long it may take to end by itself once nobody speaks to it.
const LEAVE: Duration = Duration::from_secs(2);
/// How long it may take to read a message.
const READING: Duration = Duration::from_secs(20);
/// How often it is looked whether it still runs.
const LOOK: Duration = Duration::from_millis(500);
/// What it said at last may be heard a little after its end.
const LAST_WORDS_COME: Duration = Duration::from_millis(500);

pub(crate) struct StdioLink {
    input: AsyncMutex<Option<ChildStdin>>,
    child: AsyncMutex<Child>,
    /// Its number, which is its group's too.
    pid: Option<rustix::process::Pid>,
    words: Arc<Mutex<VecDeque<String>>>,
    /// Cancelled when it will say nothing more.
    is_silent: CancellationToken,
}

pub(crate) struct Program<'a> {
    pub(crate) command: &'a str,
    pub(crate) args: &'a [String],
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) cwd: Option<&'a str>,
}

impl StdioLink {
    pub(crate) fn start(
        program: &Program<'_>,
    ) -> Result<(Self, Lines<BufReader<ChildStdout>>), ClientError> {
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
        // A group of its own: Ctrl-C at our terminal is for us alone, and its children end with it.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let program = clean_line(program.command);
            ClientError::Unreachable(format!("{program} could not be started: {error}"))
        })?;
        let words = Arc::new(Mutex::new(VecDeque::new()));
        let is_silent = CancellationToken::new();
        if let Some(errors) = child.stderr.take() {
            let over = is_silent.clone().drop_guard();
            tokio::spawn(listen(errors, Arc::clone(&words), over));
        }
        let output = child.stdout.take();
        let output =
            output.ok_or_else(|| ClientError::Unreachable("it has no output".to_owned()))?;
        let input = AsyncMutex::new(child.stdin.take());
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        let link = Self { input, child: AsyncMutex::new(child), pid, words, is_silent };
        Ok((link, Lines::new(BufReader::new(output))))
    }

    pub(crate) async fn send(&self, message: &Value) -> Result<(), ClientError> {
        let mut line =
            serde_json::to_vec(message).map_err(|error| ClientError::Garbled(error.to_string()))?;
        line.push(b'\n');
        let mut input = self.input.lock().await;
        // Put back when the line is written. Whoever stops waiting before that may leave half of it
        // on its way, and nothing can be said after it.
        let Some(mut pipe) = input.take() else {
            return Err(ClientError::Unreachable(self.last_words().await));
        };
        let written = async {
            pipe.write_all(&line).await?;
            pipe.flush().await
        };
        match tokio::time::timeout(READING, written).await {
            Ok(Ok(())) => {
                *input = Some(pipe);
                Ok(())
            }
            Ok(Err(_)) => Err(ClientError::Unreachable(self.last_words().await)),
            Err(_) => Err(ClientError::Slow(READING.as_secs())),
        }
    }

    /// Comes when the program has ended, also if something that it started keeps its output open.
    pub(crate) async fn ended(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let ended = self.child.lock().await.try_wait();
            if !matches!(ended, Ok(None)) {
                self.end_group();
                return;
            }
        }
    }

    /// The program and whatever it started.
    fn end_group(&self) {
        if let Some(pid) = self.pid {
            // It may be gone already.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }

    /// Why nothing can be said to it any more, as far as it said.
    pub(crate) async fn last_words(&self) -> String {
        let _ = tokio::time::timeout(LAST_WORDS_COME, self.is_silent.cancelled()).await;
        // Its pipes are closed a moment before it has ended.
        let ending = async { self.child.lock().await.wait().await };
        if tokio::time::timeout(LAST_WORDS_COME, ending).await.is_err() {
            return "the program does not listen any more".to_owned();
        }
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        match words.back() {
            Some(last) => format!("the program ended; its last words: {last}"),
            None => "the program ended without a word".to_owned(),
        }
    }

    /// Lets it leave by itself, then sees to it.
    pub(crate) async fn close(&self) {
        // Somebody may be writing to a program that does not read.
        if let Ok(mut input) = tokio::time::timeout(LEAVE, self.input.lock()).await {
            input.take();
        }
        let mut child = self.child.lock().await;
        if tokio::time::timeout(LEAVE, child.wait()).await.is_err() {
            self.end_group();
            let _ = child.start_kill();
            let _ = tokio::time::timeout(LEAVE, child.wait()).await;
        }
    }
}

impl Drop for StdioLink {
    fn drop(&mut self) {
        // Its number is its own for as long as nobody has asked for its end.
        if self.child.try_lock().is_ok_and(|child| child.id().is_some()) {
            self.end_group();
        }
    }
}

async fn listen(
    errors: impl AsyncRead + Unpin,
    words: Arc<Mutex<VecDeque<String>>>,
    _over: DropGuard,
) {
    let mut lines = Lines::new(BufReader::new(errors));
    while let Ok(Some(line)) = lines.next().await {
        let line = clean_line(&String::from_utf8_lossy(&line));
        if line.is_empty() {
            continue;
        }
        tracing::debug!(line, "a server's program says");
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        words.push_back(line);
        if words.len() > LAST_WORDS {
            words.pop_front();
        }
    }
}

/// Lines up to a bound.
pub(crate) struct Lines<R> {
    from: R,
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
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
