//! A project as it is after some weeks: hundreds of agents, ten thousand rows of log, conventions
//! for five roles and five rules.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase, SynchronousMode};

use super::programs::Hook;

const ROLES: [&str; 5] = ["tester", "coder", "reviewer", "writer", "planner"];
const AGENTS: usize = 300;
const LOG_ROWS: usize = 10_000;
const SESSIONS: usize = 20;

/// The subagent whose calls are measured.
const AGENT: &str = "a0f3c1d2e4b5a697";

pub(super) struct Project {
    pub(super) folder: PathBuf,
}

impl Project {
    /// With conventions, and nothing that happened.
    pub(super) fn fresh(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(folder.join(".shikiri"))?;
        fs::write(folder.join(".shikiri/conventions.toml"), conventions()?)?;
        Ok(Self { folder })
    }

    /// With a past, and with a subagent that has been told its conventions.
    pub(super) fn warm(folder: PathBuf, hook: &Hook) -> Result<Self> {
        let project = Self::fresh(folder)?;
        hook.run(&project.folder, &project.event("SubagentStart", AGENT))?;
        project.fill()?;
        Ok(project)
    }

    /// The subagent's call of a tool that no rule is about.
    pub(super) fn call(&self) -> String {
        self.event("PreToolUse", AGENT)
    }

    pub(super) fn event(&self, event: &str, agent: &str) -> String {
        let folder = self.folder.display();
        let mut fields = json!({
            "session_id": "60eb4cbc-275b-4b9d-8f7c-0010c68f17c3",
            "hook_event_name": event,
            "transcript_path": format!("{folder}/.claude/projects/p/60eb4cbc.jsonl"),
            "cwd": folder.to_string(),
            "permission_mode": "default",
            "agent_id": agent,
            "agent_type": ROLES[0],
        });
        if event == "PreToolUse" {
            fields["tool_name"] = json!("Edit");
            fields["tool_use_id"] = json!("toolu_01A09q90qw90lq917835lq9");
            fields["tool_input"] = edit(&self.folder);
        }
        fields.to_string()
    }

    /// How many events are recorded.
    pub(super) fn logged(&self) -> Result<usize> {
        let database = SqliteDatabase::open_reader(&self.database(), &DatabaseOptions::default())?;
        let count = "SELECT count(*) FROM hook_log";
        let count: u32 = database.query_row(count, [], |row| row.get(0))?;
        Ok(usize::try_from(count)?)
    }

    fn database(&self) -> PathBuf {
        self.folder.join(".shikiri/state.db")
    }

    fn fill(&self) -> Result<()> {
        let options =
            DatabaseOptions { synchronous: SynchronousMode::Normal, ..DatabaseOptions::default() };
        let mut database = SqliteDatabase::open(&self.database(), &options)?;
        let transaction = database.transaction()?;
        for number in 0..AGENTS {
            transaction.execute(
                "INSERT INTO subagents
                     (agent_id, session_id, agent_type, role, role_source, confidence, created_at,
                      startup_processed, delivered, state, ended_at, end_reason)
                 VALUES (?1, ?2, ?3, ?3, 'agent_type', 'exact', '2026-11-01T00:00:00.000Z', 1,
                         'roles.' || ?3, 'ended', '2026-11-01T00:10:00.000Z', 'stop')",
                (
                    format!("a{number:016x}"),
                    format!("session-{}", number % SESSIONS),
                    ROLES[number % ROLES.len()],
                ),
            )?;
        }
        for number in 0..LOG_ROWS {
            transaction.execute(
                "INSERT INTO hook_log
                     (session_id, hook_name, event_type, agent_id, timestamp, result, duration_ms)
                 VALUES (?1, 'PreToolUse', 'PreToolUse', ?2, ?3, 'none', 1)",
                (
                    format!("session-{}", number % SESSIONS),
                    format!("a{:016x}", number % AGENTS),
                    format!("2026-11-01T{:02}:{:02}:00.000Z", number / 60 % 24, number % 60),
                ),
            )?;
        }
        Ok(transaction.commit()?)
    }
}

fn edit(folder: &Path) -> Value {
    json!({
        "file_path": format!("{}/src/lib.rs", folder.display()),
        "old_string": "fn before() -> usize {\n    1\n}\n".repeat(8),
        "new_string": "fn after() -> usize {\n    2\n}\n".repeat(8),
        "replace_all": false,
    })
}

fn conventions() -> Result<String> {
    let mut text = "[main]\ntext = \"Answer briefly.\"\n".to_owned();
    for role in ROLES {
        let line = "- A convention of the usual length, which says how something is done here.\n";
        let lines = line.repeat(12);
        write!(text, "\n[roles.{role}]\ntext = \"\"\"\nYou are the {role}.\n{lines}\"\"\"\n")?;
    }
    for (number, role) in ROLES.iter().enumerate() {
        write!(
            text,
            "\n[[rules]]\nname = \"rule {number}\"\ntools = [\"Write\", \"Edit\"]\n\
             paths = [\"generated/{number}/**\", \"vendor/{number}/**\"]\nroles = [\"{role}\"]\n\
             severity = \"block\"\nmessage = \"These files are made by a program.\"\n"
        )?;
    }
    Ok(text)
}
