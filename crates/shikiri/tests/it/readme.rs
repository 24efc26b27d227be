//! The README's first session and its section on the host, run as they are written: only the build,
//! the folder and the port are other ones.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use shikiri_testkit::{TestApp, skip};

use crate::PROGRAM;

const README: &str = include_str!("../../../../README.md");
/// The session takes about six seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// After which a command is stopped: as it is written, and what a busy machine may need.
const SECONDS: [u64; 3] = [2, 8, 20];

/// The shell blocks below a heading.
fn blocks<'a>(readme: &'a str, heading: &str) -> Vec<&'a str> {
    let (_, rest) = readme.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = rest.split("\n## ").next().unwrap_or_default();
    let opened = section.split("\n```sh\n").skip(1);
    opened.map(|block| block.split("\n```").next().unwrap_or_default()).collect()
}

/// The text with every `from` replaced, which must be there.
#[track_caller]
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the README no longer says {from:?}");
    text.replace(from, to)
}

/// Below the ports that the other tests and the system choose from; another one each time.
fn free_port() -> u16 {
    static ASKED: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + u16::try_from(std::process::id() % 5_000).unwrap();
    let first = first + 100 * ASKED.fetch_add(1, Ordering::Relaxed);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (first..20_000).find(is_free).expect("a free port")
}

/// Bash and everything that it has started; whatever is left of it is killed when dropped.
struct Session(Child);

