//! Why a question was not answered, with the code that callers know it by.

use shikiri_model::lane::ProviderQuestionError;
use shikiri_runtime::AppError;
use shikiri_store::{CommitError, StoreError};

use super::page_driver::AskErrorCause;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneErrorCode {
    LanesFull,
    QueueFull,
    UnknownProvider,
    LoginRequired,
    BrowserUnavailable,
    PageChanged,
    AnswerTimeout,
    /// The chat is gone, and a new one was gone too.
    ThreadGone,
    /// Whether the provider has the question is unknown.
    UnknownOutcome,
    Cancelled,
    BrowserFailed,
}

impl LaneErrorCode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LanesFull => "LANES_FULL",
            Self::QueueFull => "QUEUE_FULL",
            Self::UnknownProvider => "UNKNOWN_PROVIDER",
            Self::LoginRequired => "LOGIN_REQUIRED",
            Self::BrowserUnavailable => "BROWSER_UNAVAILABLE",
            Self::PageChanged => "PAGE_CHANGED",
            Self::AnswerTimeout => "ANSWER_TIMEOUT",
            Self::ThreadGone => "THREAD_GONE",
            Self::UnknownOutcome => "UNKNOWN_OUTCOME",
            Self::Cancelled => "CANCELLED",
            Self::BrowserFailed => "BROWSER_FAILED",
        }
    }

    /// The code in an agent's error.
    pub(super) fn known(code: &str) -> &'static str {
        ALL.iter().map(|known| known.as_str()).find(|known| *known == code).unwrap_or("STEP_FAILED")
    }

    pub(super) fn because(self, message: impl Into<String>) -> LaneRefusal {
        LaneRefusal { code: self, message: message.into() }
    }
}

const ALL: [LaneErrorCode; 11] = [
    LaneErrorCode::LanesFull,
    LaneErrorCode::QueueFull,
    LaneErrorCode::UnknownProvider,
    LaneErrorCode::LoginRequired,
    LaneErrorCode::BrowserUnavailable,
    LaneErrorCode::PageChanged,
    LaneErrorCode::AnswerTimeout,
    LaneErrorCode::ThreadGone,
    LaneErrorCode::UnknownOutcome,
    LaneErrorCode::Cancelled,
    LaneErrorCode::BrowserFailed,
];

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
