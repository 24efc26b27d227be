//! Which store hooks write to: one for all worktrees of a repository, and the one that the
//! configuration names.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};

use crate::process::{Project, project, run};

fn event() -> Value {
    json!({ "session_id": "s", "hook_event_name": "Stop" })
}

fn git(folder: &Path, words: &[&str]) {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(words).env("HOME", folder).env("GIT_CONFIG_NOSYSTEM", "1");
    command.envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "a")));
    command.envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "a@example.com")));
    let done = command.output().unwrap();
    assert!(done.status.success(), "git {words:?}: {done:?}");
}

fn lines(database: &Path) -> i64 {
    let database = SqliteDatabase::open_reader(database, &DatabaseOptions::default()).unwrap();
    database.query_row("SELECT count(*) FROM hook_log", [], |row| row.get(0)).unwrap()
}

#[test]
fn five_worktrees_of_a_repository_share_one_store() {
    let project = project("");
    std::fs::create_dir(project.root.join("src")).unwrap();
    std::fs::write(project.root.join("src/lib.rs"), "").unwrap();
    git(&project.root, &["init", "-q"]);
    git(&project.root, &["add", "-A"]);
    git(&project.root, &["commit", "-q", "-m", "one"]);
    let mut worktrees: Vec<PathBuf> = Vec::new();
    for number in 0..4 {
        let name = format!("../worktree {number}");
        git(&project.root, &["worktree", "add", "-q", "--detach", &name]);
        worktrees.push(project.root.with_file_name(format!("worktree {number}")));
    }
    let inside = project.root.join(".claude/worktrees/agent");
    git(&project.root, &["worktree", "add", "-q", "--detach", inside.to_str().unwrap()]);
    worktrees.push(inside);
    let text = event().to_string();
    for worktree in &worktrees {
        let mut named = project.command();
        run(named.env("CLAUDE_PROJECT_DIR", worktree), text.as_bytes()).goes_on().is_silent();
        // Without a name, the project is found from a folder below.
        let mut found = project.command();
        found.env_remove("CLAUDE_PROJECT_DIR").current_dir(worktree.join("src"));
        project.hook(&event()).goes_on().is_silent();
        run(&mut found, text.as_bytes()).goes_on().is_silent();
        assert!(!worktree.join(".shikiri").exists() && !worktree.join("src/.shikiri").exists());
    }
    assert_eq!(lines(&project.place().database()), 15);
}

/// The database of the configuration is used, and no other is made.
fn writes_only_to(project: &Project, command: &mut Command, database: &Path) {
    run(command, event().to_string().as_bytes()).goes_on().is_silent();
    assert_eq!(lines(database), 1);
    assert!(!project.place().database().exists());
}

#[test]
fn a_hook_writes_to_the_store_that_the_configuration_names() {
    let by_variable = project("");
    let database = by_variable.home.join("mine.db");
    let url = format!("sqlite:{}", database.display());
    writes_only_to(&by_variable, by_variable.command().env("SHIKIRI_STORE", url), &database);

    let by_project = project("");
    std::fs::write(by_project.root.join("shikiri.toml"), "store = 'sqlite:data/x.db'\n").unwrap();
    let database = by_project.root.join("data/x.db");
    writes_only_to(&by_project, &mut by_project.command(), &database);

    let by_user = project("");
    let folder = by_user.home.join(".config/shikiri");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), "store = 'sqlite:y.db'\n").unwrap();
    writes_only_to(&by_user, &mut by_user.command(), &folder.join("y.db"));

    // A clone cannot have hooks write elsewhere.
    let cloned = project("");
    std::fs::write(cloned.root.join("shikiri.toml"), "store = 'sqlite:../stolen.db'\n").unwrap();
    cloned.hook(&event()).goes_on().is_silent();
    assert_eq!(lines(&cloned.place().database()), 1);
    assert!(!cloned.root.join("../stolen.db").exists());
}

#[test]
fn with_a_database_server_nothing_is_written_and_the_next_step_is_said() {
    let project = project("");
    let mut command = project.command();
    command.env("SHIKIRI_STORE", "postgres://me:hunter2@127.0.0.1:1/x");
    let done = run(&mut command, event().to_string().as_bytes());
    done.goes_on().says("SHIKIRI_STORE").says("shikiri hooks install --http URL");
    assert!(!done.err.contains("hunter2"), "{}", done.err);
    assert!(!project.place().folder().exists());
}
