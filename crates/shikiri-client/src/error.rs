//! What can go wrong between us and a server, told so that a person knows the next step.

use shikiri_model::host::clean_line;

use crate::wire::RpcError;

#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there, or no longer. Trying again may help.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// The server does not know our session any more.
    #[error("the session has ended at the server")]
    SessionGone,
    /// It wants to know who we are.
    #[error("{0}")]
    Unauthorized(String),
    /// It answered with a status that is no success.
    #[error("answered with status {status}{}", colon(.said))]
    Refused { status: u16, said: String },
    /// It answered by the protocol, with an error.
    #[error("{}", .0.shown())]
    Rpc(RpcError),
    /// What it said is no message of the protocol, or too much of it.
    #[error("does not keep to the protocol: {0}")]
    Garbled(String),
    #[error("did not answer within {0} s")]
    Slow(u64),
    /// The stream ended before the answer.
    #[error("the answer was cut off: {0}")]
    Cut(String),
}

impl ClientError {
    /// Whether what was asked may have been done all the same: the answer was lost on its way.
    pub(crate) fn leaves_in_doubt(&self) -> bool {
        matches!(self, Self::Cut(_) | Self::Refused { status: 502 | 504, .. })
    }

    /// Whether it may be another story in a moment.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Slow(_) | Self::Cut(_) => true,
            Self::Refused { status, .. } => {
                matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504)
            }
            Self::SessionGone | Self::Unauthorized(_) | Self::Rpc(_) | Self::Garbled(_) => false,
        }
    }
}

fn colon(said: &str) -> String {
    let said = clean_line(said);
    if said.is_empty() { said } else { format!(": {said}") }
}
