//! `/v1/tenants/{t}/projects/{p}/dialogues`

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use shikiri_model::ids::DialogueId;
use shikiri_model::team::DialogueState;
use utoipa::IntoParams;

use super::run_events::EventsQuery;
use crate::error::Problem;
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::sse::{self, Feed, Source};
use crate::state::Shared;
use crate::team_access::{InProject, ProjectAccess};
use crate::views::{DialogueJson, DialogueLineJson, DialogueStateJson, Page};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DialoguesQuery {
    /// Only dialogues in this state.
    #[param(inline)]
    state: Option<DialogueStateJson>,
    /// At most this many items, 1 to 200. A page also ends after 4 MiB of them.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Lists the dialogues of a project, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/dialogues", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), DialoguesQuery),
    responses((status = 200, description = "A page of dialogues", body = Page<DialogueJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_dialogues(
    ProjectAccess { access, project }: ProjectAccess,
    State(web): State<Shared>,
    Query(query): Query<DialoguesQuery>,
) -> Result<axum::Json<Page<DialogueJson>>, Problem> {
    let (after, limit) = Paging { limit: query.limit, cursor: query.cursor }.read()?;
    let state = query.state.map(DialogueState::from);
    let page = web.app.list_dialogues(&access.tenant, &project, state, after, limit).await?;
    Ok(axum::Json(Page::new(page)))
}

/// Shows a dialogue
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/dialogues/{dialogue}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("dialogue" = String, Path)),
    responses((status = 200, description = "The dialogue", body = DialogueJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn show_dialogue(
    InProject { access, project, id }: InProject<DialogueId>,
    State(web): State<Shared>,
) -> Result<axum::Json<DialogueJson>, Problem> {
    Ok(axum::Json(web.app.dialogue_of(&access.tenant, &project, &id).await?.into()))
}

/// Lists what was said in a dialogue, from its first message: a dialogue has at most 40
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/dialogues/{dialogue}/messages", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("dialogue" = String, Path), Paging),
    responses((status = 200, description = "A page of messages", body = Page<DialogueLineJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn dialogue_messages(
    InProject { access, project, id }: InProject<DialogueId>,
    State(web): State<Shared>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Page<DialogueLineJson>>, Problem> {
    let (after, limit) = paging.read()?;
    let page = web.app.dialogue_messages(&access.tenant, &project, &id, after, limit).await?;
    Ok(axum::Json(Page::new(page)))
}

/// Follows a dialogue: what was said after the cursor, then what is said
///
/// Server-Sent Events whose `data` holds `seq`, `at`, `conversation_id` and the event's own fields:
/// `message` with `message_id`, `from_agent_id`, `content` and `created_at`, and at last
/// `conversation_ended` with `reason`, after which the server ends the stream.
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/dialogues/{dialogue}/events", tag = "teams",
    params(
        ("t" = String, Path), ("p" = String, Path), ("dialogue" = String, Path), EventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was seen"),
    ),
    responses(
        (status = 200, description = "The stream", body = String, content_type = "text/event-stream"), Guarded, Failures,
    ),
    security(("key" = [])))]
pub(crate) async fn follow_dialogue(
    InProject { access, project, id }: InProject<DialogueId>,
    State(web): State<Shared>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = sse::cursor(&headers, query.after.as_deref())?;
    web.app.dialogue_of(&access.tenant, &project, &id).await?;
    Ok(sse::respond(Feed::open(web, access, Source::dialogue(&id), after).await?))
}

/// Ends a dialogue with the reason `cancelled`; both agents are told
#[utoipa::path(post, path = "/v1/tenants/{t}/projects/{p}/dialogues/{dialogue}/cancel", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("dialogue" = String, Path)),
    responses((status = 200, description = "The dialogue", body = DialogueJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn cancel_dialogue(
    InProject { access, project, id }: InProject<DialogueId>,
    State(web): State<Shared>,
) -> Result<axum::Json<DialogueJson>, Problem> {
    Ok(axum::Json(web.app.cancel_dialogue(&access.tenant, &project, &id).await?.into()))
}
