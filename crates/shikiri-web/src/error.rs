//! The only map from failures to HTTP status and code.
//!
//! The caller gets a stable code and a text that says what to do; the cause of a fault of ours
//! goes to the log alone, since it may name files, hosts or other tenants' things.

use std::any::Any;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use shikiri_app::team::TeamError;
use shikiri_app::{AppError, WatchError};
use shikiri_model::ids::RunId;
use shikiri_model::team::RefusalCode;
use utoipa::ToSchema;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
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
    MethodNotAllowed,
    RequestTimeout,
    Conflict,
    PayloadTooLarge,
    UnsupportedMediaType,
    LimitExceeded,
    InternalError,
    Unavailable,
}

impl Code {
    /// Status, code and title: the contract with the outside, on one screen.
    pub(crate) fn row(self) -> (StatusCode, &'static str, &'static str) {
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
            Self::InternalError => (S::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "Internal error"),
            Self::Unavailable => (S::SERVICE_UNAVAILABLE, "UNAVAILABLE", "Unavailable"),
        }
    }
}

/// A failure on its way to the caller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    detail: String,
    field: Option<String>,
    retry_after: Option<Duration>,
    execution_id: Option<String>,
}

/// RFC 9457, with a stable `code`.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemJson<'a> {
    /// A name of the kind of problem.
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    /// What happened and what to do next.
    detail: &'a str,
    /// Stable: decide by this.
    code: &'static str,
    /// The field of the request that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// The execution that is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_id: Option<&'a str>,
}

pub(crate) const PROBLEM_JSON: &str = "application/problem+json";
const UNKNOWN: &str = "it is not known whether this was done: look before you try again";
const RETRY_WHEN_UNAVAILABLE: Duration = Duration::from_secs(1);

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, retry_after: None, execution_id: None }
    }

    pub(crate) fn invalid(field: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        let field = field.into();
        let detail = format!("{field}: {reason}");
        Self { field: Some(field), ..Self::new(Code::InvalidRequest, detail) }
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(Code::Unauthorized, "send a valid key as `Authorization: Bearer KEY`")
    }

    pub(crate) fn not_found() -> Self {
        Self::new(Code::NotFound, "there is nothing here: see /docs for what there is")
    }

    /// The same for a tenant that does not exist and one that is not the caller's.
    pub(crate) fn no_tenant(id: &str) -> Self {
        AppError::not_found("tenant", shown(id)).into()
    }

    /// An id in the path that cannot be one.
    pub(crate) fn missing(kind: &'static str, id: &str) -> Self {
        AppError::not_found(kind, shown(id)).into()
    }

    pub(crate) fn no_run(id: &str) -> Self {
        AppError::not_found("run", shown(id)).into()
    }

    pub(crate) fn no_key(id: &str) -> Self {
        AppError::not_found("key", shown(id)).into()
    }

    fn unavailable() -> Self {
        let detail = "the server cannot do this right now: try again in a moment";
        Self { retry_after: Some(RETRY_WHEN_UNAVAILABLE), ..Self::new(Code::Unavailable, detail) }
    }

    fn internal() -> Self {
        Self::new(Code::InternalError, "something went wrong on our side; the log has the cause")
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
            retry_after_ms: self
                .retry_after
                .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            execution_id: self.execution_id.as_deref(),
        }
    }
}

/// An id from a request as a message may repeat it: an attacker's may be long.
fn shown(id: &str) -> String {
    id.chars().take(100).collect()
}

impl From<AppError> for Problem {
    fn from(error: AppError) -> Self {
        let text = error.to_string();
        match error {
            AppError::NotFound { kind, .. } => Self::new(missing(kind), text),
            AppError::Invalid { field, reason } => Self::invalid(field, reason),
            AppError::Exists { .. } | AppError::NotNow(_) => Self::new(Code::Conflict, text),
            AppError::Inactive { kind: "model", .. } => Self::new(Code::ModelInactive, text),
            AppError::Inactive { .. } => Self::new(Code::TenantInactive, text),
            AppError::Forbidden(_) => Self::new(Code::Forbidden, text),
            AppError::Locked { execution, retry_after, .. } => Self {
                retry_after: Some(retry_after),
                // A change holds a conversation too, and has no id.
                execution_id: Some(execution).filter(|holder| is_execution(holder)),
                ..Self::new(Code::ConversationLocked, text)
            },
            AppError::MissingToken(_) => Self::new(Code::MissingToken, text),
            AppError::NoSuchSkill(_) => Self::new(Code::SkillNotFound, text),
            AppError::NoEngine(_) => Self::new(Code::EngineUnavailable, text),
            AppError::Limit { detail, retry_after } => {
                Self { retry_after: Some(retry_after), ..Self::new(Code::LimitExceeded, detail) }
            }
            AppError::TooLarge(_) => Self::new(Code::PayloadTooLarge, text),
            AppError::Unknown(cause) => {
                tracing::warn!(%cause, "the outcome of a request is not known");
                Self::new(Code::Unavailable, UNKNOWN)
            }
            AppError::Unavailable(cause) => {
                tracing::warn!(%cause, "a request could not be served");
                Self::unavailable()
            }
            AppError::Broken(cause) => {
                tracing::error!(%cause, "a request failed");
                Self::internal()
            }
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

/// What a person can be refused; the rest is for agents' sessions.
fn refused(code: RefusalCode) -> Code {
    match code {
        RefusalCode::AgentNotFound => Code::AgentNotFound,
        RefusalCode::NoProject => Code::ProjectNotFound,
        RefusalCode::NoTask => Code::TaskNotFound,
        RefusalCode::NoDelegation => Code::DelegationNotFound,
        RefusalCode::NoDialogue => Code::ConversationNotFound,
        RefusalCode::NotInProject => Code::AgentNotInProject,
        RefusalCode::AlreadyActive => Code::ConversationActive,
        RefusalCode::WithSelf => Code::WithSelf,
        RefusalCode::ContentTooLong => Code::ContentTooLong,
        _ => Code::InvalidRequest,
    }
}

fn is_execution(id: &str) -> bool {
    id.parse().is_ok_and(|id: RunId| id.is_execution())
}

fn missing(kind: &str) -> Code {
    match kind {
        "tenant" => Code::TenantNotFound,
        "run" => Code::RunNotFound,
        "key" => Code::KeyNotFound,
        "model" => Code::ModelNotFound,
        "conversation" | "dialogue" => Code::ConversationNotFound,
        "project" => Code::ProjectNotFound,
        "agent" => Code::AgentNotFound,
        "task" => Code::TaskNotFound,
        "delegation" => Code::DelegationNotFound,
        "execution" => Code::ExecutionNotFound,
        "open question" => Code::QuestionNotFound,
        _ => Code::NotFound,
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

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, ..) = self.code.row();
        let Ok(body) = serde_json::to_vec(&self.body()) else { return status.into_response() };
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if self.code == Code::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_millis().div_ceil(1_000).max(1);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds as u64));
        }
        response
    }
}

/// A panic in a handler ends its request, not the server.
pub(crate) fn on_panic(panic: Box<dyn Any + Send>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!(panic = text, "a handler panicked");
    Problem::internal().into_response()
}

pub(crate) async fn on_unknown_path() -> Problem {
    Problem::not_found()
}

pub(crate) async fn on_wrong_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this method is not for this path: see the Allow header")
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
