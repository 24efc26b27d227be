//! The API's own description, for programs and for people.

use axum::http::header;
use axum::response::IntoResponse;

use crate::openapi;

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
        (header::CONTENT_SECURITY_POLICY, openapi::docs_page::POLICY),
    ];
    (headers, openapi::page())
}
