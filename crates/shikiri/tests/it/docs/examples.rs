//! Each folder in `examples/`, started by the one command of its README, as a newcomer does: with
//! `shikiri` on the PATH, without a key, and in under a minute.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::session::Session;
use super::{curl_is_missing, project};
use crate::PROGRAM;

/// What the examples' page promises, with room for a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

/// A test for each example, so that they run side by side. Each names lines that must come out, in
/// this order.
macro_rules! examples {
    ($($name:ident: $folder:literal prints $lines:expr;)*) => {
        const EXAMPLES: &[&str] = &[$($folder),*];
        $(
            #[test]
            fn $name() {
                play($folder, &$lines);
            }
        )*
    };
}

examples! {
    executions_example: "executions" prints ["event: session_start", "event: result", "\"kind\":\"subagent\""];
    teams_example: "teams" prints ["max_turns", "completed", "done"];
    lanes_example: "lanes" prints ["リースとは何ですか"];
    hooks_example: "hooks" prints ["additionalContext", "\"permissionDecision\":\"deny\"", "tester"];
    agents_over_mcp_example: "agents-over-mcp" prints ["\"status\":\"booked\"", "\"steps\":12"];
}

#[test]
fn every_example_is_played() {
    let entries = std::fs::read_dir(project().join("examples")).unwrap();
    let folders = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let found: BTreeSet<String> =
        folders.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(found, EXAMPLES.iter().map(|name| (*name).to_owned()).collect());
}

fn play(name: &str, lines: &[&str]) {
    if curl_is_missing(name) {
        return;
    }
    let printed = run(&project().join("examples").join(name).join("run.sh"));
    // JSON with and without a space after its colons.
    let mut rest = printed.replace("\": ", "\":");
    for line in lines.iter().chain(&["== done"]) {
        let Some((_, after)) = rest.split_once(line) else {
            panic!("{name}: {line:?} does not come out, or not there:\n{printed}")
        };
        rest = after.to_owned();
    }
}

/// What the script printed, both streams as they came.
fn run(script: &Path) -> String {
    let home = tempfile::tempdir().unwrap();
    let output = home.path().join("output");
    let file = File::create(&output).unwrap();
    let mut paths: Vec<PathBuf> = vec![Path::new(PROGRAM).parent().unwrap().to_owned()];
    paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut bash = Command::new(script);
    bash.env_clear()
        .env("PATH", std::env::join_paths(paths).unwrap())
        .env("HOME", home.path())
        .env("LANG", "C.UTF-8")
        .env("TMPDIR", home.path())
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .process_group(0);
    let start = Instant::now();
    let status = Session::new(bash.spawn().unwrap()).wait(LIMIT);
    let printed = String::from_utf8_lossy(&std::fs::read(&output).unwrap()).into_owned();
    assert_eq!(status, Some(0), "{} after {:?}:\n{printed}", script.display(), start.elapsed());
    printed
}
