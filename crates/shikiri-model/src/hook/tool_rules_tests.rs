use serde_json::{Value, json};

use super::world::{HookTestWorld, main_tool, tool, with};
use super::*;

fn rules(rules: &str) -> HookTestWorld {
    with(&format!("{{ \"rules\": {rules} }}"))
}

fn bash(command: &str) -> Value {
    main_tool("Bash", json!({ "command": command }))
}

fn edit(cwd: &str, path: &str) -> Value {
    let mut call = main_tool("Edit", json!({ "file_path": path }));
    call["cwd"] = json!(cwd);
    call
}

const SOURCES: &str = r#"[{ "name": "sources", "tools": ["Write", "Edit"], "paths": ["src/**"],
    "exclude_paths": ["src/tests/**"], "severity": "block", "message": "no" }]"#;

#[test]
fn a_path_rule_holds_in_worktrees() {
    let mut world = rules(SOURCES);
    world.disk.paths.roots = vec!["/elsewhere/wt".to_owned()];
    for (cwd, path) in [
        ("/p", "src/a"),
        ("/p/.claude/worktrees/agent-1", "src/a"),
        ("/p/.claude/worktrees/agent-1", "/p/.claude/worktrees/agent-1/src/a"),
        ("/p", ".claude/worktrees/agent-1/src/deep/new"),
        ("/elsewhere/wt", "/elsewhere/wt/src/a"),
    ] {
        assert!(world.hook(edit(cwd, path)).deny.is_some(), "{cwd} {path}");
    }
    for (cwd, path) in [
        ("/p", "lib/src/a"),
        ("/p", ".claude/worktrees/src/a"),
        ("/elsewhere", "src/a"),
        ("/p", "src/tests/a"),
        ("/p/.claude/worktrees/agent-1", "src/tests/a"),
    ] {
        assert_eq!(world.hook(edit(cwd, path)).deny, None, "{cwd} {path}");
    }
}

#[test]
fn a_path_rule_holds_where_a_link_leads() {
    let mut world = rules(SOURCES);
    let leads = |from: &str, to: &str| (format!("/p/{from}"), format!("/p/{to}"));
    world.disk.paths.real = vec![
        leads("link/a", "src/a"),
        leads("src/tests/out", "src/b"),
        leads("link/../x", "src/x"),
        leads("into", "src/tests/a"),
        leads("src/gone", "lib/gone"),
    ];
    for path in ["link/a", "src/tests/out", "link/../x", "src/gone"] {
        assert!(world.hook(edit("/p", path)).deny.is_some(), "{path}");
    }
    assert_eq!(world.hook(edit("/p", "into")).deny, None);
}

#[test]
fn a_shell_command_that_writes_a_file_is_a_write() {
    let mut world = rules(SOURCES);
    for command in
        ["echo x > src/a", "cat y >>src/a", "cd src && touch a", "sed -i s/x/y/ src/a", "rm -r src"]
    {
        assert!(world.hook(bash(command)).deny.is_some(), "{command}");
    }
    for command in ["cat src/a", "echo 'x > src/a'", "cp src/a lib/a", "make 2>&1 | tee log"] {
        assert_eq!(world.hook(bash(command)).deny, None, "{command}");
    }
    let mut world = rules(
        r#"[{ "name": "r", "tools": ["Read"], "paths": ["src/**"], "severity": "block",
             "message": "no" }]"#,
    );
    assert_eq!(world.hook(bash("echo x > src/a")).deny, None, "the rule is not about writing");
}

#[test]
fn a_rule_matches_any_field_of_the_input() {
    let mut world = rules(
        r#"[{ "name": "r", "tools": ["WebFetch", "mcp__*"], "severity": "block", "message": "no",
             "match": { "url": "http://*", "options.depth": "1?", "tags": "x" } }]"#,
    );
    let mut is_denied = |input: Value| world.hook(main_tool("WebFetch", input)).deny.is_some();
    let input = json!({ "url": "http://a", "options": { "depth": 10 }, "tags": ["y", "x"] });
    assert!(is_denied(input.clone()));
    for (field, value) in
        [("url", json!("https://a")), ("options", json!({ "depth": 2 })), ("tags", json!([]))]
    {
        let mut other = input.clone();
        other[field] = value;
        assert!(!is_denied(other), "{field}");
    }
    assert!(!is_denied(json!({ "url": "http://a" })));
}

