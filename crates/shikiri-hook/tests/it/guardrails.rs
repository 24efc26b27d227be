//! Rules hold in worktrees and through links, and where the conventions or the database are broken,
//! as the program answers.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::process::{self, Done, Project, run};
use crate::world::write;

const RULES: &str = r#"
[roles.tester]
text = "tester text"
[[rules]]
name = "sources"
tools = ["Write", "Edit"]
paths = ["src/**"]
severity = "block"
message = "no change of src"
[[rules]]
name = "push"
commands = ["git push*"]
severity = "ask"
message = "sure?"
[[rules]]
name = "first"
tools = ["Bash"]
roles = ["tester"]
severity = "once"
message = "why?"
"#;

fn event(name: &str, cwd: &Path, more: Value) -> Value {
    let mut event = json!({ "session_id": "s", "hook_event_name": name, "cwd": cwd });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

fn edit(cwd: &Path, path: &Path) -> Value {
    let input = json!({ "file_path": path });
    event("PreToolUse", cwd, json!({ "tool_name": "Edit", "tool_input": input }))
}

fn bash(cwd: &Path, command: &str) -> Value {
    let input = json!({ "command": command });
    event("PreToolUse", cwd, json!({ "tool_name": "Bash", "tool_input": input }))
}

fn decision(done: &Done) -> Option<String> {
    assert_eq!(done.code, Some(0), "{done:?}");
    done.specific("permissionDecision")
}

fn reason(done: &Done) -> String {
    done.specific("permissionDecisionReason").unwrap_or_else(|| panic!("{done:?}"))
}

fn system_message(done: &Done) -> Option<String> {
    Some(done.answer()?["systemMessage"].as_str()?.to_owned())
}

fn git(folder: &Path, words: &[&str]) {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(["-c", "user.name=n", "-c", "user.email=e@x"]).args(words);
    let done = command.env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
    assert!(done.status.success(), "git {words:?}: {done:?}");
}

#[test]
fn a_path_rule_holds_in_git_worktrees_and_through_links() {
    let project = process::project(RULES);
    let root = &project.root;
    write(&root.join("src/a"), "a");
    git(root, &["init", "-q"]);
    git(root, &["add", "src"]);
    git(root, &["commit", "-qm", "a"]);
    let inside = root.join(".claude/worktrees/agent-1");
    let outside = root.parent().unwrap().join("elsewhere");
    for worktree in [&inside, &outside] {
        git(root, &["worktree", "add", "-q", "--detach", worktree.to_str().unwrap()]);
    }
    symlink("src", root.join("link")).unwrap();
    symlink("src/dangling", root.join("dangling")).unwrap();
    symlink(root.join("src"), outside.join("back")).unwrap();
    for (cwd, path) in [
        (root, root.join("src/a")),
        (root, "link/a".into()),
        (root, root.join("link/new/deep")),
        (root, "dangling".into()),
        (root, "link/../src/a".into()),
        (&inside, inside.join("src/a")),
        (&inside, "src/new".into()),
        (root, inside.join("src/a")),
        (&outside, outside.join("src/a")),
        (&outside.join("src"), "a".into()),
        (root, outside.join("src/a")),
        (&outside, "back/a".into()),
    ] {
        let done = project.hook(&edit(cwd, &path));
        assert_eq!(decision(&done).as_deref(), Some("deny"), "{cwd:?} {path:?}: {done:?}");
    }
    for (cwd, path) in [(root, root.join("lib/a")), (&outside, outside.join("lib/src/a"))] {
        let done = project.hook(&edit(cwd, &path));
        assert_eq!(decision(&done), None, "{cwd:?} {path:?}: {done:?}");
    }
    assert_eq!(decision(&project.hook(&bash(root, "echo > link/a"))).as_deref(), Some("deny"));
}

#[test]
fn a_person_is_asked_and_a_first_call_is_denied_once_for_each_agent() {
    let project = process::project(RULES);
    let done = project.hook(&bash(&project.root, "git --no-pager push"));
    assert_eq!((decision(&done).as_deref(), reason(&done).as_str()), (Some("ask"), "sure?"));
    for agent in ["a1", "a2"] {
        let mut call = bash(&project.root, "ls");
        (call["agent_id"], call["agent_type"]) = (json!(agent), json!("tester"));
        assert_eq!(reason(&project.hook(&call)), "why?", "{agent}");
        let again = project.hook(&call);
        assert_eq!(again.context().as_deref(), Some("tester text"), "{agent}: {again:?}");
        project.hook(&call).goes_on().is_silent();
    }
}

/// One misspelt key switches the rules off: the person is told, and by `on_error` calls are denied.
#[test]
fn broken_conventions_are_told_to_the_person_and_deny_if_they_say_so() {
    let broken = RULES.replacen("message =", "mesage =", 1);
    let project = process::project(&broken);
    let root = project.root.clone();
    for name in ["SessionStart", "UserPromptSubmit"] {
        let done = project.hook(&event(name, &root, json!({ "source": "startup" })));
        let told = system_message(&done).unwrap_or_else(|| panic!("{name}: {done:?}"));
        assert!(told.contains("conventions.toml: line ") && told.contains("mesage"), "{told}");
        assert_eq!(done.answer().unwrap().get("hookSpecificOutput"), None);
    }
    let done = project.hook(&edit(&root, Path::new("src/a")));
    assert_eq!((decision(&done), system_message(&done)), (None, None), "it was told before");
    let mut other = edit(&root, Path::new("src/a"));
    other["session_id"] = json!("other");
    assert!(system_message(&project.hook(&other)).is_some());
    assert_eq!(system_message(&project.hook(&other)), None, "once in a session");

    let file = project.place().conventions();
    std::fs::write(&file, format!("on_error = \"deny\"\n{broken}")).unwrap();
    let done = project.hook(&bash(&root, "ls"));
    assert!(reason(&done).contains("on_error") && reason(&done).contains("mesage"), "{done:?}");
    std::fs::write(&file, "on_error = \"deny\"   # always\n[main\n").unwrap();
    assert_eq!(decision(&project.hook(&bash(&root, "ls"))).as_deref(), Some("deny"), "no TOML");
    std::fs::write(&file, RULES).unwrap();
    assert_eq!(decision(&project.hook(&bash(&root, "ls"))), None);
}

/// Holds the write lock of the project's database.
fn locked(project: &Project) -> rusqlite::Connection {
    project.hook(&bash(&project.root, "ls")).goes_on();
    #[expect(clippy::disallowed_methods, reason = "another program that has the file locked")]
    let connection = rusqlite::Connection::open(project.place().database()).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

#[test]
fn rules_that_need_no_record_hold_while_the_database_is_locked() {
    let project = process::project(RULES);
    let root = project.root.clone();
    let _writer = locked(&project);
    let done = project.hook(&edit(&root, Path::new("src/a")));
    assert_eq!(reason(&done), "no change of src");
    done.says("not recorded").says("a rule denies the tool call");
    let done = project.hook(&bash(&root, "ls"));
    done.goes_on().says("the tool call goes on");
    assert_eq!(done.out, "");
    let strict = format!("on_error = \"deny\"\n{RULES}");
    std::fs::write(project.place().conventions(), strict).unwrap();
    let done = project.hook(&bash(&root, "ls"));
    assert!(reason(&done).contains("not recorded"), "{done:?}");
}

#[test]
fn rules_that_need_no_record_hold_where_the_database_cannot_be_used() {
    type Harm = fn(&Project);
    let harms: [(&str, Harm); 2] = [
        ("a link", |project| symlink("/dev/null", project.place().database()).unwrap()),
        ("a folder", |project| std::fs::create_dir(project.place().database()).unwrap()),
    ];
    for (name, harm) in harms {
        let project = process::project(RULES);
        harm(&project);
        let done = project.hook(&edit(&project.root, Path::new("src/a")));
        assert_eq!(reason(&done), "no change of src", "{name}: {done:?}");
        let done = project.hook(&bash(&project.root, "git push"));
        assert_eq!(decision(&done).as_deref(), Some("ask"), "{name}: {done:?}");
    }
}

#[test]
fn agents_do_not_change_the_conventions_unless_the_file_allows_it() {
    let project = process::project(RULES);
    let root = project.root.clone();
    symlink(".shikiri/conventions.toml", root.join("link")).unwrap();
    for call in [
        edit(&root, &project.place().conventions()),
        edit(&root, Path::new("link")),
        bash(&root, "sed -i s/block/info/ .shikiri/conventions.toml"),
        bash(&root.join("src"), "cat x > ../.shikiri/conventions.toml"),
    ] {
        let done = project.hook(&call);
        assert!(reason(&done).contains("agents do not change it"), "{call}: {done:?}");
    }
    let open = format!("protect_conventions = false\n{RULES}");
    std::fs::write(project.place().conventions(), open).unwrap();
    let done = project.hook(&edit(&root, &project.place().conventions()));
    assert_eq!(decision(&done), None, "{done:?}");
    let without = process::project("");
    let done = without.hook(&edit(&without.root, &without.place().conventions()));
    assert_eq!(decision(&done), None, "{done:?}");
}

/// A path in the event is only looked at, whatever it leads to.
#[test]
fn odd_paths_take_no_longer() {
    let project = process::project(RULES);
    let root = &project.root;
    symlink("loop", root.join("loop")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let long = "d/".repeat(1_900);
    for path in ["loop/a", "pipe", "pipe/a", "", "\u{0}", "/proc/self/fd/0", &long] {
        process::assert_in_time(|| {
            let done =
                run(&mut project.command(), edit(root, Path::new(path)).to_string().as_bytes());
            assert_eq!(decision(&done), None, "{path}: {done:?}");
            done
        });
    }
}
