//! Failures as callers see them: one form for every door.
//!
//! A caller gets a stable code and a text that says what to do. The cause of an internal error goes
//! only to the log, because it may name files, hosts or data of other tenants. The caller gets the
//! id under which it is logged.

use std::time::Duration;

use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;
use shikiri_model::ids::RunId;
use shikiri_model::team::RefusalCode;

use shikiri_runtime::{AppError, WatchError, random};
use shikiri_teams::TeamError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemCode {
    InvalidRequest,
    Unauthorized,
    Forbidden,
    TenantInactive,
    ModelInactive,
    HostNotAllowed,
    OriginNotAllowed,
    NotFound,
    TenantNotFound,
    RunNotFound,
    KeyNotFound,
    QuestionNotFound,
    ModelNotFound,
    ConversationNotFound,
    ExecutionNotFound,
    SkillNotFound,
    ProjectNotFound,
    AgentNotFound,
    TaskNotFound,
    DelegationNotFound,
    AgentNotInProject,
    WithSelf,
    ContentTooLong,
    ConversationActive,
    MissingToken,
    ConversationLocked,
    EngineUnavailable,
    SandboxUnavailable,
    MethodNotAllowed,
    RequestTimeout,
    Conflict,
    PayloadTooLarge,
    UnsupportedMediaType,
    LimitExceeded,
    QuotaExceeded,
    InternalError,
    Unavailable,
}

impl ProblemCode {
    /// Every code, in the order of the enum.
    pub const ALL: [Self; 37] = [
        Self::InvalidRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::TenantInactive,
        Self::ModelInactive,
        Self::HostNotAllowed,
        Self::OriginNotAllowed,
        Self::NotFound,
        Self::TenantNotFound,
        Self::RunNotFound,
        Self::KeyNotFound,
        Self::QuestionNotFound,
        Self::ModelNotFound,
        Self::ConversationNotFound,
        Self::ExecutionNotFound,
        Self::SkillNotFound,
        Self::ProjectNotFound,
        Self::AgentNotFound,
        Self::TaskNotFound,
        Self::DelegationNotFound,
        Self::AgentNotInProject,
        Self::WithSelf,
        Self::ContentTooLong,
        Self::ConversationActive,
        Self::MissingToken,
        Self::ConversationLocked,
        Self::EngineUnavailable,
        Self::SandboxUnavailable,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::Conflict,
        Self::PayloadTooLarge,
        Self::UnsupportedMediaType,
        Self::LimitExceeded,
        Self::QuotaExceeded,
        Self::InternalError,
        Self::Unavailable,
    ];

    /// Status, code and title: the contract with the outside, on one screen.
    pub fn row(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::InvalidRequest => (S::BAD_REQUEST, "INVALID_REQUEST", "Invalid request"),
            Self::Unauthorized => (S::UNAUTHORIZED, "UNAUTHORIZED", "A valid key is needed"),
            Self::Forbidden => (S::FORBIDDEN, "FORBIDDEN", "This key may not do that"),
            Self::TenantInactive => (S::FORBIDDEN, "TENANT_INACTIVE", "The tenant is inactive"),
            Self::ModelInactive => (S::FORBIDDEN, "MODEL_INACTIVE", "The model is inactive"),
            Self::HostNotAllowed => (S::FORBIDDEN, "HOST_NOT_ALLOWED", "Host not allowed"),
            Self::OriginNotAllowed => (S::FORBIDDEN, "ORIGIN_NOT_ALLOWED", "Origin not allowed"),
            Self::NotFound => (S::NOT_FOUND, "NOT_FOUND", "Not found"),
            Self::TenantNotFound => (S::NOT_FOUND, "TENANT_NOT_FOUND", "No such tenant"),
            Self::RunNotFound => (S::NOT_FOUND, "RUN_NOT_FOUND", "No such run"),
            Self::KeyNotFound => (S::NOT_FOUND, "KEY_NOT_FOUND", "No such key"),
            Self::QuestionNotFound => (S::NOT_FOUND, "QUESTION_NOT_FOUND", "No such open question"),
            Self::ModelNotFound => (S::NOT_FOUND, "MODEL_NOT_FOUND", "No such model"),
            Self::ConversationNotFound => {
                (S::NOT_FOUND, "CONVERSATION_NOT_FOUND", "No such conversation")
            }
            Self::ExecutionNotFound => (S::NOT_FOUND, "EXECUTION_NOT_FOUND", "No such execution"),
            Self::SkillNotFound => (S::BAD_REQUEST, "SKILL_NOT_FOUND", "No such skill"),
            Self::ProjectNotFound => (S::NOT_FOUND, "PROJECT_NOT_FOUND", "No such project"),
            Self::AgentNotFound => (S::NOT_FOUND, "AGENT_NOT_FOUND", "No such agent"),
            Self::TaskNotFound => (S::NOT_FOUND, "TASK_NOT_FOUND", "No such task"),
            Self::DelegationNotFound => {
                (S::NOT_FOUND, "DELEGATION_NOT_FOUND", "No such delegation")
            }
            Self::AgentNotInProject => {
                (S::FORBIDDEN, "TARGET_AGENT_NOT_IN_PROJECT", "The agent is not in the project")
            }
            Self::WithSelf => {
                (S::BAD_REQUEST, "CANNOT_CONVERSATION_WITH_SELF", "Nobody talks to itself")
            }
            Self::ContentTooLong => (S::BAD_REQUEST, "CONTENT_TOO_LONG", "The text is too long"),
            Self::ConversationActive => {
                (S::CONFLICT, "CONVERSATION_ALREADY_ACTIVE", "The two have a conversation")
            }
            Self::MissingToken => (S::BAD_REQUEST, "MISSING_TOKEN", "A token is missing"),
            Self::ConversationLocked => {
                (S::CONFLICT, "CONVERSATION_LOCKED", "The conversation is busy")
            }
            Self::EngineUnavailable => {
                (S::SERVICE_UNAVAILABLE, "ENGINE_UNAVAILABLE", "The engine cannot run here")
            }
            Self::SandboxUnavailable => (
                S::SERVICE_UNAVAILABLE,
                "SANDBOX_UNAVAILABLE",
                "The engine cannot be confined here",
            ),
            Self::MethodNotAllowed => {
                (S::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "Method not allowed")
            }
            Self::RequestTimeout => (S::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", "Request too slow"),
            Self::Conflict => (S::CONFLICT, "CONFLICT", "Not possible now"),
            Self::PayloadTooLarge => (S::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", "Body too large"),
            Self::UnsupportedMediaType => {
                (S::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", "Unsupported media type")
            }
            Self::LimitExceeded => (S::TOO_MANY_REQUESTS, "LIMIT_EXCEEDED", "Limit exceeded"),
            Self::QuotaExceeded => {
                (S::INSUFFICIENT_STORAGE, "QUOTA_EXCEEDED", "The tenant's quota is used up")
            }
            Self::InternalError => (S::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "Internal error"),
            Self::Unavailable => (S::SERVICE_UNAVAILABLE, "UNAVAILABLE", "Unavailable"),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed() {
        for (index, code) in ProblemCode::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, index, "{code:?}");
        }
        // The last one of the enum.
        assert_eq!(ProblemCode::ALL.last(), Some(&ProblemCode::Unavailable));
    }
}
