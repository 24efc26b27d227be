//! `/v1/tenants/{t}/conversations`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use shikiri_app::conversations::ConversationPatch;
use shikiri_model::conversation::ConversationStatus;
use shikiri_model::ids::ModelId;
use utoipa::{IntoParams, ToSchema};

use super::created;
use crate::access::{ConversationAccess, TenantAccess};
use crate::error::Problem;
use crate::json::{Json, some};
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::views::{ConversationJson, ConversationStatusJson, MessageJson, Page};

/// A new conversation; everything may be left out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewConversation {
    /// 1 to 200 characters. Without one, the first execution that succeeds gives it.
    title: Option<String>,
    /// In place of the tenant's.
    #[schema(value_type = Option<String>)]
    model_id: Option<ModelId>,
    /// In place of the tenant's.
    workspace_enabled: Option<bool>,
}

/// What is left out stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConversationChange {
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    title: Option<Option<String>>,
    /// Only null: the next execution starts afresh.
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    session_id: Option<Option<String>>,
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    model_id: Option<Option<ModelId>>,
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<bool>)]
    workspace_enabled: Option<Option<bool>>,
    status: Option<ConversationStatusJson>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ConversationsQuery {
    /// Only conversations with this status.
    #[param(inline)]
    status: Option<ConversationStatusJson>,
    /// At most this many items, 1 to 200. A page also ends after 4 MiB of them.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Makes a conversation
#[utoipa::path(post, path = "/v1/tenants/{t}/conversations", tag = "conversations",
    params(("t" = String, Path)), request_body = NewConversation,
    responses((status = 201, description = "The new conversation", body = ConversationJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn create_conversation(
    access: TenantAccess,
    State(web): State<Shared>,
    Json(new): Json<NewConversation>,
) -> Result<Response, Problem> {
    let tenant = access.tenant;
    let patch = ConversationPatch {
        title: Some(new.title),
        model_id: Some(new.model_id),
        workspace_enabled: Some(new.workspace_enabled),
        ..ConversationPatch::default()
    };
    let made = ConversationJson::from(web.app.create_conversation(&tenant, patch).await?);
    Ok(created(&format!("/v1/tenants/{tenant}/conversations/{}", made.id), &made))
}

/// Lists a tenant's conversations, newest first
#[utoipa::path(get, path = "/v1/tenants/{t}/conversations", tag = "conversations",
    params(("t" = String, Path), ConversationsQuery),
    responses((status = 200, description = "A page of conversations", body = Page<ConversationJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_conversations(
    access: TenantAccess,
    State(web): State<Shared>,
    Query(query): Query<ConversationsQuery>,
) -> Result<axum::Json<Page<ConversationJson>>, Problem> {
    let (after, limit) = Paging { limit: query.limit, cursor: query.cursor }.read()?;
    let status = query.status.map(ConversationStatus::from);
    let page = web.app.list_conversations(&access.tenant, status, after, limit).await?;
    Ok(axum::Json(Page::new(page)))
}

/// Shows a conversation
#[utoipa::path(get, path = "/v1/tenants/{t}/conversations/{c}", tag = "conversations",
    params(("t" = String, Path), ("c" = String, Path)),
    responses((status = 200, description = "The conversation", body = ConversationJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn show_conversation(
    ConversationAccess { access, conversation }: ConversationAccess,
    State(web): State<Shared>,
) -> Result<axum::Json<ConversationJson>, Problem> {
    Ok(axum::Json(web.app.conversation(&access.tenant, &conversation).await?.into()))
}

/// Changes a conversation; `session_id: null` is refused while an execution writes to it
#[utoipa::path(patch, path = "/v1/tenants/{t}/conversations/{c}", tag = "conversations",
    params(("t" = String, Path), ("c" = String, Path)), request_body = ConversationChange,
    responses((status = 200, description = "The conversation", body = ConversationJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn change_conversation(
    ConversationAccess { access, conversation }: ConversationAccess,
    State(web): State<Shared>,
    Json(change): Json<ConversationChange>,
) -> Result<axum::Json<ConversationJson>, Problem> {
    if matches!(change.session_id, Some(Some(_))) {
        let reason = "can only be set to null: an engine gives sessions their ids";
        return Err(Problem::invalid("session_id", reason));
    }
    let patch = ConversationPatch {
        title: change.title,
        model_id: change.model_id,
        workspace_enabled: change.workspace_enabled,
        status: change.status.map(ConversationStatus::from),
        forget_session: change.session_id.is_some(),
    };
    let changed = web.app.update_conversation(&access.tenant, &conversation, patch).await?;
    Ok(axum::Json(changed.into()))
}

/// Removes a conversation with its messages and files; what its executions cost stays on record
#[utoipa::path(delete, path = "/v1/tenants/{t}/conversations/{c}", tag = "conversations",
    params(("t" = String, Path), ("c" = String, Path)),
    responses((status = 204, description = "Removed"), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn remove_conversation(
    ConversationAccess { access, conversation }: ConversationAccess,
    State(web): State<Shared>,
) -> Result<StatusCode, Problem> {
    web.app.delete_conversation(&access.tenant, &conversation).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Archives a conversation: it is kept, and no execution can be started in it
#[utoipa::path(post, path = "/v1/tenants/{t}/conversations/{c}/archive", tag = "conversations",
    params(("t" = String, Path), ("c" = String, Path)),
    responses((status = 200, description = "The conversation", body = ConversationJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn archive_conversation(
    ConversationAccess { access, conversation }: ConversationAccess,
    State(web): State<Shared>,
) -> Result<axum::Json<ConversationJson>, Problem> {
    let archived = web.app.archive_conversation(&access.tenant, &conversation).await?;
    Ok(axum::Json(archived.into()))
}

/// Lists what was said in a conversation, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/conversations/{c}/messages", tag = "conversations",
    params(("t" = String, Path), ("c" = String, Path), Paging),
    responses((status = 200, description = "A page of messages", body = Page<MessageJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_messages(
    ConversationAccess { access, conversation }: ConversationAccess,
    State(web): State<Shared>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Page<MessageJson>>, Problem> {
    let (after, limit) = paging.read()?;
    let page = web.app.list_messages(&access.tenant, &conversation, after, limit).await?;
    Ok(axum::Json(Page::new(page)))
}
