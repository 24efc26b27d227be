//! Runs the program from the command line: arguments in, exit code and two outputs back.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::{Follower, code};
use crate::server::Launch;

/// No command may take longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program in a folder of its own, with nothing of the caller's environment.
#[derive(Clone, Debug)]
pub struct Cli {
    launch: Launch,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The exit code, or the negated signal.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Cli {
    pub fn new(program: impl AsRef<Path>, root: impl AsRef<Path>) -> Self {
        let (program, root) = (program.as_ref().to_owned(), root.as_ref().to_owned());
        Self { launch: Launch { program, root, store: None, env: Vec::new(), user: None } }
    }

    pub(crate) fn from_launch(launch: Launch) -> Self {
        Self { launch }
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.launch.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn store(mut self, url: &str) -> Self {
        self.launch.store = Some(url.to_owned());
        self
    }

    /// As another user, which only root can ask for.
    #[must_use]
    pub fn user(mut self, user: Option<(u32, u32)>) -> Self {
        self.launch.user = user;
        self
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.launch.command();
        command.args(args);
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Ended {
        let mut command = self.command(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let pid = child.id();
        let (told, hear) = std::sync::mpsc::channel::<()>();
        let watchdog = std::thread::spawn(move || {
            if hear.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                crate::process::signal(pid, rustix::process::Signal::KILL);
            }
        });
        let start = Instant::now();
        let output = child.wait_with_output().expect("the child's output");
        drop(told);
        let _ = watchdog.join();
        assert!(start.elapsed() < PATIENCE, "`shikiri {}` took too long", args.join(" "));
        Ended {
            code: code(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts a command and leaves it running.
    pub fn start(&self, args: &[&str]) -> Follower {
        Follower::start(&mut self.command(args))
    }
}

impl Ended {
    /// The outputs of a successful command.
    #[track_caller]
    pub fn done(self) -> Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Checks for one error line that contains `words`, and for its exit code.
    #[track_caller]
    pub fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "one line of error:\n{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        let read = serde_json::from_str(&self.stdout);
        read.unwrap_or_else(|e| panic!("not JSON ({e}): {}\n{}", self.stdout, self.stderr))
    }
}
