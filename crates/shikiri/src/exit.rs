//! Exit codes and error lines for every kind of failure.

use std::{fmt, io};

use shikiri_browser::BrowserError;
use shikiri_model::team::RefusalCode;
use shikiri_runtime::{AppError, WatchError};
use shikiri_store::StoreError;
use shikiri_teams::TeamError;

use crate::text::{cut_middle, one_line};

/// Quoted input may be long; the start and the next step at the end matter most.
const MAX_LINE: usize = 1_000;

/// The exit codes that scripts rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    /// Locked, or not permitted.
    Refused = 3,
    NotFound = 4,
    Unavailable = 5,
}

/// A record that was looked up and is not there.
#[derive(Debug)]
pub struct MissingRecord {
    pub kind: &'static str,
    pub id: String,
}

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Printed on stderr as `shikiri: <what>: <what to do next>`.
    Told { exit: Exit, line: String, missing: Option<Box<MissingRecord>> },
    /// The reader of our output has gone. This is no error, and no message is printed.
    ReaderGone,
    /// Ended by the signal of this number.
    Stopped(u8),
}

impl Failure {
    pub fn new(exit: Exit, what: impl fmt::Display, next: &str) -> Self {
        Self::told(exit, format!("{what}: {next}"))
    }

    /// For messages that name the next step themselves.
    pub fn told(exit: Exit, line: impl fmt::Display) -> Self {
        let line = cut_middle(&one_line(&line.to_string()), MAX_LINE);
        Self::Told { exit, line, missing: None }
    }

    fn missing(kind: &'static str, id: String, line: impl fmt::Display) -> Self {
        let line = cut_middle(&one_line(&line.to_string()), MAX_LINE);
        let missing = Some(Box::new(MissingRecord { kind, id }));
        Self::Told { exit: Exit::NotFound, line, missing }
    }

    pub fn usage(what: impl fmt::Display, next: &str) -> Self {
        Self::new(Exit::Usage, what, next)
    }

    /// Adds the next step for a request that is not possible at the moment.
    pub fn not_now(error: AppError, next: &str) -> Self {
        match error {
            AppError::NotNow(what) => Self::new(Exit::Refused, what, next),
            other => other.into(),
        }
    }

