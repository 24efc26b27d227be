//! The process between the server and the CLI, which sees to it that nothing outlives the run.
//!
//! Two things were measured with the real CLI (2.1.197 and 2.1.325). When its input is closed in
//! mid-answer, as happens when the server is killed, it goes on until the answer is complete; and
//! the commands that it runs for the model are put into sessions of their own, so that killing the
//! CLI's process group leaves them behind. Therefore the server starts itself again as a
//! supervisor, which starts the CLI and lends it its own stdin, stdout and stderr:
//!
//! - The supervisor adopts orphans (it is a subreaper), so that whatever the CLI started stays
//!   below it and can be found.
//! - What it starts is the CLI in a sandbox: see `shikiri_sandbox`. The supervisor itself stays
//!   outside, where the run cannot see it. It makes a cgroup for the run, or where that is not
//!   possible, watches how much memory and how many processes the run has.
//! - It never reads stdin, but notices when the other end is closed by the server, which wants the
//!   CLI to end. The CLI then has a moment to do so by itself.
//! - After that, on SIGTERM, when the CLI has ended, or when stdin was closed by the server's death,
//!   it kills everything below it and ends. A server that is started again may at once start a CLI
//!   on the same folders, so nothing may be written there any more.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, kill_process, wait};
use shikiri_sandbox::{Entered, ReachedLimit, RunCgroup, SandboxLimits, SandboxPlan};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// The program's first argument, if it is to be a supervisor.
const COMMAND: &str = "supervise";

/// Stands between what is for the supervisor and the CLI's command.
const END: &str = "--";

/// How long the CLI may take to end once its input is closed.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// Between two looks at whether the server still lives, once stdin is closed: of a process that is
/// killed the files are closed first, and its children learn of it a little later.
const LOOK: Duration = Duration::from_millis(10);
/// Between two looks at what is still there.
const PAUSE: Duration = Duration::from_millis(5);
/// Looks at what is still there: nothing survives so many SIGKILLs but what the kernel holds.
const ROUNDS: u32 = 400;

/// Between two looks at what the run uses.
const MEASURE: Duration = Duration::from_millis(250);

/// What a supervisor is told on its command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Task {
    /// The server's process.
    pub(super) parent: u32,
    pub(super) plan: SandboxPlan,
    /// The CLI and its arguments.
    pub(super) command: Vec<OsString>,
}

impl Task {
    /// Fails if a path is no text.
    pub(super) fn arguments(self) -> Result<Vec<OsString>, serde_json::Error> {
        let plan = serde_json::to_string(&self.plan)?;
        let mut arguments: Vec<OsString> =
            vec![COMMAND.into(), self.parent.to_string().into(), plan.into(), END.into()];
        arguments.extend(self.command);
        Ok(arguments)
    }

    /// From what follows the command.
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let parent = arguments.next()?.to_str()?.parse().ok()?;
        let plan = serde_json::from_str(arguments.next()?.to_str()?).ok()?;
        if arguments.next()? != END {
            return None;
        }
        Some(Self { parent, plan, command: arguments.collect() })
    }
}

/// If this process was started as a supervisor, does that work and gives its exit code. A program
/// that has the engine calls it first of all.
pub fn supervise_if_asked() -> Option<ExitCode> {
    if let Some(ended) = shikiri_sandbox::run_if_asked() {
        return Some(ended);
    }
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let ended = Task::parse(arguments)
        .ok_or_else(|| std::io::Error::other("this is for the server to call"))
        .and_then(|task| supervise(&task));
    Some(ended.unwrap_or_else(|error| {
        complain(&format!("it cannot be supervised: {error}"));
        ExitCode::from(127)
    }))
}

#[expect(clippy::print_stderr, reason = "the server reads it as the CLI's last words")]
fn complain(words: &str) {
    eprintln!("{words}");
}

fn supervise(task: &Task) -> std::io::Result<ExitCode> {
    // Signals of a terminal are the server's, which ends its engines itself. It fails for the leader
    // of a group, which is out of the terminal's reach, too.
    let _ = rustix::process::setsid();
    // Before there is another thread: namespaces are each thread's own.
    let mut entered =
        shikiri_sandbox::enter(&task.plan, &task.command).map_err(std::io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(watch(task, &mut entered))
}

async fn watch(task: &Task, entered: &mut Entered) -> std::io::Result<ExitCode> {
    // All of it before there is a child: nothing can be missed.
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
            () = hang_up(&stdin), if deadline.is_none() => deadline = Some(Instant::now() + GRACE),
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
    // Since the last look, the kernel may have ended a run that has a cgroup.
    let at_the_end = || excess_in(entered.cgroup.as_ref()?, &task.plan.limits);
    if let Some(why) = excess.or_else(at_the_end) {
        complain(&why);
    }
    let killed = end_all(cli).await;
    Ok(ExitCode::from(ended.or(killed).unwrap_or(137)))
}

/// Which limit the run exceeds.
fn excess_of(limits: &SandboxLimits, cgroup: Option<&RunCgroup>) -> Option<String> {
    match cgroup {
        Some(cgroup) => excess_in(cgroup, limits),
        None => measured_excess(limits),
    }
}

/// Which limit the kernel did not let the run exceed.
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

/// Which limit the processes below this one exceed together.
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

/// Whether the server has died: whoever adopts this process is another.
fn is_orphan(parent: u32) -> bool {
    getppid().is_none_or(|now| now.as_raw_nonzero().get().unsigned_abs() != parent)
}

/// Until nobody can write to stdin any more. What is written there is the CLI's to read: only the
/// end is asked for.
async fn hang_up(stdin: &AsyncFd<std::io::Stdin>) {
    loop {
        match stdin.ready(Interest::PRIORITY).await {
            Ok(mut ready) if !ready.ready().is_read_closed() => ready.clear_ready(),
            _ => return,
        }
    }
}

/// Takes leave of all that has ended, orphans too. Gives the CLI's exit code if it is among them.
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

/// Kills whatever is below this process, until there is nothing.
async fn end_all(cli: Pid) -> Option<u8> {
    let mut ended = None;
    for _ in 0..ROUNDS {
        ended = ended.or(reap(cli));
        let alive = descendants();
        if alive.is_empty() {
            break;
        }
        for pid in alive {
            // One that has just ended takes no signal, and needs none.
            let _ = kill_process(pid, Signal::KILL);
        }
        tokio::time::sleep(PAUSE).await;
    }
    ended
}

/// All processes below this one that are not dead already.
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
        let task = || Task { parent: 7, plan: plan.clone(), command: command.clone() };
        let arguments = task().arguments().unwrap();
        assert_eq!(arguments[0], COMMAND);
        assert_eq!(Task::parse(arguments.into_iter().skip(1)), Some(task()));
        for wrong in ["", "x", "7 --", "7 {} --"] {
            assert_eq!(Task::parse(wrong.split(' ').map(OsString::from)), None, "{wrong}");
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
