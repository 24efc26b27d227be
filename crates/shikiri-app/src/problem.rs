//! Failures as callers see them: one form for every door.
//!
//! A caller gets a stable code and a text that says what to do. The cause of an internal error goes
//! only to the log, because it may name files, hosts or data of other tenants. The caller gets the
//! id under which it is logged.

use std::time::Duration;

use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde::Serialize;
use shikiri_model::ids::RunId;
use shikiri_model::team::RefusalCode;

use shikiri_runtime::{AppError, WatchError, random};
use shikiri_teams::TeamError;

pub use crate::problem_code::ProblemCode;

/// A failure as it is sent to the caller. Nothing in it is secret.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub code: ProblemCode,
    /// What happened and what to do next.
    pub detail: String,
    /// The field of the request that is wrong.
    pub field: Option<String>,
    pub retry_after: Option<Duration>,
    /// The execution that is in the way.
    pub execution_id: Option<String>,
    /// The id under which the log has the cause.
    pub error_id: Option<String>,
}

/// RFC 9457, with a stable `code`.
#[derive(Serialize)]
struct ProblemJson<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_id: Option<&'a str>,
}

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";
const UNKNOWN: &str = "it is not known whether this was done: look before you try again";
const RETRY_WHEN_UNAVAILABLE: Duration = Duration::from_secs(1);

impl Problem {
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            field: None,
            retry_after: None,
            execution_id: None,
            error_id: None,
        }
    }

    pub fn invalid(field: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        let field = field.into();
        let detail = format!("{field}: {reason}");
        Self { field: Some(field), ..Self::new(ProblemCode::InvalidRequest, detail) }
    }

    /// An internal error. The cause is logged, and the caller gets only its id.
    pub fn internal(cause: &str) -> Self {
        let id = error_id();
        tracing::error!(error_id = id, cause, "a request failed");
        let detail = format!("something went wrong on our side; the log has the cause under {id}");
        Self { error_id: Some(id), ..Self::new(ProblemCode::InternalError, detail) }
    }

    fn unavailable(cause: &str) -> Self {
        let id = error_id();
        tracing::warn!(error_id = id, cause, "a request could not be served");
        let detail = "the server cannot do this right now: try again in a moment";
        Self {
            retry_after: Some(RETRY_WHEN_UNAVAILABLE),
            error_id: Some(id),
            ..Self::new(ProblemCode::Unavailable, detail)
        }
    }

    fn unknown(cause: &str) -> Self {
        let id = error_id();
        tracing::warn!(error_id = id, cause, "the outcome of a request is not known");
        Self { error_id: Some(id), ..Self::new(ProblemCode::Unavailable, UNKNOWN) }
    }

    fn body(&self) -> ProblemJson<'_> {
        let (status, code, title) = self.code.row();
        ProblemJson {
            kind: format!("urn:shikiri:problem:{code}"),
            title,
            status: status.as_u16(),
            detail: &self.detail,
            code,
            field: self.field.as_deref(),
            retry_after_ms: self.retry_after_ms(),
            execution_id: self.execution_id.as_deref(),
            error_id: self.error_id.as_deref(),
        }
    }

    /// The HTTP answer of every door. Without a body if it cannot be written as JSON.
    pub fn to_response(&self) -> Response<Vec<u8>> {
        let (status, ..) = self.code.row();
        let body = serde_json::to_vec(&self.body()).unwrap_or_default();
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    pub fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    }

    /// For the header `Retry-After`: whole seconds, rounded up, at least one.
    fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after_ms().map(|ms| ms.div_ceil(1_000).max(1))
    }
}

fn error_id() -> String {
    // Without randomness the id still leads to a line in the log.
    let bytes: [u8; 8] = random().unwrap_or_default();
    format!("err_{:016x}", u64::from_le_bytes(bytes))
}

