//! Failures as HTTP responses. `shikiri_app::problem` defines their codes and texts.

use std::any::Any;
use std::ops::Deref;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use shikiri_app::problem::Problem;
pub(crate) use shikiri_app::problem::{PROBLEM_JSON, ProblemCode as Code};
use shikiri_runtime::AppError;
use utoipa::ToSchema;

/// A failure on its way to the caller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProblemResponse(Problem);

/// RFC 9457, with a stable `code`.
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "describes what `Problem::to_response` writes")]
pub(crate) struct ProblemSchema {
    /// A name of the kind of problem.
    #[schema(rename = "type")]
    kind: String,
    title: String,
    status: u16,
    /// What happened and what to do next.
    detail: String,
    /// Stable: decide by this.
    code: String,
    /// The field of the request that is wrong.
    field: Option<String>,
    retry_after_ms: Option<u64>,
    /// The execution that is in the way.
    execution_id: Option<String>,
    /// Under which the server's log has the cause of a fault of its own.
    error_id: Option<String>,
}

impl Deref for ProblemResponse {
    type Target = Problem;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<E: Into<Problem>> From<E> for ProblemResponse {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl ProblemResponse {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Problem::new(code, detail))
    }

    pub(crate) fn invalid(field: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self(Problem::invalid(field, reason))
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(Code::Unauthorized, "send a valid key as `Authorization: Bearer KEY`")
    }

    pub(crate) fn not_found() -> Self {
        Self::new(Code::NotFound, "there is nothing here: see /docs for what there is")
    }

    /// The path's id is malformed, so there is no such item.
    pub(crate) fn id_not_found(kind: &'static str, id: &str) -> Self {
        AppError::not_found(kind, truncate_id(id)).into()
    }
}

/// Shortens an id from a request for a message: an attacker's may be long.
fn truncate_id(id: &str) -> String {
    id.chars().take(100).collect()
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let mut response = self.to_response().map(Body::from);
        if self.code == Code::Unauthorized {
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
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
    let cause = format!("a handler panicked: {text}");
    ProblemResponse(Problem::internal(&cause)).into_response()
}

pub(crate) async fn on_unknown_path() -> ProblemResponse {
    ProblemResponse::not_found()
}

pub(crate) async fn on_wrong_method() -> ProblemResponse {
    ProblemResponse::new(
        Code::MethodNotAllowed,
        "this method is not for this path: see the Allow header",
    )
}

#[cfg(test)]
#[path = "problem_response_tests.rs"]
mod tests;
