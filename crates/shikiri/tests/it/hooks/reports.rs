//! What the command line tells about subagents and hooks.

use std::path::Path;

use serde_json::{Value, json};
use shikiri_testkit::Cli;

use super::call::told;
use crate::PROGRAM;

const CONVENTIONS: &str = "
[default]
text = \"default text\"
[roles.tester]
text = \"tester text\"
[roles.coder]
text = \"coder text\"
[[rules]]
name = \"no push\"
commands = [\"git push*\"]
severity = \"block\"
message = \"never push\"
";

struct World {
    folder: tempfile::TempDir,
    cli: Cli,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(".shikiri")).unwrap();
        std::fs::write(folder.path().join(".shikiri/conventions.toml"), CONVENTIONS).unwrap();
        let cli = Cli::new(PROGRAM, folder.path());
        Self { folder, cli }
    }

    fn hook(&self, session: &str, event: &str, mut fields: Value) -> String {
        fields["session_id"] = json!(session);
        fields["hook_event_name"] = json!(event);
        told(&mut self.cli.command(&["hook"]), &fields)
    }

    /// An agent spawns another, which starts.
    fn spawn(&self, session: &str, parent: Option<&str>, agent: &str, role: &str) {
        let input =
            json!({ "subagent_type": "general-purpose", "prompt": format!("[ROLE:{role}] go") });
        let mut call = json!({ "tool_name": "Agent", "tool_use_id": format!("t-{agent}"),
                               "tool_input": input });
        if let Some(parent) = parent {
            call["agent_id"] = json!(parent);
            call["agent_type"] = json!("general-purpose");
        }
        self.hook(session, "PreToolUse", call);
        let started = json!({ "agent_id": agent, "agent_type": "general-purpose" });
        self.hook(session, "SubagentStart", started);
    }

    /// It has spent this, and ends.
    fn stop(&self, session: &str, agent: &str, spent: &[(&str, u64, u64)]) {
        let file = self.folder.path().join(format!("{agent}.jsonl"));
        write_transcript(&file, spent);
        let stopped = json!({ "agent_id": agent, "agent_type": "general-purpose",
                              "agent_transcript_path": file });
        self.hook(session, "SubagentStop", stopped);
    }

    fn json(&self, args: &[&str]) -> Value {
        self.cli.run(&[args, &["--json"]].concat()).done().json()
    }
}

