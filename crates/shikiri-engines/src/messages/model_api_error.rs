//! Errors of the Messages API. Their texts hold no secrets.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelApiError {
    /// The environment does not say where to call, or with what.
    #[error("{0}")]
    NotConfigured(String),
    /// The API answered with an error.
    #[error("the model API answered {status} {kind}: {message}")]
    Refused {
        status: u16,
        /// As the API names it, such as `overloaded_error` or `ThrottlingException`.
        kind: String,
        message: String,
        retry_after: Option<Duration>,
    },
    #[error("the model API cannot be reached: {0}")]
    Unreachable(String),
    #[error("the model API did not answer in time")]
    TimedOut,
    #[error("the model API answered with more than {0} bytes")]
    TooLarge(usize),
    /// The stream of a message ended with an error.
    #[error("the model API broke off its reply: {kind}: {message}")]
    BrokenOff { kind: String, message: String },
    #[error("the model API answered with something that is not a message: {0}")]
    Unreadable(String),
}

/// The API's own number for "too many at once".
const OVERLOADED: u16 = 529;

impl ModelApiError {
    /// Whether the same call may succeed later, and certainly had no effect so far.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if matches!(status, 429 | 500..=OVERLOADED))
    }

    /// Whether the same request may succeed later. It may have been answered and charged already, so
    /// the caller must count its attempts.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=OVERLOADED),
            Self::Unreachable(_) | Self::TimedOut => true,
            // Errors of the request itself do not go away.
            Self::BrokenOff { kind, .. } => {
                !matches!(kind.as_str(), "invalid_request_error" | "validationException")
            }
            Self::NotConfigured(_) | Self::TooLarge(_) | Self::Unreadable(_) => false,
        }
    }

    /// Whether the conversation is longer than the model's context.
    pub fn is_context_full(&self) -> bool {
        match self {
            Self::Refused { status: 413, .. } => true,
            Self::Refused { status: 400, message, .. } => {
                let message = message.to_lowercase();
                message.contains("prompt is too long")
                    || message.contains("input is too long")
                    || message.contains("exceed context limit")
            }
            _ => false,
        }
    }

    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
