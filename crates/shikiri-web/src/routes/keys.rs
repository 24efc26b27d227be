//! `/v1/tenants/{t}/keys`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use shikiri_model::time::Timestamp;
use shikiri_tenancy::keys;
use utoipa::ToSchema;

use super::created;
use crate::access_extractors::{ActingApp, TenantManagement};
use crate::json_extractor::Json;
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::KeyManagement;
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{PageQuery, Query};
use crate::views::{CreatedKeyJson, KeyJson, KeyScopeJson, ListPage};
use crate::web_state::SharedWebState;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewKey)]
pub(crate) struct NewKeyBody {
    /// What it is for, 1 to 200 characters.
    #[serde(default = "unnamed")]
    name: String,
    /// What it opens; with `hooks` it can tell of events of hooks and do nothing else.
    #[serde(default)]
    scope: KeyScopeJson,
    /// From then on it opens nothing; without it, it opens until it is revoked.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

fn unnamed() -> String {
    "unnamed".to_owned()
}

/// Makes a key that reaches this tenant only
#[utoipa::path(post, path = "/v1/tenants/{t}/keys", tag = "keys", params(("t" = String, Path)),
    request_body = NewKeyBody,
    responses((status = 201, description = "The key, with its secret", body = CreatedKeyJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn create_key(
    access: TenantManagement,
    ActingApp(app): ActingApp,
    Json(new): Json<NewKeyBody>,
) -> Result<Response, ProblemResponse> {
    let key = keys::NewApiKey { name: new.name, expires_at: new.expires_at };
    let made = match new.scope {
        KeyScopeJson::Tenant => app.tenancy.create_key(&access.tenant, key).await,
        KeyScopeJson::Hooks => app.tenancy.create_hooks_key(&access.tenant, key).await,
    };
    let (stored, secret) = made?;
    let made = CreatedKeyJson::new(stored, &secret);
    let location = format!("/v1/tenants/{}/keys/{}", access.tenant, made.record.id);
    Ok(created(&location, &made))
}

/// Lists a tenant's keys, without their secrets
#[utoipa::path(get, path = "/v1/tenants/{t}/keys", tag = "keys",
    params(("t" = String, Path), PageQuery),
    responses((status = 200, description = "A page of keys", body = ListPage<KeyJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_keys(
    access: TenantManagement,
    State(web): State<SharedWebState>,
    Query(paging): Query<PageQuery>,
) -> Result<axum::Json<ListPage<KeyJson>>, ProblemResponse> {
    let (after, limit) = paging.position_and_limit()?;
    Ok(axum::Json(ListPage::new(web.app.tenancy.list_keys(&access.tenant, after, limit).await?)))
}

/// Revokes a key: it stops working within 5 seconds on every node
#[utoipa::path(delete, path = "/v1/tenants/{t}/keys/{key}", tag = "keys",
    params(("t" = String, Path), ("key" = String, Path)),
    responses((status = 204, description = "Revoked"), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn revoke_key(
    KeyManagement { access, id: key }: KeyManagement,
    ActingApp(app): ActingApp,
    State(web): State<SharedWebState>,
) -> Result<StatusCode, ProblemResponse> {
    app.tenancy.revoke_key(&access.tenant, &key).await?;
    web.gate.forget_keys();
    Ok(StatusCode::NO_CONTENT)
}
