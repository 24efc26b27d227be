//! The API's description, made from the handlers.

pub(crate) mod page;

use std::sync::OnceLock;

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{IntoResponses, Modify, OpenApi};

use crate::error::ProblemJson;
use crate::router;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Shikiri",
        description = "The session layer for teams of AI agents",
        license(name = "MIT OR Apache-2.0"),
    ),
    components(schemas(ProblemJson)),
    modifiers(&Keys),
)]
struct Base;

struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The admin key, or a key of the tenant"))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(bearer));
    }
}

pub(crate) fn base() -> utoipa::openapi::OpenApi {
    Base::openapi()
}

/// What every route behind a key can answer.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by utoipa alone")]
pub(crate) enum Guarded {
    /// No key, or not a valid one
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(ProblemJson<'static>),
    /// Not there, or not the caller's
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(ProblemJson<'static>),
    /// Over a limit of the tenant or the server
    #[response(status = 429, content_type = "application/problem+json")]
    LimitExceeded(ProblemJson<'static>),
}

/// Any other failure: `code` says which.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by utoipa alone")]
pub(crate) enum Failures {
    /// Any other failure: `code` says which
    #[response(status = "default", content_type = "application/problem+json")]
    Problem(ProblemJson<'static>),
}

/// The routes as OpenAPI writes them: a parameter that takes slashes has no form of its own there.
pub(crate) fn described() -> utoipa::openapi::OpenApi {
    let mut document = router::api().into_openapi();
    let paths = std::mem::take(&mut document.paths.paths);
    let plain = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item));
    document.paths.paths = plain.collect();
    document
}

/// The OpenAPI document as JSON.
pub fn openapi_json() -> String {
    described().to_pretty_json().unwrap_or_default()
}

pub(crate) fn document() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(openapi_json)
}

pub(crate) fn page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| page::render(document()))
}