impl From<AppError> for Problem {
    fn from(error: AppError) -> Self {
        let text = error.to_string();
        match error {
            AppError::NotFound { kind, .. } => Self::new(missing(kind), text),
            AppError::Invalid { field, reason } => Self::invalid(field, reason),
            AppError::Exists { .. } | AppError::NotNow(_) => Self::new(ProblemCode::Conflict, text),
            AppError::Inactive { kind: "model", .. } => Self::new(ProblemCode::ModelInactive, text),
            AppError::Inactive { .. } => Self::new(ProblemCode::TenantInactive, text),
            AppError::Forbidden(_) => Self::new(ProblemCode::Forbidden, text),
            AppError::Locked { execution, retry_after, .. } => Self {
                retry_after: Some(retry_after),
                // A change of the conversation locks it too, and has no id.
                execution_id: Some(execution).filter(|holder| is_execution(holder)),
                ..Self::new(ProblemCode::ConversationLocked, text)
            },
            AppError::KeyReused { run } => Self {
                execution_id: Some(run).filter(|run| is_execution(run)),
                ..Self::new(ProblemCode::IdempotencyConflict, text)
            },
            AppError::MissingToken(_) => Self::new(ProblemCode::MissingToken, text),
            AppError::NoSuchSkill(_) => Self::new(ProblemCode::SkillNotFound, text),
            AppError::NoEngine(_) => Self::new(ProblemCode::EngineUnavailable, text),
            AppError::NoSandbox(_) => Self::new(ProblemCode::SandboxUnavailable, text),
            AppError::Quota { .. } => Self::new(ProblemCode::QuotaExceeded, text),
            AppError::Limit { detail, retry_after } => Self {
                retry_after: Some(retry_after),
                ..Self::new(ProblemCode::LimitExceeded, detail)
            },
            AppError::TooLarge(_) => Self::new(ProblemCode::PayloadTooLarge, text),
            AppError::Unknown(cause) => Self::unknown(&cause),
            AppError::Unavailable(cause) => Self::unavailable(&cause),
            AppError::Broken(cause) => Self::internal(&cause),
        }
    }
}

impl From<TeamError> for Problem {
    fn from(error: TeamError) -> Self {
        match error {
            TeamError::App(error) => error.into(),
            TeamError::Refused(refusal) => Self::new(refused(refusal.code), refusal.message),
        }
    }
}

impl From<WatchError> for Problem {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Cursor(error) => Self::invalid("after", error),
            WatchError::Store(error) => AppError::from(error).into(),
        }
    }
}

/// The refusals that a person can meet. The others occur only in agents' sessions.
fn refused(code: RefusalCode) -> ProblemCode {
    match code {
        RefusalCode::AgentNotFound => ProblemCode::AgentNotFound,
        RefusalCode::NoProject => ProblemCode::ProjectNotFound,
        RefusalCode::NoTask => ProblemCode::TaskNotFound,
        RefusalCode::NoDelegation => ProblemCode::DelegationNotFound,
        RefusalCode::NoDialogue => ProblemCode::ConversationNotFound,
        RefusalCode::NotInProject => ProblemCode::AgentNotInProject,
        RefusalCode::AlreadyActive => ProblemCode::ConversationActive,
        RefusalCode::WithSelf => ProblemCode::WithSelf,
        RefusalCode::ContentTooLong => ProblemCode::ContentTooLong,
        _ => ProblemCode::InvalidRequest,
    }
}

fn is_execution(id: &str) -> bool {
    id.parse().is_ok_and(|id: RunId| id.is_execution())
}

fn missing(kind: &str) -> ProblemCode {
    match kind {
        "tenant" => ProblemCode::TenantNotFound,
        "run" => ProblemCode::RunNotFound,
        "key" => ProblemCode::KeyNotFound,
        "model" => ProblemCode::ModelNotFound,
        "conversation" | "dialogue" => ProblemCode::ConversationNotFound,
        "project" => ProblemCode::ProjectNotFound,
        "agent" => ProblemCode::AgentNotFound,
        "task" => ProblemCode::TaskNotFound,
        "delegation" => ProblemCode::DelegationNotFound,
        "execution" => ProblemCode::ExecutionNotFound,
        "open question" => ProblemCode::QuestionNotFound,
        _ => ProblemCode::NotFound,
    }
}
