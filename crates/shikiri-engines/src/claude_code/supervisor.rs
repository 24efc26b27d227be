//! The process between the server and the CLI. It makes sure that no process outlives the run.
//!
//! Two facts were measured with the real CLI (2.1.197 and 2.1.325). If its input closes during an
//! answer, as when the server is killed, it continues until the answer is complete. And it starts the
//! model's commands in their own sessions, so killing the CLI's process group does not end them.
//! Therefore the server starts itself again as a supervisor, which starts the CLI with its own stdin,
//! stdout and stderr:
//!
//! - The supervisor is a subreaper: orphans of the CLI become its children.
//! - It starts the CLI in a sandbox (see `shikiri_sandbox`), and stays outside, invisible to the run.
//!   It makes a cgroup for the run. Where that is impossible, it measures memory and processes.
//! - It never reads stdin, but notices when the server closes it to end the CLI. The CLI then gets a
//!   short time to exit.
//! - After that, on SIGTERM, after the CLI's exit, or after the server's death, it kills all its
//!   descendants and exits. A restarted server may use the same folders at once, so no process may
//!   still write there.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, kill_process, wait};
use shikiri_sandbox::{ReachedLimit, RunCgroup, SandboxLaunch, SandboxLimits, SandboxPlan};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// The program's first argument when it is started as a supervisor.
const COMMAND: &str = "supervise";

/// Separates the supervisor's arguments from the CLI's command.
const END: &str = "--";

/// How long the CLI may take to exit once its input is closed.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// Interval of the check whether the server still lives, once stdin is closed. A killed process closes
/// its files a little before its children can see its death.
const LOOK: Duration = Duration::from_millis(10);
/// Pause between two rounds of killing.
const PAUSE: Duration = Duration::from_millis(5);
/// Rounds of SIGKILL before processes that the kernel holds are given up.
const ROUNDS: u32 = 400;

/// Interval of the measurements of the run.
const MEASURE: Duration = Duration::from_millis(250);

/// The arguments of a supervisor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SupervisorTask {
    /// The server's process id.
    pub(super) parent: u32,
    pub(super) plan: SandboxPlan,
    /// The CLI and its arguments.
    pub(super) command: Vec<OsString>,
}

impl SupervisorTask {
    /// Fails if a path is no valid text.
    pub(super) fn arguments(self) -> Result<Vec<OsString>, serde_json::Error> {
        let plan = serde_json::to_string(&self.plan)?;
        let mut arguments: Vec<OsString> =
            vec![COMMAND.into(), self.parent.to_string().into(), plan.into(), END.into()];
        arguments.extend(self.command);
        Ok(arguments)
    }

    /// Parses the arguments after the first one.
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let parent = arguments.next()?.to_str()?.parse().ok()?;
        let plan = serde_json::from_str(arguments.next()?.to_str()?).ok()?;
        if arguments.next()? != END {
            return None;
        }
        Some(Self { parent, plan, command: arguments.collect() })
    }
}

/// Runs the supervisor or the sandbox if this process was started as one, and returns its exit code. A
/// program with the engine calls this before anything else.
pub fn run_supervisor_if_requested() -> Option<ExitCode> {
    if let Some(ended) = shikiri_sandbox::run_if_asked() {
        return Some(ended);
    }
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let ended = SupervisorTask::parse(arguments)
        .ok_or_else(|| std::io::Error::other("this is for the server to call"))
        .and_then(|task| supervise(&task));
    Some(ended.unwrap_or_else(|error| {
        print_error(&format!("it cannot be supervised: {error}"));
        ExitCode::from(127)
    }))
}

#[expect(clippy::print_stderr, reason = "the server reads it as the end of the CLI's stderr")]
fn print_error(message: &str) {
    eprintln!("{message}");
}

fn supervise(task: &SupervisorTask) -> std::io::Result<ExitCode> {
    // Signals of a terminal are for the server, which ends its engines itself. This fails for a group
    // leader, which receives no such signals either.
    let _ = rustix::process::setsid();
    // Before other threads start, because each thread has its own namespaces.
    let mut entered =
        shikiri_sandbox::enter(&task.plan, &task.command).map_err(std::io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(watch(task, &mut entered))
}

async fn watch(task: &SupervisorTask, entered: &mut SandboxLaunch) -> std::io::Result<ExitCode> {
    // Set up before the child starts, so that no signal is missed.
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))?;
    let mut children = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    #[expect(
        deprecated,
        reason = "its successor is unsafe; stdin stays open as long as this process"
    )]
    let stdin = AsyncFd::with_interest(std::io::stdin(), Interest::PRIORITY)?;
    let cli = Pid::from_child(&entered.command.spawn()?);

    let mut ended = None;
    let mut excess = None;
    let mut deadline: Option<Instant> = None;
    let mut looks = tokio::time::interval(LOOK);
    let mut measures = tokio::time::interval(MEASURE);
    while ended.is_none() && excess.is_none() {
        tokio::select! {
            _ = children.recv() => ended = reap(cli),
            _ = terminate.recv() => break,
            () = wait_stdin_closed(&stdin), if deadline.is_none() => deadline = Some(Instant::now() + GRACE),
            now = looks.tick(), if deadline.is_some() => {
                if is_orphan(task.parent) || deadline.is_some_and(|deadline| deadline <= now) {
                    break;
                }
            }
            _ = measures.tick() => {
                excess = excess_of(&task.plan.limits, entered.cgroup.as_ref());
            }
        }
    }
    // The kernel may have ended a run with a cgroup since the last measurement.
    let at_the_end = || excess_in(entered.cgroup.as_ref()?, &task.plan.limits);
    if let Some(why) = excess.or_else(at_the_end) {
        print_error(&why);
    }
    let killed = kill_descendants(cli).await;
    Ok(ExitCode::from(ended.or(killed).unwrap_or(137)))
}