#[test]
fn once_denies_the_first_call_of_each_agent() {
    let mut world = rules(
        r#"[{ "name": "ask first", "tools": ["Bash"], "severity": "once", "message": "why?" },
            { "name": "other", "tools": ["Bash"], "severity": "once", "message": "other",
              "commands": ["rm *"] }]"#,
    );
    assert_eq!(world.hook(bash("ls")).deny.as_deref(), Some("why?"));
    assert_eq!(world.hook(bash("ls")), HookOutput::default());
    assert_eq!(world.hook(bash("rm x")).deny.as_deref(), Some("other"), "each rule for itself");
    assert_eq!(world.hook(bash("rm x")).deny, None);
    for agent in ["a1", "a2"] {
        assert_eq!(world.hook(tool(agent, "coder")).deny.as_deref(), Some("why?"), "{agent}");
        assert_eq!(world.hook(tool(agent, "coder")).deny, None, "{agent}");
    }
    let log: Vec<_> = world.log.iter().map(|line| line.result).collect();
    assert_eq!(log, ["blocked", "ok", "blocked", "ok", "blocked", "ok", "blocked", "ok"]);
    // A hook that is killed before it answered has denied nothing.
    assert!(world.killed(tool("a3", "coder")).deny.is_some());
    world.now += 10_000;
    assert!(world.hook(tool("a3", "coder")).deny.is_some());
}

#[test]
fn ask_leaves_the_call_to_a_person_unless_it_is_denied() {
    let mut world = rules(
        r#"[{ "name": "a", "commands": ["git push*"], "severity": "ask", "message": "sure?" },
            { "name": "b", "commands": ["git push*--force*"], "severity": "block", "message": "no" }]"#,
    );
    let answer = world.hook(bash("git -C . push"));
    assert_eq!(
        answer.to_json("PreToolUse").unwrap()["hookSpecificOutput"],
        json!({ "hookEventName": "PreToolUse", "permissionDecision": "ask",
                "permissionDecisionReason": "sure?" })
    );
    assert_eq!(world.log[0].result, "asked");
    let answer = world.hook(bash("git push --force"));
    assert_eq!((answer.deny.as_deref(), answer.ask), (Some("no"), None));
    assert_eq!(world.hook(bash("git pull")), HookOutput::default());
}

