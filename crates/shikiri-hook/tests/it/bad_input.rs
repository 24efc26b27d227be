//! Whatever comes in, the tool call goes on, in time.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::process::{self, Done, Project, assert_in_time, run, spawn, wait};
use crate::world::{conventions, text_of, write};

fn project() -> Project {
    process::project(&conventions())
}

fn start(transcript: &Path) -> Value {
    json!({
        "session_id": "s", "hook_event_name": "SubagentStart", "agent_id": "a1",
        "agent_type": "general-purpose", "transcript_path": transcript,
    })
}

#[test]
fn what_is_no_event_is_told_and_nothing_else_happens() {
    let project = project();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let cases: [(&[u8], &str); 9] = [
        (b"", "no JSON object"),
        (b"{", "no JSON object"),
        (b"\xff\xfe", "no JSON object"),
        (b"[]", "not an object"),
        (b"null", "not an object"),
        (b"{}", "no session_id"),
        (br#"{"session_id":7,"hook_event_name":"Stop"}"#, "no session_id"),
        (br#"{"session_id":"s","hook_event_name":["Stop"]}"#, "no hook_event_name"),
        (deep.as_bytes(), "no JSON object"),
    ];
    for (input, reason) in cases {
        let done = run(&mut project.command(), input);
        done.goes_on().says(reason).says("the tool call goes on");
        assert_eq!(done.out, "");
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    }
    assert!(!project.place().database().exists());
}

#[test]
fn fields_of_the_wrong_type_are_as_if_they_were_not_there() {
    let project = project();
    let events = [
        "SubagentStart",
        "SubagentStop",
        "PreToolUse",
        "PostToolUse",
        "PostToolUseFailure",
        "Stop",
        "StopFailure",
        "SessionStart",
        "SessionEnd",
        "Later",
    ];
    for event in events {
        for wrong in [json!(7), json!([]), json!({}), json!(null), json!(true)] {
            let done = project.hook(&json!({
                "session_id": "s", "hook_event_name": event, "agent_id": wrong, "agent_type": wrong,
                "tool_name": wrong, "tool_use_id": wrong, "tool_input": wrong,
                "tool_response": wrong, "transcript_path": wrong, "cwd": wrong, "source": wrong,
                "agent_transcript_path": wrong, "background_tasks": wrong,
            }));
            done.goes_on();
            assert_eq!(done.err, "", "{event} {wrong}");
        }
    }
    assert_eq!(project.count("SELECT count(*) FROM hook_log"), 50);
}

#[test]
fn an_event_that_never_ends_is_not_waited_for() {
    let project = project();
    for begun in ["", r#"{"session_id":"s","#] {
        assert_in_time(|| {
            let started = Instant::now();
            let mut child = spawn(project.command().stdin(Stdio::piped()));
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(begun.as_bytes()).unwrap();
            let done = wait(child, started);
            done.goes_on().says("no event came");
            done
        });
    }
}

#[test]
fn a_hundred_megabytes_are_refused_and_what_claude_code_sends_is_read() {
    let project = project();
    let event = |size: usize| {
        let content = "x".repeat(size);
        let input = json!({ "file_path": "a.txt", "content": content });
        json!({ "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": input })
            .to_string()
    };
    // Out of a file: how fast this process could write it into a pipe does not matter.
    let path = project.home.join("event.json");
    let hook = |size| {
        write(&path, &event(size));
        let input = std::fs::File::open(&path).unwrap();
        let started = Instant::now();
        wait(spawn(project.command().stdin(input)), started)
    };
    hook(100 << 20).goes_on().says("larger than 64 MiB");
    assert_eq!(hook(10 << 20).goes_on().context(), Some(text_of("main")));
}

/// A transcript that is not where or what it should be.
#[test]
fn a_transcript_that_must_not_be_read_is_left_alone() {
    let project = project();
    let projects = project.home.join(".claude/projects");
    let input = json!({ "subagent_type": "general-purpose", "prompt": "[ROLE:tester] go" });
    let block = json!({ "type": "tool_use", "id": "t1", "name": "Agent", "input": input });
    let line = json!({ "type": "assistant", "message": { "content": [block] } }).to_string() + "\n";
    let outside = project.home.join("outside.jsonl");
    write(&outside, &line);
    symlink(&outside, projects.join("link.jsonl")).unwrap();
    symlink(&project.home, projects.join("folder-link")).unwrap();
    std::fs::create_dir(projects.join("folder.jsonl")).unwrap();
    let fifo = projects.join("fifo.jsonl");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let paths = [
        projects.join("missing.jsonl"),
        projects.join("link.jsonl"),
        projects.join("folder-link/outside.jsonl"),
        projects.join("../../outside.jsonl"),
        projects.join("folder.jsonl"),
        fifo,
        outside,
        PathBuf::from("/dev/zero"),
        PathBuf::from("relative.jsonl"),
        PathBuf::from(format!("/{}", "x".repeat(5_000))),
    ];
    for path in paths {
        let done = project.hook(&start(&path));
        assert_eq!(done.err, "");
        assert_eq!(done.goes_on().context(), Some(text_of("default")), "{}", path.display());
        std::fs::remove_file(project.place().database()).unwrap();
        let _ = std::fs::remove_file(project.place().folder().join("state.db-wal"));
        let _ = std::fs::remove_file(project.place().folder().join("state.db-shm"));
    }
    // The same lines where they belong are read.
    write(&projects.join("right.jsonl"), &line);
    let done = project.hook(&start(&projects.join("right.jsonl")));
    assert_eq!(done.goes_on().context(), Some(text_of("tester")));
}

/// Ten gigabytes, of which the disk holds next to nothing.
fn huge(path: &Path, begin: &str) {
    write(path, begin);
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(10 << 30).unwrap();
}

#[test]
fn a_huge_transcript_costs_no_more_than_the_time_there_is() {
    let reminding = conventions().replacen("[main]\n", "[main]\ntoken_threshold = 1000\n", 1);
    let project = process::project(&reminding);
    let projects = project.home.join(".claude/projects");
    let (whole, lines) = (projects.join("whole.jsonl"), projects.join("lines.jsonl"));
    huge(&whole, "");
    huge(&lines, &"{\"type\":\"user\",\"version\":\"2.1.325\"}\n".repeat(1_000));
    huge(&projects.join("lines/subagents/agent-a1.jsonl"), "{\"type\":\"user\"}\n");
    for path in [&whole, &lines] {
        let payload = |event: &str, more: Value| {
            let mut payload = json!({
                "session_id": path, "hook_event_name": event, "transcript_path": path,
                "tool_name": "Read",
            });
            payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            payload
        };
        let agent = json!({ "agent_id": "a1", "agent_type": "general-purpose" });
        let unnamed = json!({});
        let events = [
            ("SubagentStart", &agent),
            ("PreToolUse", &agent),
            ("PreToolUse", &unnamed),
            ("SubagentStop", &agent),
            ("SessionEnd", &unnamed),
        ];
        for (event, more) in events {
            project.hook(&payload(event, more.clone())).goes_on();
        }
    }
}

#[test]
fn an_unread_answer_is_given_again_and_does_not_hang() {
    let text =
        conventions().replacen("[roles.tester]\n", "[roles.tester]\ndelivery = \"prompt\"\n", 1);
    let project = process::project(&text);
    let call = json!({ "session_id": "s", "hook_event_name": "PreToolUse", "agent_id": "a1", "agent_type": "coder" });
    // The reader is gone.
    let mut child = spawn(project.command().stdin(Stdio::piped()));
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(call.to_string().as_bytes()).unwrap();
    wait(child, Instant::now()).goes_on().says("the answer could not be given");
    assert_eq!(project.hook(&call).goes_on().context(), Some(text_of("coder")), "again");
    assert_eq!(project.hook(&call).goes_on().context(), None);
    // The reader is there, and does not read: more than a pipe holds cannot be written.
    assert_in_time(|| unread(&project));
    let sql = "SELECT count(*) FROM task_spawns WHERE delivered IS NOT NULL";
    assert_eq!(project.count(sql), 0, "it has not got its text with the prompt");
}

fn unread(project: &Project) -> Done {
    let prompt = format!("[ROLE:tester] {}", "x".repeat(1 << 20));
    let input = json!({ "subagent_type": "general-purpose", "prompt": prompt });
    let spawns = json!({
        "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Agent",
        "tool_use_id": "t1", "tool_input": input,
    });
    let started = Instant::now();
    let mut child = spawn(project.command().stdin(Stdio::piped()));
    let unread = child.stdout.take();
    child.stdin.take().unwrap().write_all(spawns.to_string().as_bytes()).unwrap();
    let done = wait(child, started);
    done.goes_on().says("the answer could not be given");
    drop(unread);
    done
}

#[test]
fn a_conventions_file_that_cannot_be_used_is_told_with_its_line_and_blocks_nothing() {
    let call = json!({
        "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash",
        "tool_input": { "command": "rm -rf /" },
    });
    let rule = "[[rules]]\nname = \"no\"\nmessage = \"no\"\nseverity = \"block\"\n";
    let cases = [
        (format!("{rule}\n[main\n"), "line 6:"),
        (format!("{rule}txet = \"x\"\n"), "line 5: unknown field"),
        (format!("{rule}commands = 7\n"), "line 5:"),
        (rule.replace("\"block\"", "\"forbid\""), "line 4:"),
        ("# ".to_owned() + &"x".repeat(100 << 20), "larger than 1 MiB"),
    ];
    for (text, reason) in cases {
        let project = process::project(&text);
        let done = project.hook(&call);
        done.goes_on().says("conventions.toml").says(reason).says("no conventions are given");
        let answer = done.answer().unwrap();
        assert!(answer["systemMessage"].as_str().unwrap().contains(reason), "{answer}");
        assert_eq!(answer.as_object().unwrap().len(), 1, "nothing else is said");
        assert_eq!(project.count("SELECT count(*) FROM hook_log"), 1, "it is recorded");
    }
    // The rule itself would have blocked.
    let project = process::project(rule);
    assert_eq!(project.hook(&call).specific("permissionDecision").as_deref(), Some("deny"));
    // Neither a FIFO nor a folder is read.
    for make in ["mkfifo", "mkdir"] {
        let path = project.place().conventions();
        let _ = std::fs::remove_file(&path);
        assert!(Command::new(make).arg(&path).status().unwrap().success());
        project.hook(&call).goes_on().says("not a regular file");
    }
}
