//! The API's own description, for programs and for people.

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use shikiri_app::problem::Problem;

use crate::openapi::{self, viewer};
use crate::problem_response::ProblemResponse;
use crate::web_state::SharedWebState;

/// Paths for browsers alone: the start page and the files of `/docs`. They need no key and are no
/// operations of the API.
pub(crate) const PAGE_FILES: [&str; 3] = ["/", "/docs/start.js", "/docs/viewer.js"];

/// Adds the routes of `PAGE_FILES`.
pub(crate) fn add_page_files(router: Router<SharedWebState>) -> Router<SharedWebState> {
    let [start_page, start_script, viewer_script] = PAGE_FILES;
    router
        .route(start_page, get(open_start_page))
        .route(start_script, get(send_start_script))
        .route(viewer_script, get(send_viewer_script))
}

/// Describes this API as OpenAPI 3.1
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses(
    (status = 200, description = "The OpenAPI document", body = Object),
))]
pub(crate) async fn openapi_document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], openapi::document())
}

/// Describes this API as a page
#[utoipa::path(get, path = "/docs", tag = "server", responses(
    (status = 200, description = "The page", body = String, content_type = "text/html"),
))]
pub(crate) async fn docs() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, viewer::POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, viewer::PAGE)
}

/// Temporary, because `/` is to become a page of its own.
async fn open_start_page() -> Redirect {
    Redirect::temporary("/docs")
}

async fn send_start_script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, JAVASCRIPT)], viewer::START_SCRIPT)
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Browsers keep the script and ask each time whether it is still the same: after an update of the
/// server it may not be.
async fn send_viewer_script(headers: HeaderMap) -> Result<Response, ProblemResponse> {
    let is_gzip = viewer::accepts_gzip(&joined(&headers, &header::ACCEPT_ENCODING));
    let etag = viewer::script_etag(is_gzip);
    let mut response = if viewer::names_etag(&joined(&headers, &header::IF_NONE_MATCH), etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let script = viewer::script(is_gzip)
            .ok_or_else(|| Problem::internal("the embedded viewer cannot be decompressed"))?;
        ([(header::CONTENT_TYPE, JAVASCRIPT)], script).into_response()
    };
    let is_encoded = is_gzip && response.status() == StatusCode::OK;
    let further = response.headers_mut();
    if is_encoded {
        further.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    further.insert(header::ETAG, HeaderValue::from_static(etag));
    further.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    further.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// All values of a header that is a list.
fn joined(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}
