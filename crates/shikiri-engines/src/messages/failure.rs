//! Why a call gave no message. None of the texts holds a secret.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The environment does not say where to call, or with what.
    #[error("{0}")]
    NotConfigured(String),
    /// The API answered, and said no.
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
    /// A message that had begun did not come to its end.
    #[error("the model API broke off its reply: {kind}: {message}")]
    BrokenOff { kind: String, message: String },
    #[error("the model API answered with something that is not a message: {0}")]
    Unreadable(String),
}

/// The API's own number for "too many at once".
const OVERLOADED: u16 = 529;

impl Failure {
    /// The same call may succeed a little later, and is sure to have done nothing so far.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if matches!(status, 429 | 500..=OVERLOADED))
    }

    /// The same question may be answered a little later. It may have been answered already, and
    /// paid for: this is for whoever keeps count.
    pub fn is_worth_a_retry(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=OVERLOADED),
            Self::Unreachable(_) | Self::TimedOut => true,
            // Whatever has a name of its own was not meant for us.
            Self::BrokenOff { kind, .. } => {
                !matches!(kind.as_str(), "invalid_request_error" | "validationException")
            }
            Self::NotConfigured(_) | Self::TooLarge(_) | Self::Unreadable(_) => false,
        }
    }

    /// The conversation has grown beyond what the model can take.
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
