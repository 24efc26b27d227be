//! Why a question was not answered, with the code that callers know it by.

use shikiri_model::lane::InquiryError;
use shikiri_store::{CommitError, StoreError};

use super::driver::Cause;
use crate::error::AppError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneCode {
    LanesFull,
    QueueFull,
    UnknownProvider,
    LoginRequired,
    BrowserUnavailable,
    PageChanged,
    AnswerTimeout,
    /// The chat is gone, and was gone again when a new one was tried.
    ThreadGone,
    /// Nobody can say whether the provider has the question.
    UnknownOutcome,
    Cancelled,
    BrowserFailed,
}

impl LaneCode {
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

    /// As an agent's error names it.
    pub(super) fn known(code: &str) -> &'static str {
        ALL.iter().map(|known| known.as_str()).find(|known| *known == code).unwrap_or("STEP_FAILED")
    }

    pub(super) fn because(self, message: impl Into<String>) -> LaneRefusal {
        LaneRefusal { code: self, message: message.into() }
    }
}

const ALL: [LaneCode; 11] = [
    LaneCode::LanesFull,
    LaneCode::QueueFull,
    LaneCode::UnknownProvider,
    LaneCode::LoginRequired,
    LaneCode::BrowserUnavailable,
    LaneCode::PageChanged,
    LaneCode::AnswerTimeout,
    LaneCode::ThreadGone,
    LaneCode::UnknownOutcome,
    LaneCode::Cancelled,
    LaneCode::BrowserFailed,
];

/// Nothing was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LaneRefusal {
    pub code: LaneCode,
    pub message: String,
}

/// Why a lane was not had.
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

impl Cause {
    pub(super) fn code(&self) -> LaneCode {
        match self {
            Self::LoginRequired { .. } => LaneCode::LoginRequired,
            Self::BrowserUnavailable(_) => LaneCode::BrowserUnavailable,
            Self::PageChanged { .. } => LaneCode::PageChanged,
            Self::AnswerTimeout => LaneCode::AnswerTimeout,
            Self::ThreadGone => LaneCode::ThreadGone,
            Self::UnknownProvider(_) => LaneCode::UnknownProvider,
            Self::GivenUp => LaneCode::Cancelled,
            Self::Broken(_) => LaneCode::BrowserFailed,
        }
    }
}

pub(super) fn told(code: LaneCode, message: impl Into<String>) -> InquiryError {
    InquiryError { code: code.as_str().to_owned(), message: message.into() }
}
