use shikiri_model::hook::{HookSession, HookSessionQuery, HookUsageUpdate, LogQuery};

use super::*;
use crate::{DatabaseOptions, SqliteDatabase};

fn database() -> (tempfile::TempDir, SqliteDatabase) {
    let folder = tempfile::tempdir().unwrap();
    let database =
        SqliteDatabase::open(&folder.path().join("state.db"), &DatabaseOptions::default()).unwrap();
    (folder, database)
}

/// Columns of a table, and those of its primary key in order.
fn table(database: &SqliteDatabase, name: &str) -> (Vec<String>, Vec<String>) {
    let mut select = database.prepare("SELECT name, pk FROM pragma_table_info(?1)").unwrap();
    let columns: Vec<(String, i64)> = select
        .query_map([name], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_>>()
        .unwrap();
    let mut key: Vec<_> = columns.iter().filter(|(_, place)| *place > 0).collect();
    key.sort_by_key(|(_, place)| *place);
    let key = key.into_iter().map(|(name, _)| name.clone()).collect();
    (columns.into_iter().map(|(name, _)| name).collect(), key)
}

/// Rows 3.9, 3.10: what outside readers find in the tables.
#[test]
fn the_tables_of_sessions_and_of_the_log_have_their_columns() {
    let (_folder, database) = database();
    let (columns, key) = table(&database, "sessions");
    for name in ["session_id", "hook_name", "created_at", "last_tokens", "status", "expired_at"] {
        assert!(columns.iter().any(|column| column == name), "{name} in {columns:?}");
    }
    assert_eq!(key[..2], ["session_id", "hook_name"]);
    let (columns, key) = table(&database, "hook_log");
    for name in [
        "id",
        "session_id",
        "hook_name",
        "event_type",
        "agent_id",
        "timestamp",
        "result",
        "details",
        "duration_ms",
    ] {
        assert!(columns.iter().any(|column| column == name), "{name} in {columns:?}");
    }
    assert_eq!(key, ["id"]);
    // What is left out has its default.
    database
        .execute(
            "INSERT INTO sessions (session_id, hook_name, created_at) VALUES ('s', 'h', 't')",
            [],
        )
        .unwrap();
    let sql = "SELECT last_tokens, status, expired_at FROM sessions";
    let defaults: (i64, String, Option<String>) =
        database.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    assert_eq!(defaults, (0, "active".to_owned(), None));
}

fn marks(database: &SqliteDatabase, session_id: &str) -> Vec<SessionMark> {
    let needs = HookRowsNeeded {
        session_id: session_id.to_owned(),
        marks: true,
        ..HookRowsNeeded::default()
    };
    let mut marks = load(database, "local", &needs).unwrap().marks;
    marks.sort_by(|a, b| a.key.hook_name.cmp(&b.key.hook_name));
    marks
}

/// Row 3.18: stored or replaced, read, expired alone or all together.
#[test]
fn the_state_of_a_sessions_hooks_is_replaced_and_expires() {
    let (_folder, database) = database();
    let at = Timestamp::from_millis(1_000);
    let mark = |session: &str, hook: &str, last_tokens, status: &str| SessionMark {
        key: SessionMarkKey { session_id: session.to_owned(), hook_name: hook.to_owned() },
        created_at: at,
        last_tokens,
        status: status.to_owned(),
        expired_at: (status != "active").then_some(at),
    };
    let put = |mark: &SessionMark| {
        write(&database, "local", &[HookRowChange::Mark(mark.clone())]).unwrap()
    };
    for mark in
        [mark("s", "a", 5, "active"), mark("s", "b", 1, "active"), mark("t", "a", 1, "active")]
    {
        put(&mark);
    }
    put(&mark("s", "a", 70_000, "active"));
    let both = [mark("s", "a", 70_000, "active"), mark("s", "b", 1, "active")];
    assert_eq!(marks(&database, "s"), both, "replaced, not added");

    put(&mark("s", "a", 70_000, "expired"));
    let alone = [mark("s", "a", 70_000, "expired"), mark("s", "b", 1, "active")];
    assert_eq!(marks(&database, "s"), alone);

    put(&mark("s", "subagent:a1:rule:x", 1, "active"));
    let (session_id, later) = ("s".to_owned(), Timestamp::from_millis(2_000));
    let all = HookRowChange::ExpireMainMarks { session_id, status: "compact_expired", at: later };
    write(&database, "local", &[all]).unwrap();
    let mut expired = marks(&database, "s");
    let of_subagent = expired.pop().unwrap();
    assert_eq!(of_subagent, mark("s", "subagent:a1:rule:x", 1, "active"), "a subagent's");
    assert_eq!(expired.len(), 2);
    assert!(expired.iter().all(|m| m.status == "compact_expired" && m.expired_at == Some(later)));
    assert_eq!(marks(&database, "t"), [mark("t", "a", 1, "active")], "another session's");
}

/// Rows 3.16, 3.17: a record comes back as it was put, and of the active ones only those of the
/// session do.
#[test]
fn a_record_comes_back_as_it_was_put() {
    let (_folder, database) = database();
    let now = Timestamp::from_millis(1_794_772_800_123);
    let full = SubagentRecord {
        agent_type: "tester".to_owned(),
        role: Some("試験".to_owned()),
        role_source: Some(RoleSource::TranscriptParse),
        confidence: RoleConfidence::Unique,
        startup_processed: true,
        startup_processed_at: Some(now),
        task_match_index: Some(7),
        tool_use_id: Some("t".to_owned()),
        parent_agent_id: Some("p".to_owned()),
        delivered: Some("roles.tester".to_owned()),
        claim: Some(DeliveryClaim { by: "1.2".to_owned(), until: now }),
        checked: true,
        usage: Some("{}".to_owned()),
        usage_complete: true,
        transcript_path: Some("/t".to_owned()),
        resumed_at: Some(now),
        ..SubagentRecord::new("a", "s", now)
    };
    let mut ended = SubagentRecord::new("e", "s", now);
    ended.end("failed", now);
    let elsewhere = SubagentRecord::new("x", "t", now);
    let changes = [&full, &ended, &elsewhere].map(|agent| HookRowChange::Subagent(agent.clone()));
    write(&database, "local", &changes).unwrap();
    for agent in [&full, &ended, &elsewhere] {
        assert_eq!(find(&database, "local", &agent.agent_id).unwrap().as_ref(), Some(agent));
    }
    assert_eq!(find(&database, "other", "a").unwrap(), None);
    let needs =
        HookRowsNeeded { session_id: "s".to_owned(), active: true, ..HookRowsNeeded::default() };
    assert_eq!(load(&database, "local", &needs).unwrap().active, [full]);
    let needs =
        HookRowsNeeded { session_id: "s".to_owned(), unread: true, ..HookRowsNeeded::default() };
    assert_eq!(load(&database, "local", &needs).unwrap().unread, [ended]);
}

/// A later look at a transcript does not undo what an event has written since.
#[test]
fn usage_is_updated_unless_the_agent_went_on() {
    let (_folder, database) = database();
    let now = Timestamp::from_millis(1_794_772_800_123);
    let session = HookSession {
        session_id: "s".to_owned(),
        created_at: now,
        prompted_at: Some(now),
        ..HookSession::default()
    };
    let mut agent = SubagentRecord::new("a", "s", now);
    agent.end("stopped", now);
    let changes = [HookRowChange::Session(session), HookRowChange::Subagent(agent)];
    write(&database, "local", &changes).unwrap();
    let update = |agent_id: Option<&str>, since, complete| HookUsageUpdate {
        session_id: "s".to_owned(),
        agent_id: agent_id.map(str::to_owned),
        since,
        usage: Some("new".to_owned()),
        usage_complete: complete,
    };
    let usage = || {
        let needs = HookRowsNeeded {
            session_id: "s".to_owned(),
            session: true,
            ..HookRowsNeeded::default()
        };
        let session = load(&database, "local", &needs).unwrap().session.unwrap();
        let agent = find(&database, "local", "a").unwrap().unwrap();
        (session.usage, agent.usage)
    };
    let late = [update(None, None, true), update(Some("a"), Some(now), true)];
    update_usage(&database, "local", &late).unwrap();
    assert_eq!(usage(), (None, None));
    let right = [update(None, Some(now), true), update(Some("a"), None, true)];
    update_usage(&database, "local", &right).unwrap();
    let new = Some("new".to_owned());
    assert_eq!(usage(), (new.clone(), new));
    let query = HookSessionQuery { from: Some(now), limit: 9, ..HookSessionQuery::default() };
    assert_eq!(sessions(&database, "local", &query).unwrap().len(), 1);
    let before = HookSessionQuery { before: Some(now), ..query };
    assert_eq!(sessions(&database, "local", &before).unwrap(), []);
}

/// Row 3.19: details that another program wrote in another form are as good as none.
#[test]
fn a_line_that_cannot_be_read_does_not_hide_the_others() {
    let (_folder, database) = database();
    for details in ["{\"tool\":\"Bash\"}", "not JSON"] {
        database
            .execute(
                "INSERT INTO hook_log (session_id, hook_name, event_type, timestamp, details)
                 VALUES ('s', 'h', 'e', 'yesterday', ?1)",
                [details],
            )
            .unwrap();
    }
    let lines = list_log(&database, "local", &LogQuery::default()).unwrap();
    let details: Vec<_> = lines.into_iter().map(|line| line.details).collect();
    assert_eq!(details, [None, Some(serde_json::json!({ "tool": "Bash" }))]);
}

/// Row 3.11: the original's query reads the lines of its session and no others.
#[test]
fn the_log_of_a_session_by_time_is_found_by_the_index() {
    let (_folder, database) = database();
    for sql in [
        "SELECT * FROM hook_log WHERE session_id = 's' ORDER BY timestamp DESC LIMIT 50",
        "SELECT count(*) FROM hook_log WHERE session_id = 's' AND timestamp >= '2026'",
    ] {
        let plan: String = database
            .query_row(&format!("EXPLAIN QUERY PLAN {sql}"), [], |row| row.get("detail"))
            .unwrap();
        let is_found =
            plan.contains("SEARCH") && plan.contains("idx_hook_log_session (session_id=?");
        assert!(is_found, "{sql}: {plan}");
    }
}

/// Row 3.19: figures of each hook and of the latest sessions, of one tenant alone.
#[test]
fn figures_add_up_what_the_log_says() {
    let (_folder, database) = database();
    let line = |tenant: &str, session: &str, event: &str, result: Option<&str>, ms: Option<i64>| {
        let sql = "INSERT INTO hook_log
                       (tenant, session_id, hook_name, event_type, timestamp, result, duration_ms)
                   VALUES (?1, ?2, 'h', ?3, '2026-11-19T21:00:00.000Z', ?4, ?5)";
        database.execute(sql, (tenant, session, event, result, ms)).unwrap();
    };
    line("local", "s", "PreToolUse", Some("ok"), Some(2));
    line("local", "t", "PreToolUse", Some("blocked"), Some(5));
    line("local", "s", "PreToolUse", None, None);
    line("local", "s", "Stop", Some("injected"), None);
    line("other", "u", "Stop", Some("injected"), Some(99));
    let now = Timestamp::from_millis(1);
    let told = SubagentRecord { startup_processed: true, ..SubagentRecord::new("told", "s", now) };
    for agent in [told, SubagentRecord::new("new", "s", now)] {
        write(&database, "local", &[HookRowChange::Subagent(agent)]).unwrap();
    }
    let found = stats(&database, "local").unwrap();
    let hooks: Vec<_> = found
        .hooks
        .iter()
        .map(|it| (&*it.event_type, it.count, it.injected, it.blocked, it.average_ms, it.max_ms))
        .collect();
    let expected = [("PreToolUse", 3, 0, 1, Some(3.5), Some(5)), ("Stop", 1, 1, 0, None, None)];
    assert_eq!(hooks, expected);
    let sessions: Vec<_> = found
        .sessions
        .iter()
        .map(|it| (&*it.session_id, it.count, it.injected, it.blocked, it.active, it.unprocessed))
        .collect();
    assert_eq!(sessions, [("s", 3, 1, 0, 2, 1), ("t", 1, 0, 1, 0, 0)]);
    assert_eq!(found.sessions[0].last_at.to_string(), "2026-11-19T21:00:00.000Z");
}
