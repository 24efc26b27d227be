//! For operators: liveness, readiness and metrics.

use axum::Json;
use axum::extract::State;
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use shikiri_tenancy::gate::PeerAddress;
use utoipa::ToSchema;

use crate::metrics;
use crate::problem_response::ProblemResponse;
use crate::readiness::ReadinessJson;
use crate::web_state::SharedWebState;

#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
pub(crate) struct HealthJson {
    status: &'static str,
}

/// Says that the process answers
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, description = "It does", body = HealthJson)))]
pub(crate) async fn healthz() -> Json<HealthJson> {
    Json(HealthJson { status: "ok" })
}

/// Says whether the server can do its work
#[utoipa::path(get, path = "/readyz", tag = "server", responses(
    (status = 200, description = "It can", body = ReadinessJson),
    (status = 503, description = "The store cannot be written or is not one that this server knows, or the server is draining", body = ReadinessJson),
))]
pub(crate) async fn readyz(State(web): State<SharedWebState>) -> (StatusCode, Json<ReadinessJson>) {
    let readiness = web.readiness.check(&web.app, web.gate.draining().is_cancelled()).await;
    let ready = readiness.status == "ready";
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness))
}

/// Counters as OpenMetrics text, for this machine only unless configured
#[utoipa::path(get, path = "/metrics", tag = "server", responses(
    (status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text"),
    (status = 404, description = "Not for other machines"),
))]
pub(crate) async fn metrics(
    State(web): State<SharedWebState>,
    headers: HeaderMap,
    extensions: Extensions,
) -> Result<Response, ProblemResponse> {
    if !web.options.metrics_public && !is_local(&headers, &extensions) {
        return Err(ProblemResponse::not_found());
    }
    let text = web.metrics.text(web.gate.open_streams());
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

/// A proxy on this machine connects from loopback on behalf of any client.
fn is_local(headers: &HeaderMap, extensions: &Extensions) -> bool {
    let proxied = ["forwarded", "x-forwarded-for", "x-real-ip"];
    let direct = !proxied.iter().any(|name| headers.contains_key(*name));
    direct
        && extensions
            .get::<PeerAddress>()
            .is_some_and(|PeerAddress(address)| address.ip().is_loopback())
}
