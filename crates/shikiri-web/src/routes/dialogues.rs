//! `/v1/tenants/{t}/projects/{p}/dialogues`

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use shikiri_model::team::DialogueState;

use super::run_events::RunEventsQuery;
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::{DialogueItem, ProjectAccess, ProjectItemAccess};
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{PageQuery, Query, list_query};
use crate::sse::{self, SseEventFeed, SseEventSource};
use crate::views::{DialogueJson, DialogueLineJson, DialogueStateSchema, ListPage};
use crate::web_state::SharedWebState;

list_query!(DialoguesQuery {
    /// Only dialogues in this state.
    #[param(inline, value_type = Option<DialogueStateSchema>)]
    state: Option<DialogueState>,
});

/// Lists the dialogues of a project, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/dialogues", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), DialoguesQuery),
    responses((status = 200, description = "A page of dialogues", body = ListPage<DialogueJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_dialogues(
    ProjectAccess { access, id: project }: ProjectAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<DialoguesQuery>,
) -> Result<axum::Json<ListPage<DialogueJson>>, ProblemResponse> {
    let (after, limit) = query.position_and_limit()?;
    let state = query.state;
    let page = web.app.teams.list_dialogues(&access.tenant, &project, state, after, limit).await?;
    Ok(axum::Json(ListPage::new(page)))
}

/// Shows a dialogue
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/dialogues/{dialogue}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("dialogue" = String, Path)),
    responses((status = 200, description = "The dialogue", body = DialogueJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_dialogue(
    ProjectItemAccess { access, project, id }: ProjectItemAccess<DialogueItem>,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<DialogueJson>, ProblemResponse> {
    Ok(axum::Json(web.app.teams.dialogue_of(&access.tenant, &project, &id).await?.into()))
}

/// Lists what was said in a dialogue, from its first message: a dialogue has at most 40
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/dialogues/{dialogue}/messages", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("dialogue" = String, Path), PageQuery),
    responses((status = 200, description = "A page of messages", body = ListPage<DialogueLineJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn dialogue_messages(
    ProjectItemAccess { access, project, id }: ProjectItemAccess<DialogueItem>,
    State(web): State<SharedWebState>,
    Query(paging): Query<PageQuery>,
) -> Result<axum::Json<ListPage<DialogueLineJson>>, ProblemResponse> {
    let (after, limit) = paging.position_and_limit()?;
    let page = web.app.teams.dialogue_messages(&access.tenant, &project, &id, after, limit).await?;
    Ok(axum::Json(ListPage::new(page)))
}

/// Follows a dialogue: what was said after the cursor, then what is said
///
/// Server-Sent Events whose `data` holds `seq`, `at`, `conversation_id` and the event's own fields:
/// `message` with `message_id`, `from_agent_id`, `content` and `created_at`, and at last
/// `conversation_ended` with `reason`, after which the server ends the stream.
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/dialogues/{dialogue}/events", tag = "teams",
    params(
        ("t" = String, Path), ("p" = String, Path), ("dialogue" = String, Path), RunEventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was seen"),
    ),
    responses(
        (status = 200, description = "The stream", body = String, content_type = "text/event-stream"), GuardedResponses, FailureResponses,
    ),
    security(("key" = [])))]
pub(crate) async fn follow_dialogue(
    ProjectItemAccess { access, project, id }: ProjectItemAccess<DialogueItem>,
    State(web): State<SharedWebState>,
    Query(query): Query<RunEventsQuery>,
    headers: HeaderMap,
) -> Result<Response, ProblemResponse> {
    let after = sse::cursor(&headers, query.after.as_deref())?;
    web.app.teams.dialogue_of(&access.tenant, &project, &id).await?;
    Ok(sse::respond(SseEventFeed::open(web, access, SseEventSource::dialogue(&id), after).await?))
}

/// Ends a dialogue with the reason `cancelled`; both agents are told
#[utoipa::path(post, path = "/v1/tenants/{t}/projects/{p}/dialogues/{dialogue}/cancel", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("dialogue" = String, Path)),
    responses((status = 200, description = "The dialogue", body = DialogueJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn cancel_dialogue(
    ProjectItemAccess { access, project, id }: ProjectItemAccess<DialogueItem>,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<DialogueJson>, ProblemResponse> {
    Ok(axum::Json(web.app.teams.cancel_dialogue(&access.tenant, &project, &id).await?.into()))
}
