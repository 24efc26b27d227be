//! A running CLI below its supervisor: lines in, lines out, and no process when this is dropped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use shikiri_app::execution::EngineError;
use shikiri_model::confinement::ConfinementLevel;
use shikiri_sandbox::SandboxPlan;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::lines::{LineError, Lines};
use super::loopback_forwarder::forward;
use super::supervisor::Task;

/// What it last wrote to stderr is kept up to this.
const TAIL: usize = 4 * 1024;
/// Lines that may wait for the CLI to read them.
const WAITING: usize = 64;
/// How long a supervisor may take to kill what is below it: far more than it needs.
const PATIENCE: Duration = Duration::from_millis(800);

pub(super) struct Process {
    supervisor: Supervisor,
    lines: Lines<ChildStdout>,
    /// None once its input is closed.
    input: Option<mpsc::Sender<String>>,
    tail: Arc<Mutex<Vec<u8>>>,
    _writer: AbortOnDropHandle<()>,
    stderr: AbortOnDropHandle<()>,
    /// From the run's loopback to the server's.
    _forwarder: Option<AbortOnDropHandle<()>>,
}

/// What the CLI is started with.
pub(super) struct Start<'a> {
    pub(super) supervisor: &'a Path,
    pub(super) program: &'a Path,
    pub(super) arguments: Vec<OsString>,
    pub(super) env: BTreeMap<String, OsString>,
    pub(super) folder: &'a Path,
    pub(super) plan: SandboxPlan,
}

impl Process {
    pub(super) fn start(start: Start<'_>) -> Result<Self, EngineError> {
        let mut command = Command::new(start.supervisor);
        let mut cli = vec![start.program.into()];
        cli.extend(start.arguments);
        let failed =
            |why: String| EngineError::new(format!("Claude Code cannot be started: {why}"));
        let input = Input::of(&start.plan).map_err(|error| failed(error.to_string()))?;
        let task = Task { parent: std::process::id(), plan: start.plan, command: cli };
        command.args(task.arguments().map_err(|error| failed(error.to_string()))?);
        command.env_clear().envs(start.env).current_dir(start.folder);
        let socket = match input {
            Input::Pipe => {
                command.stdin(Stdio::piped());
                None
            }
            Input::Socket { ours, theirs } => {
                command.stdin(Stdio::from(theirs));
                Some(ours)
            }
        };
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        // It holds the other end of the socket.
        drop(command);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let supervisor = Supervisor::of(child);
        let (stdin, Some(stdout), Some(stderr)) = pipes else {
            return Err(failed("it has no pipes".to_owned()));
        };
        let (stdin, listeners): (InputWriter, Option<OwnedReadHalf>) = match (socket, stdin) {
            (Some(socket), _) => {
                let (read, write) = socket.into_split();
                (Box::new(write), Some(read))
            }
            (None, Some(pipe)) => (Box::new(pipe), None),
            (None, None) => return Err(failed("it has no input".to_owned())),
        };
        let (input, wanted) = mpsc::channel(WAITING);
        let tail = Arc::new(Mutex::new(Vec::new()));
        Ok(Self {
            supervisor,
            lines: Lines::new(stdout),
            input: Some(input),
            _writer: AbortOnDropHandle::new(tokio::spawn(write_all(stdin, wanted))),
            stderr: AbortOnDropHandle::new(tokio::spawn(keep_tail(stderr, Arc::clone(&tail)))),
            _forwarder: listeners.map(|from| AbortOnDropHandle::new(tokio::spawn(forward(from)))),
            tail,
        })
    }

    /// Sends a line. It is written beside the reading: neither waits for the other.
    pub(super) async fn send(&self, message: &Value) {
        if let Some(input) = &self.input {
            // If the CLI reads no more, it has ended, which its output tells.
            let _ = input.send(format!("{message}\n")).await;
        }
    }

    /// The next line; None when there is none. May be given up and called again.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>, LineError> {
        self.lines.next().await
    }

    /// Tells the CLI to end: what was sent is still written.
    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// Kills what has not ended by itself, and gives the exit code or the negated signal.
    pub(super) async fn kill(&mut self) -> Option<i32> {
        self.supervisor.terminate();
        let until = Instant::now() + PATIENCE;
        let ended = tokio::time::timeout_at(until, self.supervisor.ended()).await.ok().flatten();
        // Its last words.
        let _ = tokio::time::timeout_at(until, &mut self.stderr).await;
        ended
    }

    /// The end of what it wrote to stderr.
    pub(super) fn last_words(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}

type InputWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// What the CLI reads from. A socket lets the supervisor send listeners back, once.
enum Input {
    Pipe,
    Socket { ours: UnixStream, theirs: std::os::fd::OwnedFd },
}

impl Input {
    fn of(plan: &SandboxPlan) -> std::io::Result<Self> {
        let has_network = plan.confinement.level == ConfinementLevel::Namespaces;
        if !has_network || plan.loopback_ports.is_empty() {
            return Ok(Self::Pipe);
        }
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok(Self::Socket { ours: UnixStream::from_std(ours)?, theirs: theirs.into() })
    }
}

async fn write_all(mut stdin: InputWriter, mut wanted: mpsc::Receiver<String>) {
    while let Some(line) = wanted.recv().await {
        if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

async fn keep_tail(mut stderr: ChildStderr, tail: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&buffer[..read]);
        let surplus = tail.len().saturating_sub(TAIL);
        tail.drain(..surplus);
    }
}

/// The supervisor's process. Dropped, it is told to kill everything at once.
struct Supervisor {
    child: Child,
    /// None once it has ended: its id may then be another's.
    pid: Option<Pid>,
}

impl Supervisor {
    fn of(child: Child) -> Self {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        Self { child, pid }
    }

    fn terminate(&self) {
        if let Some(pid) = self.pid {
            // One that has just ended takes no signal, and needs none.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// The exit code, or the negated signal.
    async fn ended(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.child.wait().await.ok()?;
        let group = self.pid.take();
        if let (Some(signal), Some(group)) = (status.signal(), group) {
            // Somebody killed it, so that it could not do its duty. The CLI is of its group.
            let _ = kill_process_group(group, Signal::KILL);
            return Some(-signal);
        }
        status.code()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.terminate();
    }
}
