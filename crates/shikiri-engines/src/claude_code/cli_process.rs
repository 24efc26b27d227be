//! A running CLI below its supervisor: sends and reads lines. Dropping it ends all its processes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use shikiri_executions::execution::EngineError;
use shikiri_model::confinement::ConfinementLevel;
use shikiri_sandbox::SandboxPlan;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::line_reader::{LineError, LineReader};
use super::loopback_forwarder::forward;
use super::supervisor::SupervisorTask;

/// Bytes of stderr's end that are kept.
const TAIL: usize = 4 * 1024;
/// Lines that may wait for the CLI to read them.
const WAITING: usize = 64;
/// How long a supervisor may take to kill its processes: far more than it needs.
const PATIENCE: Duration = Duration::from_millis(800);

pub(super) struct CliProcess {
    supervisor: SupervisorProcess,
    lines: LineReader<ChildStdout>,
    /// `None` once the input is closed.
    input: Option<mpsc::Sender<String>>,
    tail: Arc<Mutex<Vec<u8>>>,
    _writer: AbortOnDropHandle<()>,
    stderr: AbortOnDropHandle<()>,
    /// Forwards the run's loopback ports to the server's.
    _forwarder: Option<AbortOnDropHandle<()>>,
}

/// What the CLI is started with.
pub(super) struct CliLaunch<'a> {
    pub(super) supervisor: &'a Path,
    pub(super) program: &'a Path,
    pub(super) arguments: Vec<OsString>,
    pub(super) env: BTreeMap<String, OsString>,
    pub(super) folder: &'a Path,
    pub(super) plan: SandboxPlan,
}

impl CliProcess {
    pub(super) fn start(start: CliLaunch<'_>) -> Result<Self, EngineError> {
        let mut command = Command::new(start.supervisor);
        let mut cli = vec![start.program.into()];
        cli.extend(start.arguments);
        let failed =
            |why: String| EngineError::new(format!("Claude Code cannot be started: {why}"));
        let input = CliInput::of(&start.plan).map_err(|error| failed(error.to_string()))?;
        let task = SupervisorTask { parent: std::process::id(), plan: start.plan, command: cli };
        command.args(task.arguments().map_err(|error| failed(error.to_string()))?);
        command.env_clear().envs(start.env).current_dir(start.folder);
        let socket = match input {
            CliInput::Pipe => {
                command.stdin(Stdio::piped());
                None
            }
            CliInput::Socket { ours, theirs } => {
                command.stdin(Stdio::from(theirs));
                Some(ours)
            }
        };
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        // The command still holds the child's end of the socket.
        drop(command);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let supervisor = SupervisorProcess::of(child);
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
            lines: LineReader::new(stdout),
            input: Some(input),
            _writer: AbortOnDropHandle::new(tokio::spawn(write_all(stdin, wanted))),
            stderr: AbortOnDropHandle::new(tokio::spawn(keep_tail(stderr, Arc::clone(&tail)))),
            _forwarder: listeners.map(|from| AbortOnDropHandle::new(tokio::spawn(forward(from)))),
            tail,
        })
    }

    /// Queues a line. A task writes it, so that writing never blocks reading.
    pub(super) async fn send(&self, message: &Value) {
        if let Some(input) = &self.input {
            // Fails only if the CLI has ended, which the end of its output shows.
            let _ = input.send(format!("{message}\n")).await;
        }
    }

    /// The next line; `None` at the end. Cancelling loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>, LineError> {
        self.lines.next().await
    }

    /// Closes the CLI's input, which tells it to end. Queued lines are still written.
    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// Kills all processes that still run. Returns the exit code or the negated signal.
    pub(super) async fn kill(&mut self) -> Option<i32> {
        self.supervisor.terminate();
        let until = Instant::now() + PATIENCE;
        let ended =
            tokio::time::timeout_at(until, self.supervisor.wait_exit()).await.ok().flatten();
        // Waits for the rest of stderr.
        let _ = tokio::time::timeout_at(until, &mut self.stderr).await;
        ended
    }

    /// The end of what it wrote to stderr.
    pub(super) fn stderr_tail(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}

type InputWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// The CLI's stdin. A socket lets the supervisor send listeners back, once.
enum CliInput {
    Pipe,
    Socket { ours: UnixStream, theirs: std::os::fd::OwnedFd },
}

impl CliInput {
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

/// The supervisor's process. Dropping it makes the supervisor kill everything at once.
struct SupervisorProcess {
    child: Child,
    /// `None` once it has ended, because its id may be used again.
    pid: Option<Pid>,
}

impl SupervisorProcess {
    fn of(child: Child) -> Self {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        Self { child, pid }
    }

    fn terminate(&self) {
        if let Some(pid) = self.pid {
            // Fails if it has just ended.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// The exit code, or the negated signal.
    async fn wait_exit(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.child.wait().await.ok()?;
        let group = self.pid.take();
        if let (Some(signal), Some(group)) = (status.signal(), group) {
            // The supervisor was killed and could not clean up. The CLI is in its process group.
            let _ = kill_process_group(group, Signal::KILL);
            return Some(-signal);
        }
        status.code()
    }
}

impl Drop for SupervisorProcess {
    fn drop(&mut self) {
        self.terminate();
    }
}
