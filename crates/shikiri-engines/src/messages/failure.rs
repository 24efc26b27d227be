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

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
