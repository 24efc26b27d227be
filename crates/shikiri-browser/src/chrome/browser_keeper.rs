//! The keeper: a process that starts Chrome and ends it after its last user.
//!
//! Each `shikiri` process that uses the browser holds a shared lock on a file. When the last lock is
//! released, the keeper closes Chrome's pipe, so that Chrome saves its logins and exits, and then
//! kills all remaining processes below it.
//!
//! Chrome is driven over a pipe that the keeper holds, and listens on no port. Other processes of the
//! same user reach it at a socket in the browser's folder (`relay`). If the keeper is killed, its pipe
//! closes and Chrome exits.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, wait};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::keeper_socket::KeeperSocket;
use super::relay::DevtoolsRelay;

/// The program's first argument when it is started as a keeper.
const COMMAND: &str = "keep-browser";
/// Moves stdin and stdout to the descriptors of Chrome's pipe: it reads from 3 and writes to 4.
const WITH_PIPES: &str =
    "exec \"$0\" \"$@\" --remote-debugging-pipe 3<&0 4>&1 </dev/null >/dev/null";
/// How long Chrome may take to exit by itself.
const GRACE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
/// Rounds of SIGKILL before processes that the kernel holds are given up.
const ROUNDS: u32 = 200;

/// A file in the browser's folder. Every user of the browser holds a shared lock on it.
pub(super) const USERS: &str = "users.lock";

/// A keeper's arguments: the browser's folder, then Chrome and its flags.
pub(super) fn arguments(folder: &Path, chrome: &Path, flags: Vec<OsString>) -> Vec<OsString> {
    let mut all = vec![COMMAND.into(), folder.into(), chrome.into()];
    all.extend(flags);
    all
}

/// Runs the keeper if this process was started as one, and returns its exit code. A program that
/// drives browsers calls this before anything else.
pub fn run_keeper_if_requested() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let (Some(folder), Some(chrome)) = (arguments.next(), arguments.next()) else {
        print_error("this is for shikiri itself to call");
        return Some(ExitCode::from(2));
    };
    let kept = run_keeper(&PathBuf::from(folder), &chrome, arguments.collect());
    Some(kept.unwrap_or_else(|error| {
        print_error(&format!("{} cannot be kept: {error}", chrome.display()));
        ExitCode::from(127)
    }))
}

#[expect(clippy::print_stderr, reason = "stderr is the keeper's log file")]
fn print_error(message: &str) {
    eprintln!("{message}");
}

fn run_keeper(folder: &Path, chrome: &OsString, flags: Vec<OsString>) -> std::io::Result<ExitCode> {
    // Files of the keeper and of Chrome are for their user only.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Set before Chrome starts, so that its orphans become children of the keeper.
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(getpid()))?;
        let mut terminate = signal(SignalKind::terminate())?;
        let socket = KeeperSocket::bind(folder)?;
        let started = start_chrome(chrome, flags);
        let (mut child, to_chrome, from_chrome) = match started {
            Ok(started) => started,
            Err(error) => {
                socket.remove();
                return Err(error);
            }
        };
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let mut unused = wait_for_last_user(folder.join(USERS));
        // Dropping the relay closes the pipes, which tells Chrome to exit.
        let ended = tokio::select! {
            ended = child.wait() => Some(ended),
            () = DevtoolsRelay::serve(&socket, to_chrome, from_chrome) => None,
            _ = &mut unused => None,
            _ = terminate.recv() => None,
        };
        socket.remove();
        let ended = match ended {
            Some(ended) => ended.ok(),
            None => tokio::time::timeout(GRACE, child.wait()).await.ok().and_then(Result::ok),
        };
        if let Some(pid) = pid {
            // Fails if the group has just ended.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        kill_children().await;
        let code = ended.and_then(|ended| ended.code()).and_then(|code| u8::try_from(code).ok());
        Ok(ExitCode::from(code.unwrap_or(0)))
    })
}

/// Starts Chrome. Returns its process and the keeper's two ends of its pipe.
fn start_chrome(
    chrome: &OsString,
    flags: Vec<OsString>,
) -> std::io::Result<(Child, ChildStdin, ChildStdout)> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", WITH_PIPES])
        .arg(chrome)
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()?;
    match (child.stdin.take(), child.stdout.take()) {
        (Some(to_chrome), Some(from_chrome)) => Ok((child, to_chrome, from_chrome)),
        _ => Err(std::io::Error::other("it has no pipes")),
    }
}

/// Resolves once no user holds the lock. The keeper then holds it until it ends.
fn wait_for_last_user(users: PathBuf) -> oneshot::Receiver<File> {
    let (last, received) = oneshot::channel();
    // The thread ends with the process, or with the last user.
    std::thread::spawn(move || {
        let Ok(file) = File::open(users) else { return };
        if file.lock().is_ok() {
            let _ = last.send(file);
        }
    });
    received
}

/// Kills the children of this process until none is left.
async fn kill_children() {
    for _ in 0..ROUNDS {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let alive = children();
        if alive.is_empty() {
            return;
        }
        for pid in alive {
            let _ = kill_process(pid, Signal::KILL);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The living children of this process. Their own children follow when they end.
fn children() -> Vec<Pid> {
    let us = getpid().as_raw_nonzero().get().to_string();
    let of_us = |pid: &str| -> Option<Pid> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is a name in brackets, which may itself hold brackets and spaces.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let is_dead = matches!(fields.next()?, "Z" | "X");
        (!is_dead && fields.next()? == us).then(|| Pid::from_raw(pid.parse().ok()?))?
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten();
    processes.filter_map(|entry| of_us(entry.ok()?.file_name().to_str()?)).collect()
}
