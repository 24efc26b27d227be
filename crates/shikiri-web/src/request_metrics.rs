//! Counts every request and gives it a span.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use crate::web_state::SharedWebState;

pub(crate) async fn record_request(
    State(web): State<SharedWebState>,
    request: Request,
    next: Next,
) -> Response {
    // The template, never the path: ids belong to the tenants.
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("none", MatchedPath::as_str).to_owned();
    let method = known_method(request.method().as_str());
    let span = tracing::info_span!("request", method, route);
    let response = next.run(request).instrument(span).await;
    web.metrics.count(method, &route, response.status());
    tracing::debug!(method, route, status = response.status().as_u16(), "answered a request");
    response
}

/// A caller may invent methods, and a label for each would fill the memory.
fn known_method(method: &str) -> &'static str {
    match method {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}
