//! Processes: signals, children that run this test program in another role, and children whose
//! output is stored.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long the last lines of an ended child may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The variable with the role of a child that runs this test program.
pub const ROLE: &str = "SHIKIRI_TEST_ROLE";

/// The role of this process, if `spawn_role` started it.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Starts this test program again with only `test` (its full path), which finds its `role`.
pub fn spawn_role(test: &str, role: &str) -> Command {
    role_of(&std::env::current_exe().expect("this program's path"), test, role)
}

/// The same from a copy of this program in `folder`, where another user can start it: the build
/// folder may be in a private home.
pub fn spawn_role_in(folder: &Path, test: &str, role: &str) -> Command {
    let program = folder.join("role");
    let this = std::env::current_exe().expect("this program's path");
    if !program.exists() && std::fs::hard_link(&this, &program).is_err() {
        std::fs::copy(&this, &program).expect("a copy of this program");
    }
    role_of(&program, test, role)
}

fn role_of(program: &Path, test: &str, role: &str) -> Command {
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture", "--include-ignored"]).env(ROLE, role);
    command
}

/// Makes a program from a shell script. A separate process writes it: a file descriptor that is
/// open for writing here could be inherited by another test's child, and the script could then not
/// be started.
pub fn script(path: &Path, text: &str) {
    let write = r#"printf %s "$1" > "$0" && chmod 755 "$0""#;
    let args = [path.as_os_str(), text.as_ref()];
    let written = Command::new("sh").args(["-c", write]).args(args).status();
    assert!(written.expect("a shell").success(), "{} cannot be written", path.display());
}

/// Sends a signal to a child of this test.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    // A child that has just ended needs no signal.
    let _ = kill_process(pid, signal);
}

/// A user and group without privileges, if this process is root and has to switch to one.
pub fn unprivileged() -> Option<(u32, u32)> {
    let me = std::fs::metadata("/proc/self").expect("/proc").uid();
    (me == 0).then_some((65_534, 65_534))
}

/// A child process whose lines are stored and can be awaited. It is killed when dropped.
#[derive(Debug)]
pub struct Follower {
    child: Child,
    lines: Arc<Lines>,
    readers: [JoinHandle<()>; 2],
}

#[derive(Debug, Default)]
struct Lines {
    state: Mutex<Vec<String>>,
    grown: Condvar,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    /// Starts it and stores both outputs, in the order of arrival.
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let lines = Arc::new(Lines::default());
        let readers = [
            keep(child.stdout.take().expect("piped"), &lines),
            keep(child.stderr.take().expect("piped"), &lines),
        ];
        Self { child, lines, readers }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Waits for a line that `wanted` accepts; None if the process ends first.
    pub fn find<T>(&mut self, patience: Duration, wanted: impl Fn(&str) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + patience;
        loop {
            let ended = self.ended().is_some();
            if ended {
                self.read_to_the_end();
            }
            let lines = self.lines.lock();
            if let Some(found) = lines.iter().find_map(|line| wanted(line)) {
                return Some(found);
            }
            if ended || Instant::now() >= deadline {
                return None;
            }
            let pause = Duration::from_millis(50);
            drop(
                self.lines.grown.wait_timeout(lines, pause).unwrap_or_else(PoisonError::into_inner),
            );
        }
    }

    /// The exit code, or the negated signal; None while it runs.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().expect("a child").map(code)
    }

    /// Waits for the remaining output of an ended child, but not for a grandchild that holds the
    /// pipes.
    pub(crate) fn read_to_the_end(&self) {
        let start = Instant::now();
        while !self.readers.iter().all(JoinHandle::is_finished) && start.elapsed() < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the end; fails the test if it does not come in time.
    pub fn wait(&mut self, patience: Duration) -> i32 {
        let start = Instant::now();
        loop {
            if let Some(code) = self.ended() {
                self.read_to_the_end();
                return code;
            }
            assert!(
                start.elapsed() < patience,
                "the process did not end within {patience:?}:\n{}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All output so far; after `wait` it is complete.
    pub fn output(&self) -> String {
        self.lines.lock().join("\n")
    }

    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// The exit code, or the negated signal.
pub(crate) fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
}

fn keep(output: impl Read + Send + 'static, lines: &Arc<Lines>) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            lines.lock().push(text);
            lines.grown.notify_all();
            line.clear();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_child_in_a_role_is_this_program_again() {
        if role().is_some() {
            return println!("\nin the role of {role:?}", role = role().unwrap());
        }
        let this_test = "process::tests::a_child_in_a_role_is_this_program_again";
        let mut child = Follower::start(&mut spawn_role(this_test, "helper"));
        let found = child.find(PATIENCE, |line| line.contains("role of \"helper\"").then_some(()));
        assert_eq!(found, Some(()), "{}", child.output());
        assert_eq!(child.wait(PATIENCE), 0);
    }

    #[test]
    fn a_child_can_be_stopped_continued_and_killed() {
        let state = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit(')').next().unwrap().trim().chars().next().unwrap()
        };
        let until = |pid: u32, wanted: fn(char) -> bool| {
            let start = Instant::now();
            while !wanted(state(pid)) {
                assert!(start.elapsed() < PATIENCE, "the child is {}", state(pid));
                std::thread::yield_now();
            }
        };
        let mut child = Follower::start(Command::new("sleep").arg("60"));
        let pid = child.pid();
        child.signal(Signal::STOP);
        until(pid, |state| state == 'T');
        child.signal(Signal::CONT);
        until(pid, |state| state != 'T');
        assert_eq!(child.ended(), None);
        child.kill9();
        assert_eq!(child.ended(), Some(-Signal::KILL.as_raw()));
    }
}
