//! `/v1/tenants/{t}/runs/{r}/events`

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::RunAccess;
use crate::problem_response::ProblemResponse;
use crate::query_extractor::Query;
use crate::sse::{self, SseEventFeed, SseEventSource};
use crate::web_state::SharedWebState;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunEventsQuery {
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
        ("t" = String, Path), ("r" = String, Path), RunEventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was seen"),
    ),
    responses(
        (status = 200, description = "The stream", body = String, content_type = "text/event-stream"), GuardedResponses, FailureResponses,
    ),
    security(("key" = [])))]
pub(crate) async fn follow_run(
    RunAccess { access, id: run }: RunAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<RunEventsQuery>,
    headers: HeaderMap,
) -> Result<Response, ProblemResponse> {
    let after = sse::cursor(&headers, query.after.as_deref())?;
    Ok(sse::respond(SseEventFeed::open(web, access, SseEventSource::run(&run), after).await?))
}
