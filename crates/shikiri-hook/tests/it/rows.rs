//! The database as other programs find it: its place, its names, its settings.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::json;
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};

use crate::process::{self, Project, run};
use crate::world::rows;

fn event() -> serde_json::Value {
    json!({ "session_id": "s", "hook_event_name": "SessionStart", "source": "startup" })
}

fn used() -> Project {
    let project = process::project("");
    project.hook(&event()).goes_on().is_silent();
    project
}

fn column(project: &Project, sql: &str) -> Vec<String> {
    let rows = rows(&project.database(), sql);
    rows.into_iter().map(|row| row[0].clone().unwrap_or_default()).collect()
}

/// Rows 3.6–3.10: tables and columns are called what the original called them.
#[test]
fn tables_and_columns_have_the_names_of_the_original() {
    let project = used();
    let tables = [
        ("schema_version", "version applied_at"),
        (
            "subagents",
            "agent_id session_id agent_type role role_source created_at startup_processed
             startup_processed_at task_match_index",
        ),
        (
            "task_spawns",
            "id session_id transcript_index subagent_type role prompt_hash matched_agent_id
             created_at",
        ),
        ("sessions", "session_id hook_name created_at last_tokens status expired_at"),
        (
            "hook_log",
            "id session_id hook_name event_type agent_id timestamp result details duration_ms",
        ),
    ];
    for (table, columns) in tables {
        let found = column(&project, &format!("SELECT name FROM pragma_table_info('{table}')"));
        for name in columns.split_whitespace() {
            assert!(found.iter().any(|found| found == name), "{table}.{name}");
        }
    }
    let default = |table: &str, name: &str| {
        let sql =
            format!("SELECT dflt_value FROM pragma_table_info('{table}') WHERE name = '{name}'");
        column(&project, &sql).concat()
    };
    assert_eq!(default("subagents", "agent_type"), "'unknown'");
    assert_eq!(default("subagents", "startup_processed"), "0");
    assert_eq!(default("sessions", "status"), "'active'");
    assert_eq!(default("sessions", "last_tokens"), "0");
    let key = "SELECT group_concat(name) FROM pragma_index_info(
        (SELECT name FROM pragma_index_list('task_spawns') WHERE origin = 'u'))";
    assert_eq!(column(&project, key), ["session_id,tool_use_id,tenant"]);
}

/// Row 3.11: six indexes, two of them only over what is still to be done.
#[test]
fn there_are_the_six_indexes_of_the_original() {
    let project = used();
    let sql = "SELECT name || ' ' || coalesce(substr(sql, instr(sql, ' WHERE ') + 1), '')
               FROM sqlite_schema WHERE type = 'index' AND name IN (
                   'idx_subagents_session', 'idx_subagents_unprocessed', 'idx_task_spawns_session',
                   'idx_task_spawns_unmatched', 'idx_sessions_status', 'idx_hook_log_session')
               ORDER BY name";
    let found = column(&project, sql);
    assert_eq!(found.len(), 6, "{found:?}");
    assert!(found[3].ends_with("WHERE startup_processed = 0"), "{}", found[3]);
    assert!(found[5].ends_with("WHERE matched_agent_id IS NULL"), "{}", found[5]);
}

/// Rows 3.3, 3.5: made when it is first needed, in WAL mode, for its owner only, and kept out of
/// git.
#[test]
fn the_first_hook_makes_the_database_and_the_next_one_uses_it() {
    let project = used();
    let folder = project.place().folder();
    assert_eq!(folder, project.root.join(".shikiri"));
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let ignored = std::fs::read_to_string(folder.join(".gitignore")).unwrap();
    assert!(ignored.lines().any(|line| line == "*"), "state.db is among them: {ignored}");
    assert_eq!(column(&project, "PRAGMA journal_mode"), ["wal"]);
    // As the hook opens it.
    let database =
        SqliteDatabase::open(&project.place().database(), &DatabaseOptions::default()).unwrap();
    assert_eq!(rows(&database, "PRAGMA foreign_keys"), [[Some("1".to_owned())]]);
    let versions = column(&project, "SELECT applied_at FROM schema_version");
    project.hook(&event()).goes_on().is_silent();
    assert_eq!(column(&project, "SELECT applied_at FROM schema_version"), versions);
    assert_eq!(project.count("SELECT count(*) FROM hook_log"), 2);
}

/// Row 3.4: what Claude Code says, else the working folder, else what the event says.
#[test]
fn the_project_is_where_claude_code_says_else_the_working_folder() {
    let [told, cwd] = [process::project(""), process::project("")];
    let text = event().to_string();
    run(told.command().current_dir(&cwd.root), text.as_bytes()).goes_on().is_silent();
    assert!(told.place().database().exists() && !cwd.place().database().exists());
    run(told.command().env_remove("CLAUDE_PROJECT_DIR").current_dir(&cwd.root), text.as_bytes())
        .goes_on()
        .is_silent();
    assert_eq!(cwd.count("SELECT count(*) FROM hook_log"), 1);
    run(told.command().env("CLAUDE_PROJECT_DIR", "").current_dir(&cwd.root), text.as_bytes())
        .goes_on()
        .is_silent();
    assert_eq!(cwd.count("SELECT count(*) FROM hook_log"), 2);
}

/// Row 3.1: the original's files in `/tmp` are neither read nor written.
#[test]
fn nothing_is_kept_outside_of_the_projects_folder() {
    let project = used();
    let start = json!({
        "session_id": "s", "hook_event_name": "SubagentStart", "agent_id": "a1", "agent_type": "x",
    });
    project.hook(&start).goes_on().is_silent();
    let names = |folder: &std::path::Path| {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names(&project.root), [".shikiri"]);
    assert_eq!(names(&project.home), [".claude"]);
    assert_eq!(names(&project.home.join(".claude")), ["projects"]);
}

/// Row 3.29: a hook takes milliseconds. Here unoptimised, on a machine that does other things too,
/// so the best of many counts.
#[test]
fn a_hook_takes_tens_of_milliseconds_at_most() {
    let project = used();
    let mut took = Vec::new();
    while took.last().is_none_or(|took: &Duration| took.as_millis() >= 50) {
        assert!(took.len() < 200, "{:?} at best", took.iter().min());
        took.push(project.hook(&event()).took);
    }
}
