//! `shikiri hooks init` and `shikiri hooks check`: what they say is what a hook does.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use shikiri_testkit::Cli;
use tempfile::TempDir;

use super::call::told;
use crate::PROGRAM;

struct World {
    folder: TempDir,
    cli: Cli,
}

impl World {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let cli = Cli::new(PROGRAM, folder.path());
        Self { folder, cli }
    }

    fn with(conventions: &str) -> Self {
        let world = Self::new();
        fs::create_dir(world.folder.path().join(".shikiri")).unwrap();
        fs::write(world.folder.path().join(".shikiri/conventions.toml"), conventions).unwrap();
        world
    }

    fn check(&self, args: &[&str]) -> Value {
        let args = [&["hooks", "check", "--json"], args].concat();
        self.cli.run(&args).done().json()
    }

    /// What a hook in a process of its own answers.
    fn hook(&self, mut payload: Value, session: &str) -> Value {
        payload["session_id"] = json!(session);
        payload["cwd"] = json!(self.folder.path());
        let answer = told(&mut self.cli.command(&["hook"]), &payload);
        serde_json::from_str(&answer).unwrap_or_default()
    }
}

/// The first conventions have no problem, and do what they say.
#[test]
fn a_project_starts_with_sound_conventions() {
    let world = World::new();
    world.cli.run(&["hooks", "check"]).refused(4, &["conventions.toml", "shikiri hooks init"]);
    let path = world.cli.run(&["hooks", "init"]).done().stdout;
    let path = path.trim();
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o400, 0o400);
    assert!(
        fs::read_to_string(world.folder.path().join(".shikiri/.gitignore"))
            .unwrap()
            .contains("!conventions.toml")
    );
    let checked = world.check(&[]);
    assert_eq!((&checked["problems"], &checked["notes"]), (&json!([]), &json!([])));

    let blocked = world.check(&["--role", "tester", "--path", "src/lib.rs"]);
    assert_eq!(blocked["steps"][2]["rules"], json!(["testers change tests only"]));
    assert!(blocked["steps"][2]["deny"].is_string(), "{blocked}");
    let allowed = world.check(&["--role", "tester", "--path", "src/a/tests/x.rs"]);
    assert_eq!(allowed["steps"][2]["deny"], Value::Null);
    let push = world.check(&["--main", "--command", "cd x && git push origin --force"]);
    assert!(push["steps"][0]["deny"].is_string(), "{push}");
    let quiet = world.check(&["--agent-type", "Explore"]);
    let said: Vec<_> = quiet["steps"].as_array().unwrap().iter().map(|s| &s["context"]).collect();
    assert_eq!(said, [&Value::Null; 3]);

    fs::write(path, "[default]\ntext = \"mine\"\n").unwrap();
    world.cli.run(&["hooks", "init"]).refused(3, &["--force"]);
    assert!(fs::read_to_string(path).unwrap().contains("mine"));
    world.cli.run(&["hooks", "init", "--force"]).done();
    assert!(fs::read_to_string(path).unwrap().contains("[roles.tester]"));
}

const CONVENTIONS: &str = r#"
[main]
text = "主の規約"
delivery = "block"
[default]
text = "既定の規約"
[roles.coder]
text = "書き手の規約"
delivery = "prompt"
[roles.tester]
text = "試験者の規約"
delivery = "block"
[agent_types.Explore]
enabled = false
[agent_types.Plan]
text = "計画の規約"
[[rules]]
name = "src"
paths = ["src/**"]
roles = ["tester", "Plan"]
severity = "block"
message = "src は変えない"
[[rules]]
name = "push"
commands = ["git push*"]
severity = "warn"
message = "確かめてから"
"#;

/// For each kind of agent and call, `check` tells what three hook processes answer.
#[test]
fn check_tells_what_the_hook_does() {
    let world = World::with(CONVENTIONS);
    let agents = [
        ("general-purpose", "[ROLE:tester] x"),
        ("general-purpose", "[ROLE:coder-2] x"),
        ("general-purpose", "x"),
        ("tester", "[ROLE:coder] x"),
        ("Explore", "x"),
        ("Plan", "x"),
    ];
    let calls = [
        ("Edit", "--path", "file_path", "src/a.rs"),
        ("Bash", "--command", "command", "cd docs; git push origin"),
    ];
    let mut said = 0;
    for (at, (kind, prompt)) in agents.iter().enumerate() {
        for (tool, option, field, value) in calls {
            let session = format!("s{at}-{tool}");
            let agent = format!("a{at}{tool}");
            let spawn = json!({ "hook_event_name": "PreToolUse", "tool_name": "Agent",
                "tool_use_id": format!("toolu_{at}_{tool}"),
                "tool_input": { "subagent_type": kind, "prompt": prompt, "description": "d" } });
            let denied = world.hook(spawn.clone(), &session);
            assert!(denied.to_string().contains("主の規約"), "the main agent's first: {denied}");
            let call = json!({ "hook_event_name": "PreToolUse", "agent_id": agent,
                "agent_type": kind, "tool_name": tool, "tool_use_id": "t",
                "tool_input": { field: value } });
            let start = json!({ "hook_event_name": "SubagentStart", "agent_id": agent,
                "agent_type": kind });
            let args = ["--agent-type", kind, "--prompt", prompt, "--tool", tool, option, value];
            let steps = world.check(&args)["steps"].as_array().unwrap().clone();
            let events = [spawn, start, call.clone(), call];
            for (step, event) in steps.iter().zip(events) {
                let answer = &world.hook(event, &session)["hookSpecificOutput"];
                let told = [&step["context"], &step["deny"], &step["prompt"]];
                let given = [
                    &answer["additionalContext"],
                    &answer["permissionDecisionReason"],
                    &answer["updatedInput"]["prompt"],
                ];
                assert_eq!(told, given, "{kind} {prompt} {tool}: {step}");
                said += given.iter().filter(|text| text.is_string()).count();
            }
        }
    }
    assert!(said >= 12, "hardly anything was said: {said}");

    let main = world.check(&["--main", "--command", "git push"]);
    let texts: Vec<_> = main["steps"].as_array().unwrap().iter().collect();
    assert_eq!(texts[0]["deny"], "主の規約");
    assert_eq!(texts[1]["context"], "確かめてから");
}

