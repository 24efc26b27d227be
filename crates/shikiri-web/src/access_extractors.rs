//! Authenticates the caller and checks what it may reach.
//!
//! `authenticate` runs before the router: without a valid key neither path nor body is read. The
//! extractors then check permission. A handler gets a tenant's id only from them, so it cannot
//! forget the check.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use shikiri_app::App;
use shikiri_model::audit::{AuditActor, AuditOrigin};
use shikiri_model::ids::{ModelId, TenantId};
use shikiri_model::key::{KeyScope, SecretToken};
use shikiri_model::models::Model;
use shikiri_model::record::StoredDocument;
use shikiri_model::tenant::{Tenant, TenantStatus};
use shikiri_runtime::AppError;
use shikiri_tenancy::gate::{self, KeyHolder, PeerAddress};

use crate::path_items::{ModelItem, parse_path_id};
use crate::problem_response::{Code, ProblemResponse};
use crate::routes::docs::PAGE_FILES;
use crate::views::ModelJson;
use crate::web_state::SharedWebState;

/// Operations without a key. `PAGE_FILES` need none either. Everything else needs one, including paths
/// that do not exist.
pub(crate) const PUBLIC: [&str; 5] = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"];

/// The only route that a hooks key opens.
pub(crate) const HOOKS: &str = "/hooks/claude";

pub(crate) async fn authenticate(
    State(web): State<SharedWebState>,
    mut request: Request,
    next: Next,
) -> Result<Response, ProblemResponse> {
    if !is_public(request.uri().path()) {
        let secret = secret(request.headers()).ok_or_else(ProblemResponse::unauthorized)?;
        let Some(caller) = web.gate.caller(&secret).await? else {
            web.gate.slow_down(request.extensions().get::<PeerAddress>().copied()).await?;
            return Err(ProblemResponse::unauthorized());
        };
        if matches!(caller.scope, KeyScope::Hooks(_)) && request.uri().path() != HOOKS {
            return Err(ProblemResponse::new(Code::Forbidden, "this key is for hooks alone"));
        }
        // Held until the request is answered.
        let memory = Arc::new(web.gate.body_memory(caller.scope.tenant()));
        request.extensions_mut().insert(Arc::clone(&memory));
        request.extensions_mut().insert(caller);
        let response = next.run(request).await;
        drop(memory);
        return Ok(response);
    }
    Ok(next.run(request).await)
}

fn is_public(path: &str) -> bool {
    PUBLIC.contains(&path) || PAGE_FILES.contains(&path)
}

/// None if there are several: it is unclear which one is meant.
fn secret(headers: &HeaderMap) -> Option<SecretToken> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    gate::bearer(value)
}

fn caller(parts: &Parts) -> Result<KeyHolder, ProblemResponse> {
    parts.extensions.get::<KeyHolder>().cloned().ok_or_else(ProblemResponse::unauthorized)
}

/// The use cases, with the caller recorded as the author of changes. For routes that change
/// permissions.
pub(crate) struct ActingApp(pub(crate) App);

impl FromRequestParts<SharedWebState> for ActingApp {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        web: &SharedWebState,
    ) -> Result<Self, ProblemResponse> {
        let KeyHolder { key, name, .. } = caller(parts)?;
        // A proxy's header is no proof of the client's address.
        let from = parts
            .extensions
            .get::<PeerAddress>()
            .map(|PeerAddress(address)| address.ip().to_string());
        let origin = AuditOrigin { actor: AuditActor::Key { id: key, name }, from };
        Ok(Self(web.app.acting_as(origin)))
    }
}

/// The caller holds the admin key. To other callers these routes do not exist.
pub(crate) struct AdminAccess(pub(crate) KeyHolder);

impl FromRequestParts<SharedWebState> for AdminAccess {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &SharedWebState,
    ) -> Result<Self, ProblemResponse> {
        let caller = caller(parts)?;
        match caller.scope {
            KeyScope::Admin => Ok(Self(caller)),
            KeyScope::Tenant(_) | KeyScope::Hooks(_) => Err(ProblemResponse::not_found()),
        }
    }
}

/// The caller may manage the tenant in the path: its record and its keys.
pub(crate) struct TenantManagement {
    pub(crate) tenant: TenantId,
    is_admin: bool,
}

