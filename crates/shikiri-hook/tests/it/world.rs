//! A project of its own for each test, in which turns are taken in this process.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::{Value, json};
use shikiri_hook::conventions_file;
use shikiri_hook::event_handler::{self, HookEventContext, HookHost};
use shikiri_hook::hook_project::{self, HookProject};
use shikiri_model::hook::{Conventions, HookDecision, HookInput};
use shikiri_model::time::Timestamp;
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase, SynchronousMode};
use tempfile::TempDir;

/// Every role that is named anywhere has a text, so that a wrong one would be heard.
pub(crate) const ROLES: [&str; 13] = [
    "tester", "coder", "scribe", "alice", "bob", "good", "bad", "nosuch", "r1", "r2", "r3", "r4",
    "r5",
];

pub(crate) fn text_of(role: &str) -> String {
    format!("the text of {role}")
}

pub(crate) fn conventions() -> String {
    let table = |name: &str, role: &str| format!("[{name}]\ntext = {:?}\n", text_of(role));
    let mut file = table("main", "main") + &table("default", "default");
    for role in ROLES {
        file += &table(&format!("roles.{role}"), role);
    }
    file
}

/// A small generator: the same seed gives the same numbers.
pub(crate) struct Rng(u64);

impl Rng {
    /// `SHIKIRI_SEED` sets it; else it is always the same. Printed, so that a failure is played
    /// again.
    pub(crate) fn seeded(test: &str) -> Self {
        let told = std::env::var("SHIKIRI_SEED").ok();
        let seed = told.map_or(5, |told| told.parse().expect("SHIKIRI_SEED is a number"));
        eprintln!("{test}: SHIKIRI_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap()
    }

    pub(crate) fn fork(&mut self) -> Self {
        Self(self.below(usize::MAX) as u64)
    }
}

/// A project, its database, and a clock that the test moves.
pub(crate) struct World {
    _folder: TempDir,
    pub(crate) place: HookProject,
    pub(crate) conventions: Conventions,
    pub(crate) database: SqliteDatabase,
    pub(crate) now_ms: Cell<i64>,
    turns: u32,
    /// Hooks that are still there, in the eyes of the others.
    pub(crate) living: Vec<String>,
    /// How long each hook has been at it when its turn comes.
    pub(crate) waited: Duration,
}

pub(crate) fn world() -> World {
    with(&conventions())
}

pub(crate) fn with(conventions: &str) -> World {
    let folder = memory();
    let place = HookProject { root: folder.path().canonicalize().unwrap() };
    hook_project::prepare_folder(&place.folder()).unwrap();
    let options =
        DatabaseOptions { synchronous: SynchronousMode::Normal, ..DatabaseOptions::default() };
    World {
        database: SqliteDatabase::open(&place.database(), &options).unwrap(),
        conventions: conventions_file::parse(conventions).unwrap(),
        place,
        _folder: folder,
        now_ms: Cell::new(1_800_000_000_000),
        turns: 0,
        living: Vec::new(),
        waited: Duration::ZERO,
    }
}

/// A folder in memory where there is one: thousands of small writes need no disk.
fn memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// What a hook would print, and whether it got as far as to confirm.
pub(crate) struct Told {
    pub(crate) answer: Option<Value>,
    pub(crate) confirmed: bool,
    decision: HookDecision,
    by: String,
}

impl Told {
    pub(crate) fn context(&self) -> Option<&str> {
        self.specific("additionalContext")
    }

    pub(crate) fn specific(&self, field: &str) -> Option<&str> {
        self.answer.as_ref()?["hookSpecificOutput"][field].as_str()
    }
}

impl World {
    /// One event, to its end.
    pub(crate) fn hook(&mut self, payload: &Value) -> Told {
        self.take(payload, true)
    }

    /// One event whose hook is killed when it has printed its answer.
    pub(crate) fn killed(&mut self, payload: &Value) -> Told {
        self.take(payload, false)
    }

    /// One event whose hook prints its answer and is then stopped for longer than anybody waits.
    pub(crate) fn paused(&mut self, payload: &Value) -> Told {
        let told = self.take(payload, false);
        self.now_ms.set(self.now_ms.get() + 10_000);
        told
    }