fn write_transcript(path: &Path, spent: &[(&str, u64, u64)]) {
    let lines = spent.iter().enumerate().map(|(number, (model, input, output))| {
        let usage = json!({ "input_tokens": input, "output_tokens": output });
        let message = json!({ "id": format!("m{number}"), "model": model, "usage": usage,
                              "content": [] });
        format!("{}\n", json!({ "type": "assistant", "message": message }))
    });
    std::fs::write(path, lines.collect::<String>()).unwrap();
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Rows 3.16, 3.17: the tree, with what each cost as far as prices are known.
#[test]
fn subagents_are_shown_as_a_tree_with_role_state_and_cost() {
    let world = World::new();
    world.spawn("old", None, "z9", "coder");
    world.spawn("s", None, "a1", "tester");
    world.spawn("s", Some("a1"), "b1", "coder");
    world.spawn("s", None, "a2", "coder");
    world.stop("s", "b1", &[("claude-x", 1_000, 200), ("claude-x", 1_000, 0)]);
    world.stop("s", "a2", &[("claude-x", 5, 5), ("unknown-model", 1, 1)]);
    let price = ["models", "create", "claude-x", "--engine", "claude-code"];
    world.cli.run(&[&price[..], &["--price-input", "3", "--price-output", "15"]].concat()).done();

    let shown = world.cli.run(&["subagents"]).done().stdout;
    let lines: Vec<_> = shown.lines().map(words).collect();
    assert_eq!(lines[0][..3], ["AGENT", "TYPE", "ROLE"], "{shown}");
    let without_time = |line: &[&str]| {
        let at = line.len() - 3;
        let mut line: Vec<_> = line.iter().map(|word| (*word).to_owned()).collect();
        line.remove(at).parse::<f64>().expect("seconds");
        line.join(" ")
    };
    let rows: Vec<_> = lines[1..].iter().map(|line| without_time(line)).collect();
    assert_eq!(
        rows,
        [
            "a1 general-purpose tester task_match unique active ? ?",
            "└ b1 general-purpose coder task_match unique ended (stopped) 2200 0.0090",
            "a2 general-purpose coder task_match unique ended (stopped) 12 ?",
        ],
        "{shown}"
    );
    let all = world.cli.run(&["subagents", "--all"]).done().stdout;
    assert!(all.contains("z9"), "{all}");
    world.spawn("known", None, "k1", "coder");
    world.stop("known", "k1", &[("claude-haiku-4-5-20251001", 1_000, 200)]);
    let known = world.cli.run(&["subagents", "--session", "known"]).done();
    assert!(known.stdout.contains(" 0.0020\n"), "1,000 at 1 and 200 at 5: {}", known.stdout);
    let note = "built-in prices as of 2026-11-19: claude-haiku-4-5-20251001\n";
    assert_eq!(known.stderr, note);
    let old = world.cli.run(&["subagents", "--hook-session", "old"]).done().stdout;
    assert_eq!(old.lines().count(), 2, "{old}");
    let same = world.cli.run(&["subagents", "--session", "old"]).done().stdout;
    let row = |shown: &str| without_time(&words(shown.lines().nth(1).unwrap()));
    assert_eq!(row(&same), row(&old));

    let json = world.json(&["subagents", "--session", "s"]);
    let b1 = json["items"].as_array().unwrap().iter().find(|i| i["agent_id"] == "b1").unwrap();
    for (field, value) in [
        ("session_id", json!("s")),
        ("agent_type", json!("general-purpose")),
        ("role", json!("coder")),
        ("role_source", json!("task_match")),
        ("startup_processed", json!(true)),
        ("parent_agent_id", json!("a1")),
        ("tool_use_id", json!("t-b1")),
        ("state", json!("ended")),
        ("cost_usd", json!(0.009)),
    ] {
        assert_eq!(b1[field], value, "{field} of {b1}");
    }
    assert_eq!(b1["usage"]["input_tokens"], 2_000);
    for field in ["created_at", "startup_processed_at", "task_match_index"] {
        assert!(!b1[field].is_null(), "{field} of {b1}");
    }
}

/// Row 3.16: a role that is given by hand holds, and its convention is delivered.
#[test]
fn a_role_can_be_given_by_hand_and_a_session_forgotten() {
    let world = World::new();
    world.spawn("s", None, "a1", "tester");
    world.spawn("s", None, "a2", "tester");
    let given = world.cli.run(&["subagents", "role", "a1", "coder"]).done().stdout;
    assert_eq!(given, "a1 is coder\n");
    let call = json!({ "agent_id": "a1", "agent_type": "general-purpose", "tool_name": "Read" });
    let answer: Value = serde_json::from_str(&world.hook("s", "PreToolUse", call)).unwrap();
    assert_eq!(answer["hookSpecificOutput"]["additionalContext"], "coder text");
    let items = world.json(&["subagents"])["items"].take();
    let a1 = items.as_array().unwrap().iter().find(|item| item["agent_id"] == "a1").unwrap();
    assert_eq!((&a1["role"], &a1["role_source"]), (&json!("coder"), &json!("manual")));
    world.cli.run(&["subagents", "role", "absent", "coder"]).refused(4, &["absent"]);
    world.cli.run(&["subagents", "role", "a1", "two words"]).refused(2, &["role"]);

    let forgotten = world.cli.run(&["subagents", "forget", "s"]).done().stdout;
    assert_eq!(forgotten, "2 subagents are forgotten\n");
    assert_eq!(world.json(&["subagents"])["items"], json!([]));
}

/// Row 3.19: the latest events and figures about them.
#[test]
fn the_log_and_its_figures_are_shown() {
    let world = World::new();
    for _ in 0..3 {
        world.hook("chatty", "Notification", json!({}));
    }
    world.spawn("s", None, "a1", "tester");
    let push = json!({ "tool_name": "Bash", "tool_input": { "command": "git push" } });
    world.hook("s", "PreToolUse", push);

    let lines = world.json(&["hooks", "log"]);
    let lines = lines["items"].as_array().unwrap();
    assert_eq!(lines.len(), 6);
    let last = lines.last().unwrap();
    assert_eq!((&last["event_type"], &last["result"]), (&json!("PreToolUse"), &json!("blocked")));
    assert_eq!(last["details"]["rules"], json!(["no push"]));
    let newest = world.json(&["hooks", "log", "--limit", "2"]);
    assert_eq!(newest["items"].as_array().unwrap()[1], *last);
    let chatty = world.cli.run(&["hooks", "log", "--session", "chatty"]).done().stdout;
    assert_eq!(chatty.lines().count(), 4, "{chatty}");
    assert!(chatty.lines().skip(1).all(|line| line.contains("Notification")), "{chatty}");

    let stats = world.json(&["hooks", "stats"]);
    let of = |hook: &str| {
        let hooks = stats["hooks"].as_array().unwrap();
        let found = hooks.iter().find(|figures| figures["hook_name"] == hook);
        found.unwrap_or_else(|| panic!("no {hook} in {stats}")).clone()
    };
    assert_eq!(of("Notification")["count"], 3);
    assert_eq!(of("subagent_event")["injected"], 1);
    assert_eq!(of("PreToolUse")["blocked"], 1);
    assert!(of("Notification")["max_ms"].is_u64());
    let session = &stats["sessions"][0];
    assert_eq!((&session["session_id"], &session["active"]), (&json!("s"), &json!(1)));
    let shown = world.cli.run(&["hooks", "stats"]).done().stdout;
    assert!(shown.contains("AVERAGE MS") && shown.contains("chatty"), "{shown}");

    let elsewhere = tempfile::tempdir().unwrap();
    let project = world.folder.path().to_str().unwrap();
    let from_afar = Cli::new(PROGRAM, elsewhere.path());
    let log = from_afar.run(&["hooks", "log", "--project", project, "--json"]).done().json();
    assert_eq!(log["items"].as_array().unwrap().len(), 6);
    from_afar.run(&["hooks", "log"]).refused(4, &["no data"]);
}

/// One store: commands show what hooks wrote, whatever the configuration says and in every worktree.
#[test]
fn hooks_and_commands_use_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let (main, linked) = (folder.path().join("main"), folder.path().join("linked"));
    std::fs::create_dir(&main).unwrap();
    let git = |words: &[&str]| {
        let who = ["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "a"));
        let mail = ["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "a@example.com"));
        let mut command = std::process::Command::new("git");
        let done = command.arg("-C").arg(&main).args(words).envs(who).envs(mail).output().unwrap();
        assert!(done.status.success(), "git {words:?}: {done:?}");
    };
    std::fs::write(main.join("shikiri.toml"), "store = 'sqlite:data/x.db'\n").unwrap();
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "one"]);
    git(&["worktree", "add", "-q", "../linked"]);
    for root in [&main, &linked] {
        let mut hook = Cli::new(PROGRAM, root).command(&["hook"]);
        hook.env("CLAUDE_PROJECT_DIR", root);
        told(&mut hook, &json!({ "session_id": "s", "hook_event_name": "Stop" }));
    }
    for root in [&main, &linked] {
        let log = Cli::new(PROGRAM, root).run(&["hooks", "log", "--json"]).done().json();
        assert_eq!(log["items"].as_array().unwrap().len(), 2, "{}", root.display());
    }
    assert!(main.join("data/x.db").exists() && !linked.join("data").exists());
}
