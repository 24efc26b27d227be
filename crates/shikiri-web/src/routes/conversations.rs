//! `/v1/tenants/{t}/conversations`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use shikiri_executions::conversations::ConversationPatch;
use shikiri_model::conversation::ConversationStatus;
use shikiri_model::ids::ModelId;
use utoipa::ToSchema;

use super::created;
use crate::access_extractors::TenantAccess;
use crate::json_extractor::{Json, some};
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::ConversationAccess;
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{PageQuery, Query, list_query};
use crate::views::{ConversationJson, ConversationStatusSchema, ListPage, MessageJson};
use crate::web_state::SharedWebState;

/// A new conversation; everything may be left out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewConversation)]
pub(crate) struct NewConversationBody {
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
#[schema(as = ConversationChange)]
pub(crate) struct ConversationChangeBody {
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
    #[schema(value_type = Option<ConversationStatusSchema>)]
    status: Option<ConversationStatus>,
}

list_query!(ConversationsQuery {
    /// Only conversations with this status.
    #[param(inline, value_type = Option<ConversationStatusSchema>)]
    status: Option<ConversationStatus>,
});

/// Makes a conversation
#[utoipa::path(post, path = "/v1/tenants/{t}/conversations", tag = "conversations",
    params(("t" = String, Path)), request_body = NewConversationBody,
    responses((status = 201, description = "The new conversation", body = ConversationJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn create_conversation(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Json(new): Json<NewConversationBody>,
) -> Result<Response, ProblemResponse> {
    let tenant = access.tenant;
    let patch = ConversationPatch {
        title: Some(new.title),
        model_id: Some(new.model_id),
        workspace_enabled: Some(new.workspace_enabled),
        ..ConversationPatch::default()
    };
    let made =
        ConversationJson::from(web.app.executions.create_conversation(&tenant, patch).await?);
    Ok(created(&format!("/v1/tenants/{tenant}/conversations/{}", made.id), &made))
}

/// Lists a tenant's conversations, newest first
#[utoipa::path(get, path = "/v1/tenants/{t}/conversations", tag = "conversations",
    params(("t" = String, Path), ConversationsQuery),
    responses((status = 200, description = "A page of conversations", body = ListPage<ConversationJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_conversations(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<ConversationsQuery>,
) -> Result<axum::Json<ListPage<ConversationJson>>, ProblemResponse> {
    let (after, limit) = query.position_and_limit()?;
    let status = query.status;
    let page = web.app.executions.list_conversations(&access.tenant, status, after, limit).await?;
    Ok(axum::Json(ListPage::new(page)))
}

/// Shows a conversation
#[utoipa::path(get, path = "/v1/tenants/{t}/conversations/{c}", tag = "conversations",
    params(("t" = String, Path), ("c" = String, Path)),
    responses((status = 200, description = "The conversation", body = ConversationJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_conversation(
    ConversationAccess { access, id: conversation }: ConversationAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<ConversationJson>, ProblemResponse> {
    Ok(axum::Json(web.app.executions.conversation(&access.tenant, &conversation).await?.into()))
}

/// Changes a conversation; `session_id: null` is refused while an execution writes to it
#[utoipa::path(patch, path = "/v1/tenants/{t}/conversations/{c}", tag = "conversations",
    params(("t" = String, Path), ("c" = String, Path)), request_body = ConversationChangeBody,
    responses((status = 200, description = "The conversation", body = ConversationJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn change_conversation(
    ConversationAccess { access, id: conversation }: ConversationAccess,
    State(web): State<SharedWebState>,
    Json(change): Json<ConversationChangeBody>,
) -> Result<axum::Json<ConversationJson>, ProblemResponse> {
    if matches!(change.session_id, Some(Some(_))) {
        let reason = "can only be set to null: an engine gives sessions their ids";
        return Err(ProblemResponse::invalid("session_id", reason));
    }
    let patch = ConversationPatch {
        title: change.title,
        model_id: change.model_id,
        workspace_enabled: change.workspace_enabled,
        status: change.status,
        forget_session: change.session_id.is_some(),
    };
    let changed =
        web.app.executions.update_conversation(&access.tenant, &conversation, patch).await?;
    Ok(axum::Json(changed.into()))
}

/// Removes a conversation with its messages, executions and files; what its executions cost stays on record
#[utoipa::path(delete, path = "/v1/tenants/{t}/conversations/{c}", tag = "conversations",
    params(("t" = String, Path), ("c" = String, Path)),
    responses((status = 204, description = "Removed"), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn remove_conversation(
    ConversationAccess { access, id: conversation }: ConversationAccess,
    State(web): State<SharedWebState>,
) -> Result<StatusCode, ProblemResponse> {
    web.app.executions.delete_conversation(&access.tenant, &conversation).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Archives a conversation: it is kept, and no execution can be started in it
#[utoipa::path(post, path = "/v1/tenants/{t}/conversations/{c}/archive", tag = "conversations",
    params(("t" = String, Path), ("c" = String, Path)),
    responses((status = 200, description = "The conversation", body = ConversationJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn archive_conversation(
    ConversationAccess { access, id: conversation }: ConversationAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<ConversationJson>, ProblemResponse> {
    let archived = web.app.executions.archive_conversation(&access.tenant, &conversation).await?;
    Ok(axum::Json(archived.into()))
}

/// Lists what was said in a conversation, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/conversations/{c}/messages", tag = "conversations",
    params(("t" = String, Path), ("c" = String, Path), PageQuery),
    responses((status = 200, description = "A page of messages", body = ListPage<MessageJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_messages(
    ConversationAccess { access, id: conversation }: ConversationAccess,
    State(web): State<SharedWebState>,
    Query(paging): Query<PageQuery>,
) -> Result<axum::Json<ListPage<MessageJson>>, ProblemResponse> {
    let (after, limit) = paging.position_and_limit()?;
    let page =
        web.app.executions.list_messages(&access.tenant, &conversation, after, limit).await?;
    Ok(axum::Json(ListPage::new(page)))
}
