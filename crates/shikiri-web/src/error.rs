//! Failures as HTTP answers. What each is called and what it tells is `shikiri_app::problem`'s.

use std::any::Any;
use std::ops::Deref;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use shikiri_app::AppError;
pub(crate) use shikiri_app::problem::{PROBLEM_JSON, ProblemCode as Code};
use utoipa::ToSchema;

/// A failure on its way to the caller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem(shikiri_app::problem::Problem);

/// RFC 9457, with a stable `code`.
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "describes what shikiri_app::problem::ProblemJson writes")]
pub(crate) struct ProblemJson {
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

impl Deref for Problem {
    type Target = shikiri_app::problem::Problem;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<E: Into<shikiri_app::problem::Problem>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(shikiri_app::problem::Problem::new(code, detail))
    }

    pub(crate) fn invalid(field: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self(shikiri_app::problem::Problem::invalid(field, reason))
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
}

/// An id from a request as a message may repeat it: an attacker's may be long.
fn shown(id: &str) -> String {
    id.chars().take(100).collect()
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
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
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
    Problem(shikiri_app::problem::Problem::internal(&cause)).into_response()
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