impl TenantManagement {
    /// A tenant must not raise its own limits.
    pub(crate) fn require_admin(&self, what: &str) -> Result<(), ProblemResponse> {
        if self.is_admin {
            return Ok(());
        }
        Err(ProblemResponse::new(Code::Forbidden, format!("{what} needs the admin key")))
    }
}

impl FromRequestParts<SharedWebState> for TenantManagement {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        web: &SharedWebState,
    ) -> Result<Self, ProblemResponse> {
        let access = authorize(parts, web).await?;
        let is_admin = access.caller.scope == KeyScope::Admin;
        // The admin must be able to raise a limit that is used up.
        if !is_admin {
            web.gate.count_request(&access.record)?;
        }
        Ok(Self { tenant: access.tenant, is_admin })
    }
}

/// The caller may use the tenant in the path, and is within its rate.
pub(crate) struct TenantAccess {
    pub(crate) tenant: TenantId,
    pub(crate) record: Arc<Tenant>,
    pub(crate) caller: KeyHolder,
}

impl FromRequestParts<SharedWebState> for TenantAccess {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        web: &SharedWebState,
    ) -> Result<Self, ProblemResponse> {
        let access = authorize(parts, web).await?;
        web.gate.count_request(&access.record)?;
        Ok(access)
    }
}

/// The caller holds any key and is within its tenant's rate: every tenant may see the models.
pub(crate) struct AnyKey {
    is_admin: bool,
}

impl AnyKey {
    /// The model as far as the caller may see it.
    pub(crate) fn model(&self, stored: StoredDocument<Model>) -> ModelJson {
        if self.is_admin { stored.into() } else { ModelJson::for_tenant(stored) }
    }
}

impl FromRequestParts<SharedWebState> for AnyKey {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        web: &SharedWebState,
    ) -> Result<Self, ProblemResponse> {
        match caller(parts)?.scope {
            KeyScope::Admin => Ok(Self { is_admin: true }),
            KeyScope::Tenant(tenant) | KeyScope::Hooks(tenant) => {
                web.gate.count_request(&*web.gate.tenant(&tenant).await?)?;
                Ok(Self { is_admin: false })
            }
        }
    }
}

/// The tenant of the caller's key, within its rate. For the admin key that is `local`.
pub(crate) struct HooksAccess(pub(crate) TenantId);

impl FromRequestParts<SharedWebState> for HooksAccess {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        web: &SharedWebState,
    ) -> Result<Self, ProblemResponse> {
        let tenant = caller(parts)?.scope.tenant().cloned().unwrap_or_else(TenantId::local);
        let record = web.gate.tenant(&tenant).await?;
        if record.status == TenantStatus::Inactive {
            return Err(AppError::Inactive { kind: "tenant", id: tenant.to_string() }.into());
        }
        web.gate.count_request(&record)?;
        Ok(Self(tenant))
    }
}

/// The model in the path, which may or may not exist.
pub(crate) struct ModelInPath(pub(crate) ModelId);

impl FromRequestParts<SharedWebState> for ModelInPath {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &SharedWebState,
    ) -> Result<Self, ProblemResponse> {
        parse_path_id::<ModelItem>(parts).await.map(Self)
    }
}

/// The answer is the same for a tenant that does not exist and for one of another caller, and takes
/// the same work. A tenant that the key does not open is not looked up, so the response time
/// reveals neither the store nor our cache.
async fn authorize(
    parts: &mut Parts,
    web: &SharedWebState,
) -> Result<TenantAccess, ProblemResponse> {
    let caller = caller(parts)?;
    let id = path_id(parts, "t").await;
    let missing = || ProblemResponse::id_not_found("tenant", &id);
    let tenant: TenantId = id.parse().map_err(|_| missing())?;
    if !caller.scope.allows(&tenant) {
        return Err(missing());
    }
    let record = web.gate.tenant(&tenant).await?;
    Ok(TenantAccess { tenant, record, caller })
}

/// A part of the path; empty, and so no valid id, if it cannot be read.
pub(crate) async fn path_id(parts: &mut Parts, name: &str) -> String {
    let params = RawPathParams::from_request_parts(parts, &()).await;
    let found = params.ok().and_then(|params| {
        params.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    });
    found.unwrap_or_default()
}
