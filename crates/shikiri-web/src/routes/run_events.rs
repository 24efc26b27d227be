//! `/v1/tenants/{t}/runs/{r}/events`

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::RunAccess;
use crate::error::Problem;
use crate::openapi::{Failures, Guarded};
use crate::query::Query;
use crate::sse::{self, Feed, Source};
use crate::state::Shared;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Start after this event. A `Last-Event-ID` header wins.
    #[param(value_type = Option<u64>)]
    pub(crate) after: Option<String>,
}

/// Follows a run: what has happened after the cursor, then what happens
///
/// Server-Sent Events whose `data` holds `seq`, `at`, `run_id` and the event's own fields. The
/// server ends the stream after the terminal event (`result` or `error`); a stream that ends
/// without one goes on after reconnecting with `Last-Event-ID`. A cursor whose events are no
/// longer kept gets `event: resync` with `kept_after` and goes on from there.
#[utoipa::path(get, path = "/v1/tenants/{t}/runs/{r}/events", tag = "runs",
    params(
        ("t" = String, Path), ("r" = String, Path), EventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was seen"),
    ),
    responses(
        (status = 200, description = "The stream", body = String, content_type = "text/event-stream"), Guarded, Failures,
    ),
    security(("key" = [])))]
pub(crate) async fn follow_run(
    RunAccess { access, run }: RunAccess,
    State(web): State<Shared>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = sse::cursor(&headers, query.after.as_deref())?;
    Ok(sse::respond(Feed::open(web, access, Source::run(&run), after).await?))
}