#[test]
fn agents_do_not_change_the_conventions() {
    let mut world = with(r#"{ "rules": [] }"#);
    let own = "/p/.shikiri/conventions.toml";
    world.disk.paths.real = vec![("/p/link".to_owned(), own.to_owned())];
    for path in
        [own, ".shikiri/conventions.toml", "link", ".claude/worktrees/x/.shikiri/conventions.toml"]
    {
        let denied = world.hook(edit("/p", path)).deny.expect(path);
        assert!(denied.contains("agents do not change it"), "{denied}");
    }
    for command in [
        "echo > .shikiri/conventions.toml",
        "cd .shikiri && rm conventions.toml",
        "rm -rf .shikiri",
        "rm .shik*/conv*",
        "mv .shikiri x",
        "cp x/conventions.toml .shikiri/",
        "sed -i s/block/info/ ./.shikiri/conventions.toml",
    ] {
        assert!(world.hook(bash(command)).deny.is_some(), "{command}");
    }
    for command in [
        "cat .shikiri/conventions.toml",
        "rm *",
        "rm -rf .shikirix",
        "cp .shikiri/conventions.toml x",
    ] {
        assert_eq!(world.hook(bash(command)).deny, None, "{command}");
    }
    assert_eq!(world.hook(main_tool("Read", json!({ "file_path": own }))).deny, None);
    let mcp = |name: &str| main_tool(&format!("mcp__fs__{name}"), json!({ "path": own }));
    assert!(world.hook(mcp("write_file")).deny.is_some());
    assert_eq!(world.hook(mcp("read_file")).deny, None);
    let mut open = with(r#"{ "protect_conventions": false }"#);
    assert_eq!(open.hook(edit("/p", own)).deny, None);
    let mut without = HookTestWorld::default();
    assert_eq!(without.hook(edit("/p", own)).deny, None, "there is no file");
}

fn broken(on_error: OnError) -> HookTestWorld {
    let mut world = HookTestWorld::default();
    world.conventions.problem = Some("line 3: unknown field `mesage`".to_owned());
    world.conventions.on_error = on_error;
    world
}

#[test]
fn broken_conventions_are_reported_to_the_person() {
    let mut world = broken(OnError::Allow);
    let event = |name: &str| json!({ "hook_event_name": name, "source": "compact" });
    let says = |answer: HookOutput, event: &str| {
        let answer = answer.to_json(event)?;
        assert!(answer.get("hookSpecificOutput").is_none(), "{answer}");
        Some(answer["systemMessage"].as_str()?.to_owned())
    };
    let first = says(world.hook(bash("ls")), "PreToolUse").unwrap();
    assert!(first.contains("line 3: unknown field `mesage`"), "{first}");
    assert_eq!(says(world.hook(bash("ls")), "PreToolUse"), None, "once a session");
    assert_eq!(says(world.hook(tool("a1", "coder")), "PreToolUse"), None);
    for name in ["SessionStart", "UserPromptSubmit"] {
        assert!(says(world.hook(event(name)), name).is_some(), "{name}");
    }
    assert_eq!(says(world.hook(event("Stop")), "Stop"), None);
    world.conventions.problem = Some("line 4".to_owned());
    assert!(says(world.hook(bash("ls")), "PreToolUse").is_some(), "another problem");
    world.conventions.problem = None;
    assert_eq!(world.hook(event("UserPromptSubmit")), HookOutput::default());
}

#[test]
fn broken_conventions_deny_calls_if_they_say_so() {
    let mut world = broken(OnError::Deny);
    for call in [bash("ls"), tool("a1", "coder")] {
        let denied = world.hook(call).deny.unwrap();
        assert!(denied.contains("line 3") && denied.contains("on_error"), "{denied}");
    }
    assert_eq!(world.hook(json!({ "hook_event_name": "UserPromptSubmit" })).deny, None);
}

#[test]
fn rules_that_need_no_rows_hold_without_them() {
    let text = r#"{ "on_error": "allow",
        "main": { "text": "main text" }, "roles": { "tester": { "text": "x" } }, "rules": [
        { "name": "a", "commands": ["git push*"], "severity": "block", "message": "no push" },
        { "name": "b", "commands": ["make*"], "severity": "ask", "message": "sure?" },
        { "name": "c", "commands": ["npm*"], "severity": "warn", "message": "slow" },
        { "name": "d", "commands": ["ls*"], "severity": "once", "message": "first" },
        { "name": "e", "commands": ["ls*"], "roles": ["tester"], "severity": "block",
          "message": "no tester" }] }"#;
    let mut world = with(text);
    world.disk.store_problem = Some("the disk is full".to_owned());
    assert_eq!(world.hook(bash("git push")).deny.as_deref(), Some("no push"));
    assert_eq!(world.hook(bash("make")).ask.as_deref(), Some("sure?"));
    assert_eq!(world.hook(bash("npm i")).context.as_deref(), Some("slow"));
    assert_eq!(world.hook(bash("ls")), HookOutput::default());
    assert!(world.hook(edit("/p", ".shikiri/conventions.toml")).deny.is_some());
    assert_eq!(world.hook(tool("a1", "tester")).deny.as_deref(), Some("no tester"));
    assert_eq!(world.hook(tool("a1", "coder")).deny, None);
    world.disk.prompt_role = Some(PromptRole::Named("tester".to_owned()));
    assert!(world.hook(tool("a1", "coder")).deny.is_some());
    world.conventions.on_error = OnError::Deny;
    let denied = world.hook(bash("ls")).deny.unwrap();
    assert!(denied.contains("the disk is full"), "{denied}");
    assert!(world.agents.is_empty() && world.marks.is_empty(), "nothing was recorded");
}

#[test]
fn the_files_of_a_call_are_recorded_with_its_outcome() {
    let mut world = with(r#"{ "roles": { "tester": { "text": "x" } } }"#);
    world.disk.paths.real = vec![("/p/link/a".to_owned(), "/p/src/a".to_owned())];
    let result = |event: &str, name: &str, input: Value| {
        json!({ "hook_event_name": event, "tool_name": name, "tool_input": input, "cwd": "/p",
                "agent_id": "a1", "agent_type": "tester", "tool_response": {} })
    };
    world.hook(tool("a1", "tester"));
    world.hook(result("PostToolUse", "Edit", json!({ "file_path": "link/a" })));
    world.hook(result("PostToolUseFailure", "Bash", json!({ "command": "rm b > /dev/null; > c" })));
    let worktree = "/p/.claude/worktrees/w/src/d";
    world.hook(result("PostToolUse", "Read", json!({ "file_path": worktree })));
    world.hook(result("PostToolUse", "Grep", json!({ "path": "src" })));
    world.hook(result("PostToolUse", "Bash", json!({ "command": "cargo test" })));
    let touches: Vec<_> = world
        .touches
        .iter()
        .map(|touch| {
            let name = touch.name.as_deref().unwrap_or("-");
            format!("{} {} {name} {}", touch.tool, touch.path, touch.outcome.as_str())
        })
        .collect();
    assert_eq!(
        touches,
        [
            "Edit /p/src/a src/a done",
            "Bash /p/b b failed",
            "Bash /p/c c failed",
            "Read /p/.claude/worktrees/w/src/d src/d done",
        ]
    );
    let removed = &world.touches[1];
    assert!(removed.removed && removed.command.as_deref() == Some("rm b > /dev/null; > c"));
    assert_eq!(removed.role.as_deref(), Some("tester"));
    let last = world.log.last().unwrap().details.clone().unwrap();
    assert_eq!(last, json!({ "tool": "Bash", "outcome": "done", "command": "cargo test" }));
}
