//! The examples at the end of each command's help do what they show: all of them are played, in one
//! folder, in an order in which a person could type them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use shikiri_testkit::Cli;
use tempfile::TempDir;

use crate::PROGRAM;

/// The commands whose examples are played, in order. `A: B` plays the shell line B before A.
const PLAYED: &str = "
    schema; completions; openapi; trust; status; doctor
    hooks; hooks install; hooks status; hooks check
    hooks init: rm .shikiri/conventions.toml
    hook: echo '{\"hook_event_name\":\"SessionStart\",\"session_id\":\"s\",\"cwd\":\".\"}' > event.json
    hooks log; hooks stats; hooks uninstall
    hooks import: mkdir .claude-nagger; printf -- 'rules:\\n- name: a\\n  patterns: [x]\\n  message: m\\n' > .claude-nagger/files.yaml
    tenants; tenants list; tenants show; tenants set; keys; keys create; keys list
    keys revoke: KEY=$(shikiri keys list --tenant acme --json | grep -o 'key_[A-Za-z0-9_-]*' | head -1)
    tenants delete
    tenants create; keys rotate-admin; audit
    models create; models; models list; models show; models set
    projects; projects list; projects show
    projects create: export SHIKIRI_STORE=sqlite:second.db
    agents add; agents; agents list; agents show
    tasks add; tasks; tasks list; tasks show; tasks set
    messages send; messages; messages list; messages show
    delegations; delegations list; dialogues; dialogues list
    agents set; agents remove; projects remove
    servers create; servers; servers list
    servers show: SERVER=$(shikiri servers list --json | grep -o 'mcp_[A-Za-z0-9_-]*' | head -1)
    servers set; servers remove
    skills create: printf -- '---\\nname: review\\ndescription: d\\n---\\nRead it.\\n' > SKILL.md
    skills; skills list; skills show; skills set; skills remove
    conversations create; run; conversations; conversations list; conversations show
    conversations set; conversations messages
    executions: EXECUTION=$(shikiri executions list --json | grep -o 'exe_[A-Za-z0-9_-]*' | head -1)
    executions list; executions show; conversations archive; conversations remove; usage
    ask: echo 'What is coffee?' > question.txt; export SHIKIRI_PAGES=offline
    lanes: LANE=$(shikiri lanes list --json | grep -o '\"name\": *\"[^\"]*' | head -1 | cut -d'\"' -f4)
    lanes list; lanes show; lanes export; history; lanes clean
    lanes import: echo '{\"projects\":{\"p\":{\"chatgpt\":{\"url\":\"https://chatgpt.com/c/a\"}}}}' > sessions.json
    runs start; runs show; cancel; attach; runs; runs list
    subagents; who; host tokens; host tokens list; host tokens clean
    db check; db migrate; db backup; db; db restore
";

/// Lines with these are not played: they wait for a server, or end only when they are stopped.
const ENDLESS: [&str; 2] = ["--follow", "--watch"];

/// What is not played, and why. A unit test still parses it.
const NOT_PLAYED: [(&str, &str); 22] = [
    ("demo", "tests of its own play it"),
    ("serve", "it goes on until it is stopped"),
    ("mcp", "it needs Claude Code"),
    ("host", "it needs an MCP server"),
    ("host list", "it needs an MCP server"),
    ("host tools", "it needs an MCP server"),
    ("host call", "it needs an MCP server"),
    ("host resume", "it needs an MCP server"),
    ("host run", "it needs an MCP server"),
    ("host plan", "it needs a model"),
    ("host login", "it needs another server's login"),
    ("host logout", "it needs another server's login"),
    ("servers check", "it needs an MCP server"),
    ("subagents role", "it needs Claude Code's subagents"),
    ("subagents forget", "it needs Claude Code's subagents"),
    ("runs answer", "it needs a run that asks"),
    ("delegations show", "it needs agents at work"),
    ("dialogues show", "it needs agents at work"),
    ("dialogues cancel", "it needs agents at work"),
    ("browser", "it needs a Chrome"),
    ("browser login", "it needs a Chrome"),
    ("browser check", "it needs a Chrome"),
];

/// The commands of a help text, and its examples.
fn read_help(help: &str) -> (Vec<String>, Vec<String>) {
    let before = help.lines().take_while(|line| *line != "Options:");
    let named = before.filter_map(|line| line.strip_prefix("  "));
    let named = named.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let commands = named.filter_map(|line| line.split_whitespace().next());
    let commands = commands.filter(|name| *name != "help").map(str::to_owned).collect();
    let examples = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
    let examples = examples.take_while(|line| line.starts_with("  "));
    (commands, examples.map(|line| line.trim().to_owned()).collect())
}

/// All commands with their examples.
pub(super) fn all_examples(cli: &Cli, path: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
    words.push("--help");
    let (commands, examples) = read_help(&cli.run(&words).done().stdout);
    if !path.is_empty() {
        found.push((path.join(" "), examples));
    }
    for name in commands {
        all_examples(cli, &[path, &[name]].concat(), found);
    }
}

/// The steps of [`PLAYED`]: a command, and the line before it.
fn steps() -> Vec<(&'static str, &'static str)> {
    let lines = PLAYED.lines().map(str::trim).filter(|line| !line.is_empty());
    let steps = lines.flat_map(|line| match line.split_once(": ") {
        Some((command, before)) => vec![(command, before)],
        None => line.split("; ").map(|command| (command, ":")).collect(),
    });
    steps.collect()
}

#[test]
fn the_examples_of_every_command_do_what_they_show() {
    let folder = TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path()).env("COLUMNS", "100");
    let mut all = Vec::new();
    all_examples(&cli, &[], &mut all);
    let played: Vec<&str> = steps().iter().map(|(command, _)| *command).collect();
    let left_out = NOT_PLAYED.iter().map(|(command, _)| *command);
    let decided: BTreeSet<&str> = played.iter().copied().chain(left_out.clone()).collect();
    let undecided: Vec<&String> =
        all.iter().map(|(path, _)| path).filter(|path| !decided.contains(path.as_str())).collect();
    assert_eq!(undecided, Vec::<&String>::new(), "played or not, and why?");

    let mut script = "set -e; trap 'echo \"FAILED: $BASH_COMMAND\" >&2' ERR\n".to_owned();
    for (command, before) in steps() {
        let examples = all.iter().find(|(path, _)| path == command);
        let (_, examples) = examples.unwrap_or_else(|| panic!("there is no command {command}"));
        script.push_str(&format!("{before}\n"));
        for line in examples.iter().filter(|line| !ENDLESS.iter().any(|flag| line.contains(flag))) {
            script.push_str(&format!("{line}\n"));
        }
    }
    play(folder.path(), &script);
}

fn play(folder: &Path, script: &str) {
    fs::write(folder.join("examples.sh"), script).unwrap();
    let programs = Path::new(PROGRAM).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let played = Command::new("bash")
        .arg("examples.sh")
        .current_dir(folder)
        .env_clear()
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("HOME", folder.join("home"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{told}\n{}", String::from_utf8_lossy(&played.stdout));
}
