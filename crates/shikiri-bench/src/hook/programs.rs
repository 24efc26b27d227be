//! The programs that are measured, and one run of one.

use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// What its launcher does; the launcher itself does not survive the move into the cache.
const NAGGER: &str = "import sys; from application.cli import main; sys.exit(main())";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads its input and prints, as `cargo build --release` makes it.
    Empty,
    /// The same, linked as the hook is: what no hook can be faster than.
    EmptyStatic,
    /// What `shikiri hooks install` installs from the archive, the wheel and the npm package.
    Hook,
    /// What it installs after a plain `cargo build --release`.
    Built,
    Shikiri,
    Python,
    Nagger,
}

pub(super) struct Programs {
    /// The folder of both empty ones.
    empty: PathBuf,
    hook: Hook,
    built: Hook,
    shikiri: PathBuf,
    python_hook: PathBuf,
    /// A Python that has it.
    nagger: Option<PathBuf>,
}

impl Programs {
    pub(super) fn find() -> Result<Self> {
        let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let named = |name: &str| {
            set(name).with_context(|| format!("no {name}: run this as `cargo xtask bench hook`"))
        };
        let dist = named("SHIKIRI_BENCH_DIST")?;
        Ok(Self {
            empty: named("SHIKIRI_BENCH_EMPTY")?,
            hook: Hook::installed_from(&dist)?,
            built: Hook::installed_from(&named("SHIKIRI_BENCH_BUILT")?)?,
            shikiri: dist.join("shikiri"),
            python_hook: Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/hook.py"),
            nagger: set("SHIKIRI_PEER_NAGGER"),
        })
    }

    /// How to start a hook of this kind; none if it is not installed.
    pub(super) fn hook(&self, kind: Kind) -> Option<Hook> {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect();
        let (program, arguments) = match kind {
            Kind::Empty => (self.empty.join("empty"), Vec::new()),
            Kind::EmptyStatic => (self.empty.join("empty-static"), Vec::new()),
            Kind::Hook => return Some(self.hook.clone()),
            Kind::Built => return Some(self.built.clone()),
            Kind::Shikiri => (self.shikiri.clone(), words(&["hook"])),
            Kind::Python => (system_python(), vec![self.python_hook.clone().into()]),
            Kind::Nagger => {
                (self.nagger.clone()?, words(&["-c", NAGGER, "hook", "session-startup"]))
            }
        };
        Some(Hook { program, arguments })
    }
}

/// The system's own: version managers put a script in its place, which takes longer than Python.
fn system_python() -> PathBuf {
    let system = PathBuf::from("/usr/bin/python3");
    if system.exists() { system } else { "python3".into() }
}

#[derive(Clone)]
pub(super) struct Hook {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Hook {
    /// What the settings call after `shikiri hooks install`, with the programs of this folder on the
    /// PATH.
    fn installed_from(programs: &Path) -> Result<Self> {
        let project = tempfile::tempdir()?;
        let mut install = Command::new(programs.join("shikiri"));
        install.args(["hooks", "install"]).current_dir(project.path());
        install.env_clear().env("PATH", programs).env("HOME", project.path());
        let done = install.output().with_context(|| format!("cannot start {install:?}"))?;
        ensure!(done.status.success(), "{install:?}: {}", String::from_utf8_lossy(&done.stderr));
        let settings = fs::read(project.path().join(".claude/settings.json"))?;
        let settings: Value = serde_json::from_slice(&settings)?;
        let hook = &settings["hooks"]["PreToolUse"][0]["hooks"][0];
        let command = hook["command"].as_str().context("the settings call no program")?;
        let arguments = hook["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        // A name is looked up here, so that all variants are started alike.
        let program = programs.join(command);
        ensure!(program.is_file(), "{} is not there", program.display());
        Ok(Self { program, arguments: arguments.map(OsString::from).collect() })
    }

    /// Milliseconds from the start of the process to its end and the end of its answer.
    pub(super) fn run(&self, project: &Path, event: &str) -> Result<f64> {
        let (input, mut written) = std::io::pipe()?;
        // It fits into a pipe, so no thread has to write while the hook runs.
        written.write_all(event.as_bytes())?;
        drop(written);
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", project);
        command.env("CLAUDE_PROJECT_DIR", project).env("TMPDIR", project);
        // Some write where they stand.
        command.current_dir(project);
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut answer = String::new();
        child.stdout.take().context("no output")?.read_to_string(&mut answer)?;
        let ended = child.wait()?;
        let took = started.elapsed().as_secs_f64() * 1e3;
        let mut told = String::new();
        child.stderr.take().context("no errors")?.read_to_string(&mut told)?;
        let ours = self.program.ends_with("shikiri") || self.program.ends_with("shikiri-hook");
        ensure!(ended.success(), "{:?}: {ended}: {told}", self.program);
        ensure!(!ours || told.is_empty(), "{:?}: {told}", self.program);
        Ok(took)
    }
}
