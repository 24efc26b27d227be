//! Errors between the client and a server, with texts that tell the user the next step.

use shikiri_model::host::sanitize_line;

use crate::rpc_messages::ServerRpcError;

#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The server cannot be reached. Trying again may help.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// The server no longer knows our session.
    #[error("the session has ended at the server")]
    SessionGone,
    /// The server requires authentication.
    #[error("{0}")]
    Unauthorized(String),
    /// It answered with an HTTP error status.
    #[error("answered with status {status}{}", colon(.said))]
    Refused { status: u16, said: String },
    /// It answered with a JSON-RPC error.
    #[error("{}", .0.shown())]
    Rpc(ServerRpcError),
    /// Its message is invalid or too large.
    #[error("does not keep to the protocol: {0}")]
    Garbled(String),
    /// A run asks what only a person may answer, and not by a tool. The text says where.
    #[error("{0}")]
    PersonRequired(String),
    #[error("did not answer within {0} s")]
    Slow(u64),
    /// The stream ended before the answer.
    #[error("the answer was cut off: {0}")]
    Cut(String),
}

impl ClientError {
    /// Whether the request may have been executed although its answer was lost.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Cut(_) | Self::Refused { status: 502 | 504, .. })
    }

    /// Whether a later attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Slow(_) | Self::Cut(_) => true,
            Self::Refused { status, .. } => {
                matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504)
            }
            Self::SessionGone
            | Self::Unauthorized(_)
            | Self::Rpc(_)
            | Self::Garbled(_)
            | Self::PersonRequired(_) => false,
        }
    }
}

fn colon(said: &str) -> String {
    let said = sanitize_line(said);
    if said.is_empty() { said } else { format!(": {said}") }
}
