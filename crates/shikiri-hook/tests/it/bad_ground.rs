//! Folders and databases that are missing, full, read-only, damaged, locked or from the future: the
//! tool call goes on, and nothing is lost.

use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rusqlite::TransactionBehavior;
use serde_json::{Value, json};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};

use crate::process::{self, Done, Project, assert_in_time, run};
use crate::world::{conventions, rows, text_of, write};

fn call(agent: &str) -> Value {
    json!({
        "session_id": "s", "hook_event_name": "PreToolUse", "agent_id": agent,
        "agent_type": "tester", "tool_name": "Bash", "tool_input": { "command": "ls" },
    })
}

fn project() -> Project {
    process::project(&conventions())
}

/// With rows on many pages, all of them in the file itself.
fn used() -> Project {
    let project = project();
    let mut database = open(&project);
    let transaction = database.transaction().unwrap();
    for number in 0..2_000 {
        let sql = "INSERT INTO hook_log (session_id, hook_name, event_type, timestamp, details)
                   VALUES ('s', 'x', 'x', '2026-01-01T00:00:00Z', ?1)";
        transaction.execute(sql, [format!("{number}").repeat(30)]).unwrap();
        let sql = "INSERT INTO subagents (agent_id, session_id, created_at) VALUES (?1, 's', 'x')";
        transaction.execute(sql, [format!("old{number}")]).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    project
}

fn open(project: &Project) -> SqliteDatabase {
    SqliteDatabase::open(&project.place().database(), &DatabaseOptions::default()).unwrap()
}

fn set_aside(project: &Project) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(project.place().folder()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_kept = |path: &PathBuf| {
        let name = path.to_str().unwrap();
        name.contains(".damaged-") && !name.ends_with("-wal") && !name.ends_with("-shm")
    };
    paths.filter(is_kept).collect()
}

/// The page on which a table begins.
fn root_of(project: &Project, table: &str) -> u64 {
    let sql = format!("SELECT rootpage FROM sqlite_schema WHERE name = '{table}'");
    u64::try_from(project.count(&sql)).unwrap()
}

/// Row 3.28: a damaged database is kept under another name, and a new one is used at once.
#[test]
fn a_damaged_database_is_set_aside_and_a_new_one_made() {
    const PAGE: u64 = 4_096;
    let garbage = vec![0xa5; 4_096];
    let spoil =
        |file: &std::fs::File, page: u64| file.write_all_at(&garbage, (page - 1) * PAGE).unwrap();
    type Harm<'a> = &'a dyn Fn(&std::fs::File, &Project);
    let harm: [(&str, Harm<'_>); 6] = [
        ("garbage header", &|file, _| file.write_all_at(&garbage[..100], 0).unwrap()),
        ("first page", &|file, _| spoil(file, 1)),
        ("all but the first page", &|file, _| {
            (2..=file.metadata().unwrap().len() / PAGE).for_each(|page| spoil(file, page));
        }),
        // These show only when the rows are read or written.
        ("the log's page", &|file, project| spoil(file, root_of(project, "hook_log"))),
        ("the agents' page", &|file, project| spoil(file, root_of(project, "subagents"))),
        ("truncated", &|file, _| file.set_len(file.metadata().unwrap().len() / 2).unwrap()),
    ];
    for (name, harm) in harm {
        let project = used();
        let path = project.place().database();
        harm(&std::fs::File::options().write(true).open(&path).unwrap(), &project);
        let done = project.hook(&call("a1"));
        done.goes_on().says("was damaged");
        assert_eq!(done.context(), Some(text_of("tester")), "{name}");
        assert_eq!(set_aside(&project).len(), 1, "{name}");
        let rows = rows(&project.database(), "SELECT agent_id FROM subagents");
        assert_eq!(rows, [[Some("a1".to_owned())]], "{name}");
        project.hook(&call("a1")).goes_on().is_silent();
    }
}

/// An empty file is no damage.
#[test]
fn an_empty_file_becomes_the_database() {
    let project = project();
    std::fs::write(project.place().database(), "").unwrap();
    let done = project.hook(&call("a1"));
    assert_eq!(done.goes_on().err, "");
    assert_eq!(project.count("SELECT count(*) FROM hook_log"), 1);
}

/// Row 3.3: a busy database is waited for as long as there is time, and never deleted.
#[test]
fn a_locked_database_is_left_alone_and_the_call_goes_on_in_time() {
    assert_in_time(at_a_locked_database);
}

fn at_a_locked_database() -> Done {
    let project = used();
    let path = project.place().database();
    let before = path.metadata().unwrap().ino();
    let mut database = open(&project);
    let writer = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let done = project.hook(&call("a1"));
    done.goes_on().says("the event was not recorded").says("the tool call goes on");
    assert!(done.took > Duration::from_secs(1), "it has waited: {done:?}");
    assert_eq!(done.out, "");
    drop(writer);
    assert_eq!(project.hook(&call("a1")).goes_on().context(), Some(text_of("tester")));
    assert_eq!(path.metadata().unwrap().ino(), before);
    assert_eq!(set_aside(&project), Vec::<PathBuf>::new());
    assert_eq!(project.count("SELECT count(*) FROM subagents"), 2_001);
    done
}

/// One process moves files, then another one writes: together they must not take longer either.
#[test]
fn waiting_twice_takes_no_longer_than_waiting_once() {
    assert_in_time(waiting_twice);
}

fn waiting_twice() -> Done {
    let project = used();
    let lock = project.place().folder().join("state.db.lock");
    let lock = std::fs::File::options().write(true).open(lock).unwrap();
    lock.lock().unwrap();
    let (done, writer) = std::thread::scope(|scope| {
        let hook = scope.spawn(|| project.hook(&call("a1")));
        std::thread::sleep(Duration::from_millis(1_200));
        let writer = hold_write_lock(&project);
        lock.unlock().unwrap();
        (hook.join().unwrap(), writer)
    });
    done.goes_on().says("the tool call goes on");
    drop(writer);
    assert_eq!(project.hook(&call("a1")).goes_on().context(), Some(text_of("tester")));
    done
}

/// What an agent said last is waited for, but not longer than there is time.
#[test]
fn waiting_for_the_database_and_then_for_a_transcript_takes_no_longer_either() {
    assert_in_time(waiting_for_the_database_and_then_for_a_transcript);
}

fn waiting_for_the_database_and_then_for_a_transcript() -> Done {
    let project = project();
    let transcript = project.home.join(".claude/projects/-p/s.jsonl");
    let said = transcript.with_extension("").join("subagents/agent-a1.jsonl");
    write(&said, "{\"type\":\"user\"}\n");
    project.hook(&call("a1")).goes_on();
    let stop = json!({
        "session_id": "s", "hook_event_name": "SubagentStop", "agent_id": "a1",
        "agent_type": "tester", "transcript_path": transcript, "last_assistant_message": "not there",
    });
    let writer = hold_write_lock(&project);
    let done = std::thread::scope(|scope| {
        let hook = scope.spawn(|| project.hook(&stop));
        std::thread::sleep(Duration::from_millis(1_200));
        drop(writer);
        hook.join().unwrap()
    });
    done.goes_on().is_silent();
    assert_eq!(project.count("SELECT count(*) FROM subagents WHERE state = 'ended'"), 1);
    done
}

/// Has the database locked for writing, by SQLite's own means alone.
fn hold_write_lock(project: &Project) -> rusqlite::Connection {
    #[expect(clippy::disallowed_methods, reason = "another program that has the file locked")]
    let connection = rusqlite::Connection::open(project.place().database()).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

#[test]
fn a_database_of_a_newer_shikiri_is_left_as_it_is() {
    let project = used();
    open(&project).execute("INSERT INTO schema_version VALUES (999, 'x')", []).unwrap();
    let done = project.hook(&call("a1"));
    done.goes_on().says("newer Shikiri");
    assert_eq!(done.out, "");
    assert_eq!(set_aside(&project), Vec::<PathBuf>::new());
    #[expect(clippy::disallowed_methods, reason = "this Shikiri would refuse it")]
    let connection = rusqlite::Connection::open(project.place().database()).unwrap();
    let count = rows(&connection, "SELECT count(*) FROM subagents");
    assert_eq!(count, [[Some("2000".to_owned())]]);
}

#[test]
fn folders_that_are_not_there_are_told() {
    let project = project();
    let text = call("a1").to_string();
    let mut missing = project.command();
    missing.env("CLAUDE_PROJECT_DIR", project.root.join("gone"));
    run(&mut missing, text.as_bytes()).goes_on().says("does not exist");
    let mut homeless = project.command();
    homeless.env_remove("HOME");
    assert_eq!(run(&mut homeless, text.as_bytes()).goes_on().context(), Some(text_of("tester")));
    // Where the folder should be there is a file.
    let other = process::project("");
    std::fs::write(other.place().folder(), "").unwrap();
    other.hook(&call("a1")).goes_on().says("goes on");
}

/// How to get a place where `mount` affects no other process: as root, else as root of one's own.
fn unshare() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["-m"], &["-r", "-m"]];
    ways.into_iter().find(|way| {
        let mount = ["mount", "-t", "tmpfs", "none", "/mnt"];
        let tried = Command::new("unshare").args(*way).args(mount).output();
        tried.is_ok_and(|done| done.status.success())
    })
}

/// Runs a script in which `mount` affects no other process. None if that is not allowed: where it
/// counts, that is an error.
fn with_mounts(project: &Project, script: &str) -> Option<Done> {
    let Some(way) = unshare() else {
        let why = "NOT TESTED, mounting is not allowed here: a read-only or full disk";
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
        // The test harness keeps what passing tests print to itself, but not this.
        let _ = writeln!(std::io::stderr(), "{why}");
        return None;
    };
    let mut command = Command::new("unshare");
    command.args(way).args(["sh", "-euc", script]);
    command
        .env("HOOK", env!("CARGO_BIN_EXE_shikiri-hook"))
        .env("CLAUDE_PROJECT_DIR", &project.root)
        .env("HOME", &project.home)
        .env("EVENT", call("a1").to_string());
    Some(run(&mut command, b""))
}

#[test]
fn a_read_only_project_is_told_and_the_call_goes_on() {
    let read_only = "cd \"$CLAUDE_PROJECT_DIR\"
        mount --bind . . && mount -o remount,ro,bind . && cd \"$CLAUDE_PROJECT_DIR\"
        printf %s \"$EVENT\" | \"$HOOK\"";
    for project in [process::project(""), used()] {
        let Some(done) = with_mounts(&project, read_only) else { return };
        done.goes_on().says("the tool call goes on").says("ead-only");
        assert_eq!(done.out, "");
    }
}

#[test]
fn on_a_full_disk_the_call_goes_on_and_later_ones_are_recorded() {
    let project = process::project("");
    let script = "cd \"$CLAUDE_PROJECT_DIR\"
        hook() { printf %s \"$EVENT\" | \"$HOOK\"; }
        mount -t tmpfs -o size=32k none . && cd \"$CLAUDE_PROJECT_DIR\" && hook
        mount -o remount,size=1m . && hook
        ! dd if=/dev/zero of=filler bs=4k 2>/dev/null
        hook && hook
        rm filler && hook
        ls .shikiri >&2";
    let Some(done) = with_mounts(&project, script) else { return };
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.matches("the tool call goes on").count() >= 2, "{}", done.err);
    assert!(done.err.contains("full") || done.err.contains("No space"), "{}", done.err);
    assert!(!done.err.contains("damaged"), "{}", done.err);
}

/// A store that a repository or another user planted is not used: nothing behind a link is touched.
#[test]
fn a_planted_database_is_not_used() {
    let outside = tempfile::tempdir().unwrap();
    let precious = outside.path().join("authorized_keys");
    let link = |project: &Project, name: &str| {
        std::fs::write(&precious, "ssh-ed25519 AAAA").unwrap();
        let path = project.place().folder().join(name);
        let _ = std::fs::remove_file(&path);
        std::os::unix::fs::symlink(&precious, path).unwrap();
    };
    for name in ["state.db", "state.db-wal", "state.db.lock"] {
        let project = project();
        link(&project, name);
        let done = project.hook(&call("a"));
        assert_eq!(done.code, Some(0), "{name}: {done:?}");
        assert!(done.err.contains("is not used"), "{name}: {done:?}");
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "ssh-ed25519 AAAA", "{name}");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1, "{name}");
    }
    // A folder of the wrong kind is no better.
    let project = project();
    let _ = std::fs::remove_file(project.place().database());
    std::fs::create_dir(project.place().database()).unwrap();
    assert!(project.hook(&call("a")).err.contains("is not used"));
}

