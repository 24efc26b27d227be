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
//! - It locks itself up before it starts the CLI, which inherits that: see `confines`.
//! - It never reads stdin, but notices when the other end is closed by the server, which wants the
//!   CLI to end. The CLI then has a moment to do so by itself.
//! - After that, on SIGTERM, when the CLI has ended, or when stdin was closed by the server's death,
//!   it kills everything below it and ends. A server that is started again may at once start a CLI
//!   on the same folders, so nothing may be written there any more.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::confines::Confines;

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

/// What a supervisor is told on its command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Task {
    /// The server's process.
    pub(super) parent: u32,
    pub(super) confines: Confines,
    /// The CLI and its arguments.
    pub(super) command: Vec<OsString>,
}

impl Task {
    pub(super) fn arguments(self) -> Vec<OsString> {
        let mut arguments = vec![COMMAND.into(), self.parent.to_string().into()];
        arguments.extend(self.confines.arguments());
        arguments.push(END.into());
        arguments.extend(self.command);
        arguments
    }

    /// From what follows the command.
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let parent = arguments.next()?.to_str()?.parse().ok()?;
        let confines = Confines::parse(arguments.by_ref().take_while(|argument| argument != END))?;
        let command = arguments.collect();
        Some(Self { parent, confines, command })
    }
}

/// If this process was started as a supervisor, does that work and gives its exit code. A program
/// that has the engine calls it first of all.
pub fn supervise_if_asked() -> Option<ExitCode> {
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
    // Before there is another thread: each has confines of its own.
    task.confines.enter()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(watch(task))
}

async fn watch(task: &Task) -> std::io::Result<ExitCode> {
    let Some((program, arguments)) = task.command.split_first() else {
        return Err(std::io::Error::other("no program was named"));
    };
    // All of it before there is a child: nothing can be missed.
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))?;
    let mut children = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (hanging_up, mut hung_up) = oneshot::channel();
    // It ends with the process, or with the other end of stdin.
    std::thread::spawn(move || {
        wait_for_hang_up();
        hanging_up.send(())
    });
    let child = std::process::Command::new(program).args(arguments).spawn();
    let child = child.map_err(|error| {
        std::io::Error::other(format!("{} does not start: {error}", program.display()))
    })?;
    let cli = Pid::from_child(&child);

    let mut ended = None;
    let mut deadline: Option<Instant> = None;
    let mut looks = tokio::time::interval(LOOK);
    while ended.is_none() {
        tokio::select! {
            _ = children.recv() => ended = reap(cli),
            _ = terminate.recv() => break,
            _ = &mut hung_up, if deadline.is_none() => deadline = Some(Instant::now() + GRACE),
            now = looks.tick(), if deadline.is_some() => {
                if is_orphan(task.parent) || deadline.is_some_and(|deadline| deadline <= now) {
                    break;
                }
            }
        }
    }
    let killed = end_all(cli).await;
    Ok(ExitCode::from(ended.or(killed).unwrap_or(137)))
}

/// Whether the server has died: whoever adopts this process is another.
fn is_orphan(parent: u32) -> bool {
    getppid().is_none_or(|now| now.as_raw_nonzero().get().unsigned_abs() != parent)
}

/// Until nobody can write to stdin any more. What is written there is the CLI's to read: an event
/// is asked for by nobody, and the end of a pipe is told to everybody.
fn wait_for_hang_up() {
    let stdin = std::io::stdin();
    let mut waiting = [PollFd::new(&stdin, PollFlags::empty())];
    while let Err(Errno::INTR) = poll(&mut waiting, None) {}
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
    use super::*;

    #[test]
    fn a_task_is_read_as_it_was_written() {
        let confines = Confines {
            read: vec!["/usr".into(), "/a folder".into()],
            write: vec!["--".into(), "/home".into()],
            hidden: vec!["/data".into()],
        };
        let command = ["/bin/claude", "--", "--read=x"].map(OsString::from).to_vec();
        let task = || Task { parent: 7, confines: confines.clone(), command: command.clone() };
        let arguments = task().arguments();
        assert_eq!(arguments[0], COMMAND);
        assert_eq!(Task::parse(arguments.into_iter().skip(1)), Some(task()));
        for wrong in ["", "x", "7 --read", "7 --other=/x"] {
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
