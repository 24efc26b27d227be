//! Why a question was not answered, with the code that callers know it by.

use shikiri_model::documented_enum;
use shikiri_model::lane::ProviderQuestionError;
use shikiri_model::run::RunErrorCode;
use shikiri_runtime::AppError;
use shikiri_store::{CommitError, StoreError};

use super::page_driver::AskErrorCause;

documented_enum! {
    /// Why a question was not answered. The comments are the reference page of errors.
    pub enum LaneErrorCode {
        /// There are as many lanes as allowed, and each has a question under way.
        ///
        /// Try again later, or raise `max_agents`.
        LanesFull = "LANES_FULL",
        /// Too many questions wait in this process, or this one waited too long. Nothing was asked.
        ///
        /// Try again later. See `max_questions`, `max_queued_questions` and `question_wait_seconds`.
        QueueFull = "QUEUE_FULL",
        /// There is no provider of this name.
        ///
        /// Name `chatgpt`, `gemini`, or one of `.shikiri/providers.toml`.
        UnknownProvider = "UNKNOWN_PROVIDER",
        /// The page asks for a login. It is never passed.
        ///
        /// Log in by hand: `shikiri browser login`.
        LoginRequired = "LOGIN_REQUIRED",
        /// No Chrome was found, or it did not start.
        ///
        /// Install one, or name one with `SHIKIRI_CHROME_BIN` or `SHIKIRI_BROWSER_URL`. `shikiri doctor` tells what is used.
        BrowserUnavailable = "BROWSER_UNAVAILABLE",
        /// A part of the page was not found. The message names its selector.
        ///
        /// Look with `shikiri browser check`, and correct the selector in `.shikiri/providers.toml`.
        PageChanged = "PAGE_CHANGED",
        /// The question was sent, and no answer was complete in time.
        ///
        /// Open the chat's address: the answer may stand there. `seconds.answer` of the provider sets the time.
        AnswerTimeout = "ANSWER_TIMEOUT",
        /// The chat is gone, and a new one was gone too.
        ///
        /// Look at the page by hand: `shikiri browser login`.
        ThreadGone = "THREAD_GONE",
        /// Whether the provider has the question is unknown. It is not sent again.
        ///
        /// Look at the chat's address before you ask again.
        UnknownOutcome = "UNKNOWN_OUTCOME",
        /// The question was given up.
        ///
        /// Ask again if that was not meant.
        Cancelled = "CANCELLED",
        /// The browser failed. The message says how.
        ///
        /// Ask again. `shikiri doctor` checks the browser.
        BrowserFailed = "BROWSER_FAILED",
    }
}

impl LaneErrorCode {
    /// The code in an agent's error.
    pub(super) fn known(code: &str) -> &'static str {
        let mut known = Self::ALL.into_iter().map(Self::as_str);
        known.find(|known| *known == code).unwrap_or(RunErrorCode::StepFailed.as_str())
    }

    pub(super) fn because(self, message: impl Into<String>) -> LaneRefusal {
        LaneRefusal { code: self, message: message.into() }
    }
}

/// Nothing was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LaneRefusal {
    pub code: LaneErrorCode,
    pub message: String,
}

/// Why no lane could be acquired.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum LaneError {
    #[error(transparent)]
    Refused(#[from] LaneRefusal),
    #[error(transparent)]
    App(#[from] AppError),
}

impl From<StoreError> for LaneError {
    fn from(error: StoreError) -> Self {
        Self::App(error.into())
    }
}

impl From<CommitError> for LaneError {
    fn from(error: CommitError) -> Self {
        Self::App(error.into())
    }
}

impl From<serde_json::Error> for LaneError {
    fn from(error: serde_json::Error) -> Self {
        Self::App(error.into())
    }
}

impl AskErrorCause {
    pub(super) fn code(&self) -> LaneErrorCode {
        match self {
            Self::LoginRequired { .. } => LaneErrorCode::LoginRequired,
            Self::BrowserUnavailable(_) => LaneErrorCode::BrowserUnavailable,
            Self::PageChanged { .. } => LaneErrorCode::PageChanged,
            Self::AnswerTimeout => LaneErrorCode::AnswerTimeout,
            Self::ThreadGone => LaneErrorCode::ThreadGone,
            Self::UnknownProvider(_) => LaneErrorCode::UnknownProvider,
            Self::GivenUp => LaneErrorCode::Cancelled,
            Self::Broken(_) => LaneErrorCode::BrowserFailed,
        }
    }
}

pub(super) fn question_error(
    code: LaneErrorCode,
    message: impl Into<String>,
) -> ProviderQuestionError {
    ProviderQuestionError { code: code.as_str().to_owned(), message: message.into() }
}