    /// Whether a hook that wakes again can still confirm what it printed.
    pub(crate) fn confirms(&mut self, told: &Told) -> bool {
        let now = || Timestamp::from_millis(0);
        let host = HookHost {
            me: told.by.clone(),
            now: &now,
            lives: &|_| true,
            start_waits: 1,
            started: Instant::now(),
        };
        event_handler::confirm(&mut self.database, &told.decision, &host).unwrap()
    }

    fn take(&mut self, payload: &Value, survives: bool) -> Told {
        self.turns += 1;
        self.now_ms.set(self.now_ms.get() + 1);
        let payload = HookInput::parse(payload.to_string().as_bytes()).unwrap();
        let now = || Timestamp::from_millis(self.now_ms.get());
        let living = self.living.clone();
        let lives = |who: &str| living.iter().any(|one| one == who);
        let me = format!("hook-{}", self.turns);
        let started = Instant::now() - self.waited;
        let host = HookHost { me, now: &now, lives: &lives, start_waits: 1, started };
        let event = HookEventContext {
            payload: &payload,
            project: &self.place,
            conventions: &self.conventions,
        };
        let decision = event_handler::decide(&mut self.database, &event, &host).unwrap();
        let confirmed =
            survives && event_handler::confirm(&mut self.database, &decision, &host).unwrap();
        let answer = decision.answer.to_json(&payload.event);
        Told { answer, confirmed, decision, by: host.me }
    }

    /// Where Claude Code keeps the transcript of a session.
    pub(crate) fn transcript(&self, session: &str) -> PathBuf {
        self.place.root.join("claude").join(format!("{session}.jsonl"))
    }

    pub(crate) fn event(&self, event: &str, more: Value) -> Value {
        let mut payload = json!({
            "session_id": "s", "hook_event_name": event, "cwd": self.place.root,
            "transcript_path": self.transcript("s"),
        });
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        payload
    }

    pub(crate) fn spawn(&mut self, call: &str, kind: &str, prompt: &str) -> Told {
        let input = json!({ "subagent_type": kind, "prompt": prompt });
        let more = json!({ "tool_name": "Task", "tool_use_id": call, "tool_input": input });
        self.hook(&self.event("PreToolUse", more))
    }

    pub(crate) fn start(&mut self, agent: &str, kind: &str) -> Told {
        let more = json!({ "agent_id": agent, "agent_type": kind });
        self.hook(&self.event("SubagentStart", more))
    }

    pub(crate) fn stop(&mut self, agent: &str, kind: &str) {
        let more = json!({ "agent_id": agent, "agent_type": kind });
        self.hook(&self.event("SubagentStop", more));
    }

    pub(crate) fn tool(&mut self, agent: &str, kind: &str) -> Told {
        self.hook(&self.tool_event(agent, kind))
    }

    pub(crate) fn tool_event(&self, agent: &str, kind: &str) -> Value {
        let input = json!({ "command": "ls" });
        let more = json!({
            "agent_id": agent, "agent_type": kind, "tool_name": "Bash", "tool_input": input,
        });
        self.event("PreToolUse", more)
    }

    /// Writes which call an agent comes from, as Claude Code does before its first tool call.
    pub(crate) fn meta(&self, session: &str, agent: &str, meta: &Value) {
        let folder = self.transcript(session).with_extension("").join("subagents");
        write(&folder.join(format!("agent-{agent}.meta.json")), &meta.to_string());
    }

    /// One row of a query, as text.
    pub(crate) fn row(&self, sql: &str) -> Vec<Option<String>> {
        self.rows(sql).pop().unwrap_or_default()
    }

    pub(crate) fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        rows(&self.database, sql)
    }
}

pub(crate) fn rows(connection: &Connection, sql: &str) -> Vec<Vec<Option<String>>> {
    let mut select = connection.prepare(sql).unwrap();
    let width = select.column_count();
    let text = |row: &rusqlite::Row<'_>, index| match row.get_ref(index).unwrap() {
        rusqlite::types::ValueRef::Null => None,
        rusqlite::types::ValueRef::Integer(number) => Some(number.to_string()),
        other => Some(other.as_str().unwrap().to_owned()),
    };
    select
        .query_map([], |row| Ok((0..width).map(|index| text(row, index)).collect()))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

/// Writes a file, with the folders that it needs.
pub(crate) fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