impl Session {
    /// The exit code, if the end comes in time.
    fn wait(&mut self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
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

/// A script that begins so tells of every command that fails.
const TELLING: &str = "set -o pipefail\ntrap 'echo \"FAILED $?: $BASH_COMMAND\"' ERR";

/// Waits as a reader would, until the server is there.
fn ready(port: u16) -> String {
    format!(
        "for _ in $(seq 300); do\n  \
           if curl -sf http://127.0.0.1:{port}/healthz > /dev/null; then break; fi\n  \
           sleep 0.1\n\
         done"
    )
}

/// The blocks as one script, which tells of every command that fails. Between the first and the
/// second block it waits as a reader would, until the server is there.
fn script(folder: &Path, port: u16) -> String {
    let blocks = blocks(README, "A first session");
    let [start, rest, turns, mcp, commands] = blocks[..] else { panic!("five blocks: {blocks:?}") };
    let (build, start) = start.split_once('\n').unwrap();
    assert_eq!(build, r#"cargo build --release && export PATH="$PWD/target/release:$PATH""#);
    let ready = ready(port);
    let folder = folder.to_str().unwrap();
    [
        TELLING,
        &replaced(start, "/tmp/first", folder),
        &ready,
        "echo '== rest'",
        &replaced(rest, "127.0.0.1:7420", &format!("127.0.0.1:{port}")),
        "echo; echo '== turns'",
        turns,
        "echo; echo '== mcp'",
        &replaced(mcp, "127.0.0.1:7420", &format!("127.0.0.1:{port}")),
        "echo '== commands'",
        &replaced(commands, "/tmp/first", folder),
        "wait $!",
        "echo \"== served: $?\"",
        "",
    ]
    .join("\n")
}

fn has_curl() -> bool {
    let asked = Command::new("curl").arg("--version").stdout(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// What a script printed, on stdout and on stderr.
fn play(place: &Path, port: u16, script: &str) -> (String, String) {
    let (output, errors) = (place.join("output"), place.join("errors"));
    let programs = Path::new(PROGRAM).parent().unwrap().to_owned();
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&inherited)));
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-c", script])
        .env_clear()
        .env("PATH", path.unwrap())
        .env("HOME", place)
        .env("SHIKIRI_LISTEN", format!("127.0.0.1:{port}"))
        .current_dir(place)
        // Files, not pipes: nothing that stays behind can hold up the test.
        .stdin(Stdio::null())
        .stdout(File::create(&output).unwrap())
        .stderr(File::create(&errors).unwrap())
        .process_group(0);
    let mut session = Session(bash.spawn().unwrap());
    let code = session.wait();
    drop(session);
    let read = |path| std::fs::read_to_string(path).unwrap();
    let (output, errors) = (read(&output), read(&errors));
    assert_eq!(code, Some(0), "{output}\n-- stderr\n{errors}");
    (output, errors)
}

#[test]
fn the_readmes_first_session_runs_as_written() {
    if !has_curl() {
        return skip("the README's first session", "curl is not installed");
    }
    assert!(SECONDS.into_iter().any(first_session), "a command never came to attach in time");
}

/// With so many seconds for what is attached; whether it came to attach and to see enough.
fn first_session(seconds: u64) -> bool {
    let place = tempfile::tempdir().unwrap();
    let (folder, port) = (place.path().join("first"), free_port());
    let script = replaced(&script(&folder, port), "-s INT 2 ", &format!("-s INT {seconds} "));
    let (output, errors) = play(place.path(), port, &script);
    let told = format!("{output}\n-- stderr\n{errors}");
    let failed: Vec<_> = output.lines().filter(|line| line.starts_with("FAILED")).collect();
    let has_few_events = failed.iter().any(|line| line.contains("--after 20"));
    if !errors.contains("detached after event ") || has_few_events {
        eprintln!("{seconds} s were too few:\n{told}");
        return false;
    }
    // `timeout` says with 124 that it had to stop the command, which is what it is there for.
    let stopped = format!(r#"FAILED 124: timeout -s INT {seconds} shikiri attach "$RUN""#);
    assert_eq!(failed, [stopped], "{told}");
    check_outputs(&output, &told);
    assert!(errors.contains("draining"), "{told}");
    assert!(folder.join("backup.db").exists() && folder.join(".shikiri/state.db").exists());
    true
}

fn check_outputs(output: &str, told: &str) {
    let (start, rest) = output.split_once("== rest\n").expect(told);
    let (rest, commands) = rest.split_once("== commands\n").expect(told);
    let (rest, mcp) = rest.split_once("== mcp\n").expect(told);
    let (rest, turns) = rest.split_once("== turns\n").expect(told);
    assert_eq!(turns.matches("event: subagent_end\n").count(), 2, "{told}");
    assert_eq!(turns.matches("event: result\n").count(), 1, "{told}");
    assert!(turns.contains(r#""group_by":"subagent""#), "{told}");
    assert!(mcp.contains("notifications/progress"), "{told}");
    assert!(mcp.contains(r#""booked":false"#) && mcp.contains("Kyoto"), "{told}");
    assert!(start.contains("listening on http://127.0.0.1:"), "{told}");

    // Two streams of one run, the second taken up after event 20.
    let ids: Vec<u64> = rest.lines().filter_map(|l| l.strip_prefix("id: ")?.parse().ok()).collect();
    let end = *ids.last().expect(told);
    let expected: Vec<_> = (1..=end).chain(21..=end).collect();
    assert_eq!(ids, expected, "{told}");
    assert_eq!(rest.matches("event: result\n").count(), 2, "{told}");
    assert_eq!(rest.matches(r#""result":{"steps":5}"#).count(), 2, "{told}");

    for expected in [
        "was asked to stop",
        "CANCELLED: the run was cancelled",
        "  completed  ",
        r#""status": "cancelled""#,
        "is ready",
        "\nsound\n",
        "backed up to ",
        "== served: 0\n",
    ] {
        assert!(commands.contains(expected), "no {expected:?} in:\n{told}");
    }
}

#[test]
fn the_readmes_host_calls_resumes_and_plans_as_written() {
    if !has_curl() {
        return skip("the README's host", "curl is not installed");
    }
    assert!(SECONDS.into_iter().any(host_session), "a call was never kept in time");
}

/// The blocks as one script. The call is killed after so many seconds, of about twice as many.
fn host_script(folder: &Path, port: u16, seconds: u64) -> String {
    let session = blocks(README, "A first session");
    let (_, start) = session[0].split_once('\n').unwrap();
    let blocks = blocks(README, "Calling agents on other servers");
    let [servers, killed, plan] = blocks[..] else { panic!("three blocks: {blocks:?}") };
    let killed = replaced(killed, "-s KILL 2 ", &format!("-s KILL {seconds} "));
    [
        TELLING,
        &replaced(start, "/tmp/first", folder.to_str().unwrap()),
        &ready(port),
        &replaced(servers, "127.0.0.1:7420", &format!("127.0.0.1:{port}")),
        "echo '== killed'",
        &replaced(&killed, "steps=20 ", &format!("steps={} ", 10 * seconds)),
        "echo '== plan'",
        plan,
        "kill %1; wait %1",
        "",
    ]
    .join("\n")
}

/// With so many seconds for the call that is killed; whether it was kept by then.
fn host_session(seconds: u64) -> bool {
    let steps = (10 * seconds).to_string();
    let place = tempfile::tempdir().unwrap();
    let (folder, port) = (place.path().join("first"), free_port());
    let script = host_script(&folder, port, seconds);
    let (output, errors) = play(place.path(), port, &script);
    let told = format!("{output}\n-- stderr\n{errors}");
    if errors.contains("nothing was left to take up") {
        eprintln!("{seconds} s were too few:\n{told}");
        return false;
    }
    let (failed, output): (Vec<_>, Vec<_>) =
        output.lines().partition(|line| line.starts_with("FAILED"));
    let output = output.join("\n");
    let call = format!("trips long_running_agent --arg steps={steps} --arg step_ms=200");
    let kill = format!("FAILED 137: timeout -s KILL {seconds} shikiri host call {call}");
    assert_eq!(failed, [kill.as_str()], "{told}");
    let (calls, rest) = output.split_once("== killed\n").expect(&told);
    let (resumed, planned) = rest.split_once("== plan\n").expect(&told);
    for server in ["trips ", "here "] {
        let is_listed = |line: &str| line.starts_with(server) && line.contains("2026-07-28");
        assert!(calls.lines().any(is_listed), "{server}: {told}");
    }
    assert!(calls.contains("Kyoto") && calls.contains("booked"), "{told}");
    assert!(resumed.contains("long_running_agent") && resumed.contains(&steps), "{told}");
    assert!(
        planned.starts_with("To Kyoto for 1200 dollars. [offline, no model was asked]"),
        "{told}"
    );
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readmes_api_becomes_tools_as_written() {
    let app = TestApp::new(PROGRAM).start().await;
    let block = blocks(README, "APIs as tools").concat();
    let file = app.root().join("api.json");
    let block = replaced(&block, "/tmp/api.json", file.to_str().unwrap());
    let block = replaced(&block, "127.0.0.1:7420", &format!("127.0.0.1:{}", app.port()));
    let programs = Path::new(PROGRAM).parent().unwrap().to_owned();
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&inherited)));
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-ec", &block]).env_clear();
    let plain = app.cli().command(&[]);
    bash.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    bash.env("PATH", path.unwrap()).current_dir(app.root());
    let ended = tokio::task::spawn_blocking(move || bash.output()).await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{told}\n{}", String::from_utf8_lossy(&ended.stderr));
    for words in ["answers with ", "OpenAPI 3.1"] {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
    // As it was made, and as it was tried.
    assert_eq!(told.matches("list_tenants list_runs").count(), 2, "{told}");
}
