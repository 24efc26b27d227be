//! Errors of use cases, named after what the caller can do about them.

use std::time::Duration;

use shikiri_model::run::RunRefusal;
use shikiri_store::{CommitError, StoreError};

#[derive(Clone, Debug, thiserror::Error)]
pub enum AppError {
    /// There is no such record, or it belongs to another caller. The error does not say which.
    #[error("there is no {kind} {id}")]
    NotFound { kind: &'static str, id: String },
    #[error("{kind} {id} exists already: choose another id")]
    Exists { kind: &'static str, id: String },
    /// The request itself is wrong; `field` says where.
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: String },
    /// The request is valid, but not possible now.
    #[error("{0}")]
    NotNow(String),
    /// Its owner must be activated first.
    #[error("{kind} {id} is inactive: an admin can activate it")]
    Inactive { kind: &'static str, id: String },
    /// This key may not do that.
    #[error("{0}")]
    Forbidden(String),
    /// Another execution writes to the conversation.
    #[error("conversation {conversation} is busy with {execution}: try again when that has ended")]
    Locked { conversation: String, execution: String, retry_after: Duration },
    /// The idempotency key belongs to a run that was asked for something else.
    #[error(
        "the idempotency key was used for {run}, which was asked for something else: use a new key, \
         or send the same request again"
    )]
    KeyReused { run: String },
    #[error("tokens: {0}")]
    MissingToken(String),
    #[error("preferred_skills: there is no active skill {0:?}")]
    NoSuchSkill(String),
    /// The engine that the model needs is not on this machine.
    #[error("{0}")]
    NoEngine(String),
    /// This machine cannot confine the model's engine as the tenant needs it.
    #[error("{0}")]
    NoSandbox(String),
    /// A rate limit or a limit on concurrent use is reached. Try again after `retry_after`.
    #[error("{detail}")]
    Limit { detail: String, retry_after: Duration },
    /// The tenant's quota is used up. Waiting does not help.
    #[error(
        "tenant {tenant} is at its limit {quota}: {used} of {limit} are in use. Remove \
         conversations or files, or ask the admin of the server to raise the limit \
         (`shikiri tenants set {tenant} --stored-bytes N`)"
    )]
    Quota { quota: &'static str, used: u64, limit: u64, tenant: String },
    /// The content is too large. Waiting does not help.
    #[error("{0}")]
    TooLarge(String),
    /// The outcome is unknown: check before trying again.
    #[error("{0}")]
    Unknown(String),
    /// Try again later; nothing was changed.
    #[error("{0}")]
    Unavailable(String),
    /// A defect of the server or of the store that a person must look into.
    #[error("{0}")]
    Broken(String),
}

impl AppError {
    pub fn not_found(kind: &'static str, id: impl std::fmt::Display) -> Self {
        Self::NotFound { kind, id: id.to_string() }
    }

    pub fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::Unavailable(error.to_string()),
            StoreError::Unknown(_) => Self::Unknown(error.to_string()),
            StoreError::NoStream(stream) => Self::not_found("stream", stream),
            StoreError::Cursor(_) => Self::invalid("cursor", error.to_string()),
            StoreError::Broken(_) => Self::Broken(error.to_string()),
        }
    }
}

impl From<CommitError> for AppError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Store(error) => error.into(),
            CommitError::Exists(key) => Self::Exists { kind: key.kind, id: key.id },
            CommitError::Lease(_)
            | CommitError::Conflict(_)
            | CommitError::NotUnique(_)
            | CommitError::Closed(_) => Self::NotNow(error.to_string()),
        }
    }
}

impl From<RunRefusal> for AppError {
    fn from(refusal: RunRefusal) -> Self {
        match refusal {
            RunRefusal::NoSuchQuestion(ref id) => Self::not_found("open question", id),
            RunRefusal::LargeInput(_) => Self::invalid("input", refusal.to_string()),
            RunRefusal::Ended(_) | RunRefusal::NotNow(_) | RunRefusal::TooManyInputs => {
                Self::NotNow(refusal.to_string())
            }
        }
    }
}

impl From<serde_json::Error> for AppError {
    fn from(error: serde_json::Error) -> Self {
        Self::Broken(format!("a value could not be written as JSON: {error}"))
    }
}
