//! A page's commands in one bash, in one empty folder, as a reader has them.

use std::fmt::Write as _;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::page::{Step, missing};
use crate::PROGRAM;

/// A page takes some seconds.
const PATIENCE: Duration = Duration::from_secs(180);
/// The address that pages name.
const ADDRESS: &str = "127.0.0.1:7420";
/// What is printed before a step's output, and before what went wrong.
const STEP: &str = "=== step ";
const FAILED: &str = "=== failed: ";

/// Plays the steps and says what was not as the page promises. Commands that the page stops with
/// `timeout` get that many times the seconds.
pub(super) fn play(steps: &[Step], patience: u32) -> Result<(), String> {
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let port = free_port();
    let script = script(steps, port, patience);
    let printed = run(place.path(), port, &script)?;
    let mut wrong: Vec<_> =
        printed.lines().filter(|line| line.starts_with(FAILED)).map(str::to_owned).collect();
    for (index, step) in steps.iter().enumerate() {
        let Some(output) = output_of(&printed, index) else {
            wrong.push(format!("line {}: was not reached", step.line));
            continue;
        };
        if let Some(line) = missing(&step.expected, output) {
            wrong.push(format!("line {}: {line:?} does not come out, or not there", step.line));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("{}\n{printed}", wrong.join("\n"))) }
}

fn output_of(printed: &str, index: usize) -> Option<&str> {
    let (_, rest) = printed.split_once(&format!("{STEP}{index}\n"))?;
    Some(rest.split(STEP).next().unwrap_or_default())
}

/// Below the ports that the other tests and the system choose from; another one each time.
fn free_port() -> u16 {
    static ASKED: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + u16::try_from(std::process::id() % 5_000).unwrap();
    let first = first + 100 * ASKED.fetch_add(1, Ordering::Relaxed);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (first..20_000).find(is_free).expect("a free port")
}

fn script(steps: &[Step], port: u16, patience: u32) -> String {
    let mut script = "set -o pipefail\n".to_owned();
    for (index, step) in steps.iter().enumerate() {
        let line = step.line;
        writeln!(script, "echo; echo '{STEP}{index}'").unwrap();
        if step.exit == 0 {
            // `timeout` ends so when it had to stop the command, which is what it is there for.
            let told = format!(r#"echo "{FAILED}line {line}: $c: $BASH_COMMAND""#);
            writeln!(script, "trap 'c=$?; [ $c = 124 ] || [ $c = 137 ] || {told}' ERR").unwrap();
        } else {
            script.push_str("trap - ERR\n");
        }
        for command in step.commands.lines() {
            let command = command.replace(ADDRESS, &format!("127.0.0.1:{port}"));
            writeln!(script, "{}", with_patience(&command, patience)).unwrap();
            if starts_a_server(&command) {
                let asked = format!("curl -sf http://127.0.0.1:{port}/healthz");
                let wait =
                    format!("for _ in $(seq 600); do {asked} >/dev/null && break; sleep 0.1; done");
                writeln!(script, "{wait}").unwrap();
            }
        }
        if step.exit != 0 {
            let (exit, told) = (step.exit, format!("{FAILED}line {line}: ended with"));
            writeln!(script, r#"c=$?; [ $c = {exit} ] || echo "{told} $c, not {exit}""#).unwrap();
        }
    }
    // What the page leaves running must not keep the shell.
    script.push_str("trap - ERR\nkill $(jobs -p) 2>/dev/null\nwait\n");
    script
}

/// Readers wait until the server that they started answers.
fn starts_a_server(command: &str) -> bool {
    let command = command.split(" #").next().unwrap_or_default().trim_end();
    command.contains("shikiri serve") && command.ends_with('&')
}

/// The seconds of `timeout -s SIGNAL SECONDS`, as many times.
fn with_patience(command: &str, patience: u32) -> String {
    let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    let options: Vec<_> = (0..words.len()).filter(|at| words[*at] == "timeout").collect();
    for at in options {
        if let Some(seconds) = words.get_mut(at + 3) {
            let number: u32 = seconds.parse().expect("timeout -s SIGNAL SECONDS");
            *seconds = (number * patience).to_string();
        }
    }
    words.join(" ")
}

/// Bash and everything that it has started; whatever is left of it is killed when dropped.
pub(super) struct Session(Child);

impl Session {
    /// The child leads a process group of its own.
    pub(super) fn new(child: Child) -> Self {
        Self(child)
    }

    /// The exit code, if the end comes in time.
    pub(super) fn wait(&mut self, limit: Duration) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let group = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.0.wait();
    }
}

/// What the script printed, both streams as they came.
fn run(place: &Path, port: u16, script: &str) -> Result<String, String> {
    let outside = tempfile::tempdir().map_err(|error| error.to_string())?;
    let output = outside.path().join("output");
    let programs = Path::new(PROGRAM).parent().unwrap().to_owned();
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&inherited)));
    // A file, not a pipe: nothing that stays behind can hold up the test.
    let file = File::create(&output).map_err(|error| error.to_string())?;
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-c", script])
        .env_clear()
        .env("PATH", path.unwrap())
        .env("HOME", place)
        .env("LANG", "C.UTF-8")
        .env("SHIKIRI_LISTEN", format!("127.0.0.1:{port}"))
        .current_dir(place)
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(|error| error.to_string())?)
        .stderr(file)
        .process_group(0);
    let mut session = Session::new(bash.spawn().map_err(|error| error.to_string())?);
    let code = session.wait(PATIENCE);
    drop(session);
    let printed = String::from_utf8_lossy(&std::fs::read(&output).unwrap()).into_owned();
    match code {
        Some(_) => Ok(printed),
        None => Err(format!("not over after {PATIENCE:?}\n{printed}")),
    }
}

#[test]
fn only_seconds_of_timeouts_grow() {
    let command = with_patience("timeout -s INT 2 shikiri attach --after 20", 4);
    assert_eq!(command, "timeout -s INT 8 shikiri attach --after 20");
    assert!(starts_a_server("shikiri serve &      # on 127.0.0.1"));
    assert!(!starts_a_server("shikiri serve --help"));
}
