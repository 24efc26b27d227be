//! The process between us and a Chrome that we started. It starts Chrome, lives as long as any
//! `shikiri` process holds the lock on the file of users, and then ends it: first politely, so that
//! a login is written down, then with all that is below it.
//!
//! Chrome is driven over a pipe that the keeper holds, and listens nowhere. The keeper lets the user's
//! processes drive it too, at a socket in the browser's folder (`relay`). A Chrome whose pipe is closed
//! ends by itself, and so it does also when the keeper is killed.

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

use super::relay::Relay;
use super::socket::KeeperSocket;

/// The program's first argument, if it is to be a keeper.
const COMMAND: &str = "keep-browser";
/// Has Chrome's pipes where it wants them: it reads from 3 and writes to 4.
const WITH_PIPES: &str =
    "exec \"$0\" \"$@\" --remote-debugging-pipe 3<&0 4>&1 </dev/null >/dev/null";
/// How long Chrome may take to end when asked.
const GRACE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
/// Looks at what is still there: nothing survives so many SIGKILLs but what the kernel holds.
const ROUNDS: u32 = 200;

/// In the browser's folder: locked, with others, by whoever uses the browser.
pub(super) const USERS: &str = "users.lock";

/// The arguments of a keeper: the browser's folder, then Chrome and its arguments.
pub(super) fn arguments(folder: &Path, chrome: &Path, flags: Vec<OsString>) -> Vec<OsString> {
    let mut all = vec![COMMAND.into(), folder.into(), chrome.into()];
    all.extend(flags);
    all
}

/// If this process was started as a keeper, does that work and gives its exit code. A program that
/// drives browsers calls it first of all.
pub fn keep_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let (Some(folder), Some(chrome)) = (arguments.next(), arguments.next()) else {
        complain("this is for shikiri itself to call");
        return Some(ExitCode::from(2));
    };
    let kept = keep(&PathBuf::from(folder), &chrome, arguments.collect());
    Some(kept.unwrap_or_else(|error| {
        complain(&format!("{} cannot be kept: {error}", chrome.display()));
        ExitCode::from(127)
    }))
}

#[expect(clippy::print_stderr, reason = "whoever started it reads it")]
fn complain(words: &str) {
    eprintln!("{words}");
}

fn keep(folder: &Path, chrome: &OsString, flags: Vec<OsString>) -> std::io::Result<ExitCode> {
    // What this process makes, and Chrome after it, is for their user only.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before there is a child: what Chrome leaves behind comes to us.
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
        let mut unused = wait_for_the_last(folder.join(USERS));
        // The pipes go with the relay, which Chrome takes as the wish that it end.
        let ended = tokio::select! {
            ended = child.wait() => Some(ended),
            () = Relay::serve(&socket, to_chrome, from_chrome) => None,
            _ = &mut unused => None,
            _ = terminate.recv() => None,
        };
        socket.remove();
        let ended = match ended {
            Some(ended) => ended.ok(),
            None => tokio::time::timeout(GRACE, child.wait()).await.ok().and_then(Result::ok),
        };
        if let Some(pid) = pid {
            // What has just ended takes no signal, and needs none.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        end_all().await;
        let code = ended.and_then(|ended| ended.code()).and_then(|code| u8::try_from(code).ok());
        Ok(ExitCode::from(code.unwrap_or(0)))
    })
}

/// Chrome, and the two ends of its pipe that are ours.
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

/// Told when nobody holds the lock any more; it is then held here, until this process ends.
fn wait_for_the_last(users: PathBuf) -> oneshot::Receiver<File> {
    let (last, told) = oneshot::channel();
    // It ends with the process, or with the last user.
    std::thread::spawn(move || {
        let Ok(file) = File::open(users) else { return };
        if file.lock().is_ok() {
            let _ = last.send(file);
        }
    });
    told
}

/// Kills whatever is below this process, until there is nothing.
async fn end_all() {
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

/// The living children of this process; theirs come to us when these end.
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
