//! No option of every command is ignored silently: each command uses it, or refuses it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use shikiri_testkit::Cli;

use super::help_examples::all_examples;
use crate::PROGRAM;

const REFUSED: &str = "does not use --";

/// Every command as its examples show it, each line once.
fn example_lines(folder: &Path) -> BTreeSet<String> {
    let cli = Cli::new(PROGRAM, folder).env("COLUMNS", "100");
    let mut all = Vec::new();
    all_examples(&cli, &[], &mut all);
    all.into_iter().flat_map(|(_, lines)| lines).collect()
}

/// What a line of a shell prints if its `shikiri` is given these options before its words.
fn printed(folder: &Path, line: &str, options: &str, env: &[(&str, &str)]) -> String {
    let script = format!(
        "exec 2>&1
        shikiri() {{ timeout 30 \"$PROGRAM\" {options} \"$@\"; }}
        claude() {{ shift 4; \"$@\"; }}
        {line}"
    );
    let path = std::env::var("PATH").unwrap_or_default();
    let ended = Command::new("bash")
        .args(["--norc", "-c", &script])
        .current_dir(folder)
        .env_clear()
        .envs([("PATH", path.as_str()), ("PROGRAM", PROGRAM), ("SHIKIRI_PAGES", "offline")])
        .envs(["RUN", "CONVERSATION", "EXECUTION", "TASK", "MESSAGE"].map(|name| (name, "an_id")))
        .envs(["DELEGATION", "DIALOGUE", "LANE", "KEY", "SERVER"].map(|name| (name, "an_id")))
        .envs(["AGENT", "SESSION"].map(|name| (name, "an_id")))
        .envs(env.iter().copied())
        .env("HOME", folder.join("home"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(ended.stdout).unwrap()
}

/// A folder with the files that the examples read.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("event.json", r#"{"hook_event_name":"SessionStart","session_id":"s","cwd":"."}"#);
    write("question.txt", "What is coffee?");
    write("SKILL.md", "---\nname: review\ndescription: d\n---\nRead it.\n");
    write("sessions.json", r#"{"projects":{"p":{"chatgpt":{"url":"https://chatgpt.com/c/a"}}}}"#);
    write("plan.toml", "[[task]]\nid = 'a'\ntool = 't'\n");
    let cli = Cli::new(PROGRAM, folder.path());
    cli.run(&["projects", "create", "site"]).done();
    cli.run(&["db", "backup", "copy.db"]).done();
    folder
}

#[test]
fn every_command_uses_the_store_of_its_options_or_refuses_it() {
    let folder = folder();
    let mut ignored = Vec::new();
    for line in example_lines(folder.path()) {
        // Agreements are noted in the store, where there is something to agree to.
        let asks = folder.path().join(".mcp.json");
        if line == "shikiri trust" {
            fs::write(&asks, r#"{"mcpServers":{"a":{"type":"http","url":"http://127.0.0.1:9"}}}"#)
                .unwrap();
        }
        // No file can be there: a command that opens it has to say so.
        let text = printed(folder.path(), &line, "--store sqlite:/dev/null/x.db", &[]);
        if !text.contains("/dev/null") && !text.contains(REFUSED) {
            ignored.push(format!("{line}: {text}"));
        }
        let _ = fs::remove_file(&asks);
    }
    assert!(ignored.is_empty(), "{ignored:#?}");
}

#[test]
fn every_command_uses_the_log_format_or_refuses_it() {
    let folder = folder();
    let mut ignored = Vec::new();
    for line in example_lines(folder.path()) {
        // Logging starts with its format, and says that it cannot start with this filter.
        let log = [("SHIKIRI_LOG", "[[")];
        let text = printed(folder.path(), &line, "--log-format json", &log);
        if !text.contains("the log filter") && !text.contains(REFUSED) {
            ignored.push(format!("{line}: {text}"));
        }
    }
    assert!(ignored.is_empty(), "{ignored:#?}");
}

/// The commands whose output has times; every other one refuses `--utc`.
const WITH_TIMES: [&str; 23] = [
    "agents",
    "attach",
    "audit",
    "conversations",
    "delegations",
    "dialogues",
    "executions",
    "history",
    "hooks log",
    "hooks stats",
    "host",
    "keys",
    "lanes",
    "messages",
    "models",
    "projects",
    "runs",
    "servers",
    "skills",
    "tasks",
    "tenants",
    "trust",
    "who",
];

#[test]
fn a_command_that_shows_no_times_refuses_utc() {
    let folder = folder();
    let mut ignored = Vec::new();
    for line in example_lines(folder.path()) {
        let words = line.split("shikiri ").last().unwrap_or_default();
        let has_times = WITH_TIMES.iter().any(|command| {
            words.strip_prefix(command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        });
        // With a store that cannot be opened, no command goes on to do anything.
        let store = [("SHIKIRI_STORE", "sqlite:/dev/null/x.db")];
        let text = printed(folder.path(), &line, "--utc", &store);
        if has_times == text.contains("does not use --utc") {
            ignored.push(format!("{line}: {text}"));
        }
    }
    assert!(ignored.is_empty(), "{ignored:#?}");
}
