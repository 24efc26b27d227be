//! `/v1/tenants/{t}/keys`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use shikiri_app::keys;
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

use super::created;
use crate::access::{ActingApp, KeyManagement, TenantManagement};
use crate::error::Problem;
use crate::json::Json;
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::views::{KeyJson, KeyScopeJson, MadeKey, Page};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewKey {
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
    request_body = NewKey,
    responses((status = 201, description = "The key, with its secret", body = MadeKey), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn create_key(
    access: TenantManagement,
    ActingApp(app): ActingApp,
    Json(new): Json<NewKey>,
) -> Result<Response, Problem> {
    let key = keys::NewKey { name: new.name, expires_at: new.expires_at };
    let made = match new.scope {
        KeyScopeJson::Tenant => app.create_key(&access.tenant, key).await,
        KeyScopeJson::Hooks => app.create_hooks_key(&access.tenant, key).await,
    };
    let (stored, secret) = made?;
    let made = MadeKey::new(stored, &secret);
    let location = format!("/v1/tenants/{}/keys/{}", access.tenant, made.record.id);
    Ok(created(&location, &made))
}

/// Lists a tenant's keys, without their secrets
#[utoipa::path(get, path = "/v1/tenants/{t}/keys", tag = "keys",
    params(("t" = String, Path), Paging),
    responses((status = 200, description = "A page of keys", body = Page<KeyJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_keys(
    access: TenantManagement,
    State(web): State<Shared>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Page<KeyJson>>, Problem> {
    let (after, limit) = paging.read()?;
    Ok(axum::Json(Page::new(web.app.list_keys(&access.tenant, after, limit).await?)))
}

/// Revokes a key: it stops working within 5 seconds on every node
#[utoipa::path(delete, path = "/v1/tenants/{t}/keys/{key}", tag = "keys",
    params(("t" = String, Path), ("key" = String, Path)),
    responses((status = 204, description = "Revoked"), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn revoke_key(
    KeyManagement { access, key }: KeyManagement,
    ActingApp(app): ActingApp,
    State(web): State<Shared>,
) -> Result<StatusCode, Problem> {
    app.revoke_key(&access.tenant, &key).await?;
    web.gate.forget_keys();
    Ok(StatusCode::NO_CONTENT)
}
