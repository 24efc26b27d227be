//! The program itself, as Claude Code would start it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::Value;
use shikiri_hook::hook_project::HookProject;
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use tempfile::TempDir;

/// No hook waits longer, whatever it waits for.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);

/// So long Claude Code itself waits: the `timeout` that `shikiri hooks install` writes.
const TIMEOUT: Duration = Duration::from_secs(5);

/// No test waits longer for a process that should have ended long ago.
const GIVE_UP: Duration = Duration::from_secs(30);

/// Whether there is time for the long form of a test.
pub(crate) fn is_long() -> bool {
    std::env::var_os("SHIKIRI_LONG").is_some()
}

/// A project and a home in a folder of their own.
pub(crate) struct Project {
    _folder: TempDir,
    pub(crate) root: PathBuf,
    pub(crate) home: PathBuf,
}

/// How a hook ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// None if it was killed.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

pub(crate) fn project(conventions: &str) -> Project {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let (root, home) = (base.join("project"), base.join("home"));
    std::fs::create_dir_all(home.join(".claude/projects")).unwrap();
    std::fs::create_dir_all(&root).unwrap();
    let project = Project { _folder: folder, root, home };
    if !conventions.is_empty() {
        std::fs::create_dir_all(project.place().folder()).unwrap();
        std::fs::write(project.place().conventions(), conventions).unwrap();
    }
    project
}

impl Project {
    pub(crate) fn place(&self) -> HookProject {
        HookProject { root: self.root.clone() }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shikiri-hook"));
        command
            .env_clear()
            .env("CLAUDE_PROJECT_DIR", &self.root)
            .env("HOME", &self.home)
            .current_dir(&self.home);
        command
    }

    pub(crate) fn hook(&self, payload: &Value) -> Done {
        run(&mut self.command(), payload.to_string().as_bytes())
    }

    /// As other programs see it.
    pub(crate) fn database(&self) -> SqliteDatabase {
        SqliteDatabase::open_reader(&self.place().database(), &DatabaseOptions::default()).unwrap()
    }

    pub(crate) fn count(&self, sql: &str) -> i64 {
        let connection: &Connection = &self.database();
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

impl Done {
    pub(crate) fn answer(&self) -> Option<Value> {
        (!self.out.is_empty()).then(|| serde_json::from_str(&self.out).unwrap())
    }

    pub(crate) fn specific(&self, field: &str) -> Option<String> {
        Some(self.answer()?["hookSpecificOutput"][field].as_str()?.to_owned())
    }

    pub(crate) fn context(&self) -> Option<String> {
        self.specific("additionalContext")
    }

    /// It let the tool call go on, before Claude Code gave it up.
    #[track_caller]
    pub(crate) fn goes_on(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert!(self.took < TIMEOUT, "{self:?}");
        assert!(!self.out.contains("deny"), "{self:?}");
        self
    }

    /// It let the tool call go on because it had no time left, as happens where too much runs at
    /// once. One that gave up before its time, or for another reason, is not meant.
    pub(crate) fn is_late(&self) -> bool {
        let reasons = ["no event came", "in time", "is locked"];
        self.code == Some(0)
            && self.took >= LIMIT / 2
            && self.err.trim_end().ends_with("the tool call goes on")
            && reasons.iter().any(|reason| self.err.contains(reason))
    }

    /// It said this, once, on standard error.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) -> &Self {
        assert!(self.err.contains(text), "not {text:?} in {:?}", self.err);
        self
    }

    #[track_caller]
    pub(crate) fn is_silent(&self) -> &Self {
        assert_eq!((self.out.as_str(), self.err.as_str()), ("", ""));
        self
    }
}

/// A hook that had to wait has little of its time left, which a busy machine may need for itself:
/// one of three that ends within the limit is enough. One that waits too long always does.
#[track_caller]
pub(crate) fn assert_in_time(scene: impl Fn() -> Done) {
    let mut late = Vec::new();
    while late.len() < 3 {
        let done = scene();
        if done.took < LIMIT {
            return;
        }
        late.push(done.took);
    }
    panic!("not within {LIMIT:?}: {late:?}");
}

pub(crate) fn run(command: &mut Command, input: &[u8]) -> Done {
    command.stdin(Stdio::piped());
    let started = Instant::now();
    let mut child = spawn(command);
    let mut stdin = child.stdin.take().unwrap();
    // One that has heard enough closes its end: then it does not matter what else there was.
    let _ = stdin.write_all(input);
    drop(stdin);
    wait(child, started)
}

pub(crate) fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end of a hook, but not for ever.
pub(crate) fn wait(child: Child, started: Instant) -> Done {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let output = child.wait_with_output().unwrap();
        let _ = sender.send((output, started.elapsed()));
    });
    let Ok((output, took)) = receiver.recv_timeout(GIVE_UP) else {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        panic!("the hook hangs");
    };
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code(), out: text(output.stdout), err: text(output.stderr), took }
}
