//! The OpenAPI document, generated from the handlers, and the page that shows it.

mod code_samples;
mod document_guide;
mod sample_values;
pub(crate) mod viewer;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use self::document_guide::GuideModifier;
use crate::problem_response::{PROBLEM_JSON, ProblemSchema};
use crate::router;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Shikiri",
        license(name = "MIT OR Apache-2.0"),
    ),
    components(schemas(ProblemSchema)),
    modifiers(&BearerKeyModifier, &ProblemResponsesModifier, &GuideModifier),
)]
struct RestApiDoc;

struct BearerKeyModifier;

impl Modify for BearerKeyModifier {
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
    RestApiDoc::openapi()
}

/// A failure in the document: status, name, meaning.
type FailureEntry = (&'static str, &'static str, &'static str);

/// Responses of every route behind a key.
const GUARDED: [FailureEntry; 3] = [
    ("401", "Unauthorized", "No key, or not a valid one"),
    ("404", "NotFound", "Not there, or not the caller's"),
    ("429", "LimitExceeded", "Over a limit of the tenant or the server"),
];

/// Further responses of a route. `code` tells them apart.
const FAILURES: [FailureEntry; 8] = [
    ("400", "InvalidRequest", "The request is wrong; `field` may say where"),
    ("403", "Forbidden", "Not with this key, from this place, or while something is inactive"),
    ("408", "RequestTimeout", "The body did not arrive in time"),
    ("409", "Conflict", "Not as things are now"),
    ("413", "PayloadTooLarge", "The body is too large"),
    ("415", "UnsupportedMediaType", "The body is of a kind that is not read here"),
    ("500", "InternalError", "A fault of the server"),
    ("503", "Unavailable", "Not possible for the moment, or not on this server"),
];
/// Responses that need a request body.
const OF_BODIES: [&str; 3] = ["408", "413", "415"];
/// The response that needs a request with changes.
const OF_CHANGES: &str = "409";

pub(crate) struct GuardedResponses;

impl IntoResponses for GuardedResponses {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        response_references(&GUARDED)
    }
}

pub(crate) struct FailureResponses;

impl IntoResponses for FailureResponses {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        response_references(&FAILURES)
    }
}

fn response_references(failures: &[FailureEntry]) -> BTreeMap<String, RefOr<Response>> {
    let name = |(status, name, _): &FailureEntry| {
        ((*status).to_owned(), Ref::from_response_name(*name).into())
    };
    failures.iter().map(name).collect()
}

struct ProblemResponsesModifier;

impl Modify for ProblemResponsesModifier {
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

/// The routes in OpenAPI's form, which has no special parameter for slashes.
pub(crate) fn build_document() -> utoipa::openapi::OpenApi {
    let mut document = router::api().into_openapi();
    let paths = std::mem::take(&mut document.paths.paths);
    let plain = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item));
    document.paths.paths = plain.collect();
    for item in document.paths.paths.values_mut() {
        let changes = [&mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        for operation in changes.into_iter().flatten() {
            remove_impossible_responses(operation, &[]);
        }
        if let Some(operation) = &mut item.get {
            remove_impossible_responses(operation, &[OF_CHANGES]);
        }
    }
    code_samples::add_code_samples(&mut document);
    document
}

/// Removes responses that this operation cannot give.
fn remove_impossible_responses(operation: &mut Operation, never: &[&str]) {
    let of_bodies: &[&str] = if operation.request_body.is_none() { &OF_BODIES } else { &[] };
    for status in never.iter().chain(of_bodies) {
        operation.responses.responses.remove(*status);
    }
}

/// The OpenAPI document as JSON.
pub fn openapi_json() -> String {
    build_document().to_pretty_json().unwrap_or_default()
}

pub(crate) fn document() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(openapi_json)
}
