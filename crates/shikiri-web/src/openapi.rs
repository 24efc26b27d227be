//! The API's description, made from the handlers.

pub(crate) mod page;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use crate::error::{PROBLEM_JSON, ProblemJson};
use crate::router;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Shikiri",
        description = "The session layer for teams of AI agents",
        license(name = "MIT OR Apache-2.0"),
    ),
    components(schemas(ProblemJson)),
    modifiers(&Keys, &Problems),
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

/// A failure as the description names it: status, name, what it means.
type Failure = (&'static str, &'static str, &'static str);

/// What every route behind a key can answer.
const GUARDED: [Failure; 3] = [
    ("401", "Unauthorized", "No key, or not a valid one"),
    ("404", "NotFound", "Not there, or not the caller's"),
    ("429", "LimitExceeded", "Over a limit of the tenant or the server"),
];

/// What else a route can answer: `code` says which it is.
const FAILURES: [Failure; 8] = [
    ("400", "InvalidRequest", "The request is wrong; `field` may say where"),
    ("403", "Forbidden", "Not with this key, from this place, or while something is inactive"),
    ("408", "RequestTimeout", "The body did not arrive in time"),
    ("409", "Conflict", "Not as things are now"),
    ("413", "PayloadTooLarge", "The body is too large"),
    ("415", "UnsupportedMediaType", "The body is of a kind that is not read here"),
    ("500", "InternalError", "A fault of the server"),
    ("503", "Unavailable", "Not possible for the moment, or not on this server"),
];
/// Of those, what only a request with a body can meet.
const OF_BODIES: [&str; 3] = ["408", "413", "415"];
/// And what only a request that changes something can meet.
const OF_CHANGES: &str = "409";

pub(crate) struct Guarded;

impl IntoResponses for Guarded {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        named(&GUARDED)
    }
}

pub(crate) struct Failures;

impl IntoResponses for Failures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        named(&FAILURES)
    }
}

fn named(failures: &[Failure]) -> BTreeMap<String, RefOr<Response>> {
    let name =
        |(status, name, _): &Failure| ((*status).to_owned(), Ref::from_response_name(*name).into());
    failures.iter().map(name).collect()
}

struct Problems;

impl Modify for Problems {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        for (_, name, description) in GUARDED.iter().chain(&FAILURES) {
            let content = Content::new(Some(Ref::from_schema_name("Problem")));
            let response =
                ResponseBuilder::new().description(*description).content(PROBLEM_JSON, content);
            components.responses.insert((*name).to_owned(), response.build().into());
        }
    }
}

/// The routes as OpenAPI writes them: a parameter that takes slashes has no form of its own there.
pub(crate) fn described() -> utoipa::openapi::OpenApi {
    let mut document = router::api().into_openapi();
    let paths = std::mem::take(&mut document.paths.paths);
    let plain = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item));
    document.paths.paths = plain.collect();
    for item in document.paths.paths.values_mut() {
        let changes = [&mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        for operation in changes.into_iter().flatten() {
            leave_out(operation, &[]);
        }
        if let Some(operation) = &mut item.get {
            leave_out(operation, &[OF_CHANGES]);
        }
    }
    document
}

/// An operation does not list what cannot happen to it.
fn leave_out(operation: &mut Operation, never: &[&str]) {
    let of_bodies: &[&str] = if operation.request_body.is_none() { &OF_BODIES } else { &[] };
    for status in never.iter().chain(of_bodies) {
        operation.responses.responses.remove(*status);
    }
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