/// Which limit the run exceeds.
fn excess_of(limits: &SandboxLimits, cgroup: Option<&RunCgroup>) -> Option<String> {
    match cgroup {
        Some(cgroup) => excess_in(cgroup, limits),
        None => measured_excess(limits),
    }
}

/// Which limit the kernel enforced.
fn excess_in(cgroup: &RunCgroup, limits: &SandboxLimits) -> Option<String> {
    let (most_memory, most_tasks) = (limits.memory_bytes >> 20, limits.tasks);
    cgroup.reached_limit().map(|limit| match limit {
        ReachedLimit::Memory => format!(
            "the run was ended: it wanted more memory than the {most_memory} MiB that are allowed \
             (SHIKIRI_ENGINE_MEMORY_MB)"
        ),
        ReachedLimit::Tasks => format!(
            "the run was ended: it wanted more processes and threads than the {most_tasks} that \
             are allowed (SHIKIRI_ENGINE_PROCESSES)"
        ),
    })
}

/// Which limit the descendants of this process exceed together.
fn measured_excess(limits: &SandboxLimits) -> Option<String> {
    let now = shikiri_sandbox::tree_use(std::process::id());
    if now.bytes > limits.memory_bytes {
        let (used, most) = (now.bytes >> 20, limits.memory_bytes >> 20);
        return Some(format!(
            "the run was ended: it used {used} MiB of memory, {most} MiB are allowed \
             (SHIKIRI_ENGINE_MEMORY_MB)"
        ));
    }
    (now.tasks > limits.tasks).then(|| {
        let (used, most) = (now.tasks, limits.tasks);
        format!(
            "the run was ended: it had {used} processes and threads, {most} are allowed \
             (SHIKIRI_ENGINE_PROCESSES)"
        )
    })
}

/// Whether the server has died, so that this process has another parent.
fn is_orphan(parent: u32) -> bool {
    getppid().is_none_or(|now| now.as_raw_nonzero().get().unsigned_abs() != parent)
}

/// Waits until the other end of stdin is closed. Reads nothing, because the input is for the CLI.
async fn wait_stdin_closed(stdin: &AsyncFd<std::io::Stdin>) {
    loop {
        match stdin.ready(Interest::PRIORITY).await {
            Ok(mut ready) if !ready.ready().is_read_closed() => ready.clear_ready(),
            _ => return,
        }
    }
}

/// Reaps all ended children, also orphans. Returns the CLI's exit code if it is among them.
fn reap(cli: Pid) -> Option<u8> {
    let mut ended = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == cli {
            let signal = status.terminating_signal().map(|signal| signal + 128);
            let code = status.exit_status().or(signal).unwrap_or(1);
            ended = Some(u8::try_from(code).unwrap_or(1));
        }
    }
    ended
}

/// Kills the descendants of this process until none is left.
async fn kill_descendants(cli: Pid) -> Option<u8> {
    let mut ended = None;
    for _ in 0..ROUNDS {
        ended = ended.or(reap(cli));
        let alive = descendants();
        if alive.is_empty() {
            break;
        }
        for pid in alive {
            // Fails if it has just ended.
            let _ = kill_process(pid, Signal::KILL);
        }
        tokio::time::sleep(PAUSE).await;
    }
    ended
}

/// The living descendants of this process.
fn descendants() -> Vec<Pid> {
    let processes: Vec<_> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| read_stat(&entry.ok()?.file_name().into_string().ok()?))
        .collect();
    let mut found = vec![getpid()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(processes.iter().filter(|(_, p)| *p == Some(parent)).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// A living process and its parent.
fn read_stat(pid: &str) -> Option<(Pid, Option<Pid>)> {
    let number: i32 = pid.parse().ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in brackets, which may itself hold brackets and spaces.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some((Pid::from_raw(number)?, Pid::from_raw(parent)))
}

#[cfg(test)]
mod tests {
    use shikiri_model::confinement::{Confinement, ConfinementLevel};

    use super::*;

    #[test]
    fn a_task_is_read_as_it_was_written() {
        let plan = SandboxPlan {
            confinement: Confinement { level: ConfinementLevel::Landlock, engine_user: Some(7) },
            read: vec!["/usr".into(), "/a folder".into()],
            write: vec!["--".into(), "/home".into()],
            hidden: vec!["/data".into()],
            folder: "/home".into(),
            loopback_ports: vec![80],
            limits: SandboxLimits::default(),
            cgroup: Some("/sys/fs/cgroup/x".into()),
            is_probe: false,
        };
        let command = ["/bin/claude", "--", "--read=x"].map(OsString::from).to_vec();
        let task = || SupervisorTask { parent: 7, plan: plan.clone(), command: command.clone() };
        let arguments = task().arguments().unwrap();
        assert_eq!(arguments[0], COMMAND);
        assert_eq!(SupervisorTask::parse(arguments.into_iter().skip(1)), Some(task()));
        for wrong in ["", "x", "7 --", "7 {} --"] {
            assert_eq!(
                SupervisorTask::parse(wrong.split(' ').map(OsString::from)),
                None,
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_child_is_found_while_it_lives() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(descendants().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants().contains(&pid));
    }
}