#[test]
fn roles_and_their_sources_are_shown() {
    let world = World::with(CONVENTIONS);
    let said = world.cli.run(&["hooks", "check", "--role", "tester", "--tool", "Read"]).done();
    let folder = world.folder.path().canonicalize().unwrap();
    let said = said.stdout.replace(folder.to_str().unwrap(), "…");
    insta::assert_snapshot!(said, @"
    ok    …/.shikiri/conventions.toml: main, default, 2 roles, 2 agent types, 2 rules

    a subagent general-purpose, role tester (by task_match)
    when it starts: nothing is said
    before Read: denied by [roles.tester]
        試験者の規約
    before Read, again: nothing is said
    ");
    let agent = world.check(&["--agent-type", "coder"])["agent"].clone();
    let expected = json!({ "agent_type": "coder", "role": "coder", "role_source": "agent_type",
                           "confidence": "exact" });
    assert_eq!(agent, expected);
    world.cli.run(&["hooks", "check", "--main", "--role", "x"]).refused(2, &["--role"]);
}

#[test]
fn problems_are_told_with_line_and_reason() {
    let cases = [
        ("[default]\ntext = \"x\"\ntxet = 1\n", 3, "unknown field `txet`"),
        ("[default]\ntext = \n", 2, ""),
        ("\n\n[roles.x]\ntext = \"\"\n", 3, "has no text"),
        ("[[rules]]\nname = \"a\"\nmessage = \"m\"\ntools = [\"Write|Edit\"]\n", 1, "on its own"),
    ];
    for (text, line, words) in cases {
        let world = World::with(text);
        let said = world.cli.run(&["hooks", "check", "--json"]);
        assert_eq!(said.code, 1, "{said:?}");
        let problem = &said.json()["problems"][0];
        assert_eq!(problem["line"], line, "{problem}");
        assert!(problem["problem"].as_str().unwrap().contains(words), "{problem}");
        let said = world.cli.run(&["hooks", "check"]);
        assert!(said.stdout.contains(&format!("line {line}: ")), "{}", said.stdout);
        assert!(said.stderr.contains("1 problem"), "{}", said.stderr);
    }
    let world = World::with("[[rules]]\nname = \"a\"\nmessage = \"m\"\nroles = [\"tset\"]\n");
    let notes = world.check(&[])["notes"].clone();
    assert!(notes[0].as_str().unwrap().contains("tset"), "{notes}");
}

/// A rule that denies once lets the second call pass, and one that asks says so.
#[test]
fn check_shows_rules_that_ask_and_that_deny_once() {
    let world = World::with(
        r#"
[[rules]]
name = "first"
tools = ["Bash"]
severity = "once"
message = "why?"
[[rules]]
name = "plain"
tools = ["WebFetch"]
match = { url = "http://*" }
severity = "ask"
message = "sure?"
"#,
    );
    let once = world.check(&["--main", "--command", "ls"]);
    let denied: Vec<_> = once["steps"].as_array().unwrap().iter().map(|s| &s["deny"]).collect();
    assert_eq!(denied, [&json!("why?"), &Value::Null]);
    let fetch = ["--main", "--tool", "WebFetch", "--input"];
    let asked = world.check(&[&fetch[..], &[r#"{"url":"http://x"}"#]].concat());
    assert_eq!(asked["steps"][0]["ask"], "sure?", "{asked}");
    let quiet = world.check(&[&fetch[..], &[r#"{"url":"https://x"}"#]].concat());
    assert_eq!(quiet["steps"][0]["ask"], Value::Null, "{quiet}");
    let shown =
        world.cli.run(&[&["hooks", "check"], &fetch[..], &[r#"{"url":"http://x"}"#]].concat());
    let shown = shown.done().stdout;
    assert!(shown.contains("before WebFetch: a person is asked by rule \"plain\""), "{shown}");
    let odd = world.cli.run(&[&["hooks", "check"], &fetch[..], &["[]"]].concat());
    odd.refused(1, &["--input is not a JSON object"]);
    let own = world.check(&["--main", "--path", ".shikiri/conventions.toml"]);
    assert_eq!(own["steps"][0]["rules"], json!(["conventions file"]), "{own}");
}

/// The line of a misspelt key, and a code that is not 0.
#[test]
fn status_tells_why_conventions_are_broken() {
    let world = World::with("[[rules]]\nname = \"x\"\nmesage = \"y\"\n");
    let status = world.cli.run(&["hooks", "status"]);
    assert_eq!(status.code, 1, "{status:?}");
    assert!(status.stdout.contains("line 3") && status.stdout.contains("mesage"), "{status:?}");
    let json = world.cli.run(&["hooks", "status", "--json"]).json();
    assert_eq!(json["conventions"]["state"], "broken");
    assert!(json["conventions"]["problem"].as_str().unwrap().contains("line 3"), "{json}");
}