    pub fn code(&self) -> u8 {
        match self {
            Self::Told { exit, .. } => *exit as u8,
            Self::ReaderGone => Exit::Done as u8,
            Self::Stopped(signal) => 128_u8.saturating_add(*signal),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told { line, .. } => f.write_str(line),
            Self::ReaderGone => f.write_str("the output is no longer read"),
            Self::Stopped(signal) => write!(f, "stopped by signal {signal}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<AppError> for Failure {
    fn from(error: AppError) -> Self {
        match error {
            AppError::NotFound { kind, ref id } => {
                let next = list_command(kind);
                let next = next.map(|command| format!(": `{command}` shows what there is"));
                Self::missing(kind, id.clone(), format!("{error}{}", next.unwrap_or_default()))
            }
            AppError::Invalid { .. } | AppError::MissingToken(_) | AppError::NoSuchSkill(_) => {
                Self::told(Exit::Usage, error)
            }
            AppError::Locked { ref execution, .. } => {
                // The error names the next step; there is one more option here.
                let line = format!("{error}, or stop it with `shikiri cancel {execution}`");
                Self::told(Exit::Refused, line)
            }
            AppError::NoEngine(_) | AppError::NoSandbox(_) => {
                Self::new(Exit::Unavailable, error, "look with `shikiri doctor`")
            }
            AppError::Exists { .. }
            | AppError::NotNow(_)
            | AppError::KeyReused { .. }
            | AppError::Limit { .. }
            | AppError::Forbidden(_)
            | AppError::Quota { .. }
            | AppError::TooLarge(_) => Self::told(Exit::Refused, error),
            AppError::Inactive { kind, .. } => {
                let next = format!("`shikiri {kind}s set ID --status active` allows it");
                Self::new(Exit::Refused, &error, &next)
            }
            AppError::Unknown(_) => {
                Self::new(Exit::Unavailable, error, "look before you try again")
            }
            AppError::Unavailable(_) => {
                Self::new(Exit::Unavailable, error, "try again, or look with `shikiri doctor`")
            }
            AppError::Broken(_) => Self::new(Exit::Failed, error, "look with `shikiri doctor`"),
        }
    }
}

/// The command that lists records of this kind.
pub fn list_command(kind: &str) -> Option<&'static str> {
    match kind {
        "run" | "stream" => Some("shikiri runs list"),
        "tenant" => Some("shikiri tenants list"),
        "key" => Some("shikiri keys list"),
        "model" => Some("shikiri models list"),
        "mcp_server" => Some("shikiri servers list"),
        "skill" => Some("shikiri skills list"),
        "conversation" => Some("shikiri conversations list"),
        "execution" => Some("shikiri executions list"),
        "project" => Some("shikiri projects list"),
        "agent" => Some("shikiri agents list"),
        "task" => Some("shikiri tasks list"),
        "delegation" => Some("shikiri delegations list"),
        "dialogue" => Some("shikiri dialogues list"),
        "lane" => Some("shikiri lanes list --all"),
        _ => None,
    }
}

impl From<TeamError> for Failure {
    fn from(error: TeamError) -> Self {
        let refusal = match error {
            TeamError::App(error) => return error.into(),
            TeamError::Refused(refusal) => refusal,
        };
        match refusal.code {
            RefusalCode::AgentNotFound | RefusalCode::NotInProject => {
                Self::new(Exit::NotFound, refusal, "`shikiri agents list` shows what there is")
            }
            RefusalCode::InvalidArgument | RefusalCode::ContentTooLong | RefusalCode::WithSelf => {
                Self::told(Exit::Usage, refusal)
            }
            _ => Self::told(Exit::Refused, refusal),
        }
    }
}

impl From<BrowserError> for Failure {
    fn from(error: BrowserError) -> Self {
        match error {
            BrowserError::Unavailable(_) => Self::told(Exit::Unavailable, error),
            BrowserError::ProviderFile(_) | BrowserError::BadSelector(_) => {
                Self::new(Exit::Usage, error, "correct the file")
            }
            _ => Self::new(Exit::Failed, error, "try again"),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        AppError::from(error).into()
    }
}

impl From<WatchError> for Failure {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Cursor(cursor) => Self::told(Exit::Failed, cursor),
            WatchError::Store(store) => store.into(),
        }
    }
}

/// A failed write to stdout.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::new(Exit::Failed, format!("cannot write the output: {error}"), "make room"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_kind_of_error_has_its_exit_code() {
        let code = |error: AppError| Failure::from(error).code();
        assert_eq!(code(AppError::not_found("run", "run_1")), 4);
        assert_eq!(code(AppError::invalid("name", "is too long")), 2);
        assert_eq!(code(AppError::Exists { kind: "tenant", id: "a".to_owned() }), 3);
        assert_eq!(code(AppError::NotNow("the run has ended".to_owned())), 3);
        let limit = AppError::Limit { detail: "slow down".to_owned(), retry_after: Duration::ZERO };
        assert_eq!(code(limit), 3);
        assert_eq!(code(AppError::Unavailable("busy".to_owned())), 5);
        assert_eq!(code(AppError::Broken("damaged".to_owned())), 1);
        assert_eq!(Failure::Stopped(15).code(), 143);
        let refused = |code: RefusalCode| Failure::from(TeamError::from(code.because("x"))).code();
        assert_eq!(refused(RefusalCode::NotInProject), 4);
        assert_eq!(refused(RefusalCode::ContentTooLong), 2);
        assert_eq!(refused(RefusalCode::AlreadyActive), 3);
    }

    #[test]
    fn a_busy_conversation_is_told_once_with_the_command_that_frees_it() {
        let locked = AppError::Locked {
            conversation: "cnv_1".to_owned(),
            execution: "exe_1".to_owned(),
            retry_after: Duration::ZERO,
        };
        assert_eq!(
            Failure::from(locked).to_string(),
            "conversation cnv_1 is busy with exe_1: try again when that has ended, or stop it with \
             `shikiri cancel exe_1`"
        );
    }

    #[test]
    fn a_failure_is_one_line_whatever_it_quotes() {
        let failure = Failure::usage("bad\nthing \u{1b}[2J", "write\tit well");
        assert_eq!(failure.to_string(), "bad thing \\u{1b}[2J: write it well");
        let long = Failure::usage("[".repeat(100_000), "write less").to_string();
        assert!(long.chars().count() <= MAX_LINE && long.ends_with("[: write less"));
    }
}