#[test]
fn a_database_that_git_tracks_is_not_used() {
    let project = used();
    let git = |words: &[&str]| {
        let done = Command::new("git").arg("-C").arg(&project.place().root).args(words).output();
        assert!(done.unwrap().status.success(), "git {words:?}");
    };
    git(&["init", "-q"]);
    assert!(!project.hook(&call("a")).err.contains("not used"), "it is not tracked yet");
    git(&["add", "-f", ".shikiri/state.db"]);
    let rows = project.count("SELECT count(*) FROM hook_log");
    let done = project.hook(&call("b"));
    assert!(done.err.contains("tracked by git"), "{done:?}");
    assert_eq!(project.count("SELECT count(*) FROM hook_log"), rows);
}

/// A trigger in the file would run for every row that a hook writes.
#[test]
fn a_trigger_in_the_database_does_not_run() {
    let project = used();
    let trigger = "CREATE TRIGGER t AFTER INSERT ON hook_log BEGIN DELETE FROM subagents; END";
    open(&project).execute_batch(trigger).unwrap();
    let agents = project.count("SELECT count(*) FROM subagents");
    let rows = project.count("SELECT count(*) FROM hook_log");
    assert_eq!(project.hook(&call("a")).code, Some(0));
    assert!(project.count("SELECT count(*) FROM hook_log") > rows, "nothing was written");
    assert!(project.count("SELECT count(*) FROM subagents") >= agents, "the trigger was run");
}
