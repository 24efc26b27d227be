//! Finds the CLI and checks that its version is supported.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shikiri_executions::execution::EngineError;
use tokio::process::Command;

use super::line_reader;

/// The oldest version that the tests run. Older ones may lack messages about tasks and about the
/// session's state, which the engine needs.
const OLDEST: CliVersion = CliVersion(2, 1, 197);
/// The oldest version that the tests saw taking `--forward-subagent-text`. Others refuse unknown
/// options.
const FORWARDING: CliVersion = CliVersion(2, 1, 325);
const NAME: &str = "claude";
/// `--version` takes a few hundredths of a second, and longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CliVersion(u32, u32, u32);

/// A program whose version is supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InstalledCli {
    pub(super) program: PathBuf,
    /// Whether it can be asked for the text of foreground subagents and the messages of nested ones.
    pub(super) can_forward_subagents: bool,
}

/// Finds the program and checks its version once.
#[derive(Debug, Default)]
pub(super) struct CliLocator {
    named: Option<PathBuf>,
    found: Mutex<Option<InstalledCli>>,
}

impl CliLocator {
    pub(super) fn new(named: Option<PathBuf>) -> Self {
        Self { named, found: Mutex::default() }
    }

    pub(super) async fn find(&self) -> Result<InstalledCli, EngineError> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let program = match &self.named {
            Some(named) => named.clone(),
            None => on_path().ok_or_else(|| {
                EngineError::new(
                    "Claude Code is not installed: there is no `claude` on the PATH. Install it, \
                     or name it with SHIKIRI_CLAUDE_BIN",
                )
            })?,
        };
        let can_forward_subagents = check(&program).await? >= FORWARDING;
        let found = InstalledCli { program, can_forward_subagents };
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
        Ok(found)
    }

    /// The program that was checked before, if it still exists.
    fn known(&self) -> Option<InstalledCli> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.clone().filter(|cli| cli.program.exists())
    }
}

fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(NAME)).find(|file| file.is_file())
}

async fn check(program: &Path) -> Result<CliVersion, EngineError> {
    let place = program.display();
    let mut command = Command::new(program);
    command.arg("--version").env_clear().stdin(Stdio::null()).kill_on_drop(true);
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    let output = tokio::time::timeout(PATIENCE, command.output()).await.map_err(|_| {
        EngineError::new(format!("Claude Code at {place} does not tell its version"))
    })?;
    let output = output.map_err(|error| {
        EngineError::new(format!(
            "Claude Code cannot be started from {place}: {error}. Install it, or name it with \
             SHIKIRI_CLAUDE_BIN"
        ))
    })?;
    let output = line_reader::start(&output.stdout, 80);
    let version = CliVersion::read(&output).ok_or_else(|| {
        EngineError::new(format!("{place} is no Claude Code: its version is {:?}", output.trim()))
    })?;
    if version < OLDEST {
        let (version, oldest) = (version.text(), OLDEST.text());
        return Err(EngineError::new(format!(
            "Claude Code at {place} is too old: {version}, needed is {oldest} or newer"
        )));
    }
    Ok(version)
}

impl CliVersion {
    /// From what `--version` prints: `2.1.325 (Claude Code)`.
    fn read(output: &str) -> Option<Self> {
        let mut numbers = output.split_whitespace().next()?.splitn(3, '.');
        let mut number = || {
            let digits = numbers.next()?;
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits[..end].parse().ok()
        };
        Some(Self(number()?, number()?, number()?))
    }

    fn text(self) -> String {
        format!("{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        let read = CliVersion::read;
        assert_eq!(read("2.1.325 (Claude Code)\n"), Some(CliVersion(2, 1, 325)));
        assert_eq!(read("2.2.0-beta.1 (Claude Code)"), Some(CliVersion(2, 2, 0)));
        assert!(read("2.1.99").unwrap() < OLDEST && read("10.0.0").unwrap() > OLDEST);
        for bad in ["", "claude", "2.1", "v2.1.3", "2.1.x"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
