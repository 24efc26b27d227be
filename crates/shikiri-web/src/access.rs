//! Who is calling, and what the caller may reach.
//!
//! `authenticate` stands before the router: without a valid key nothing is looked at, neither
//! path nor body. The extractors then prove permission: a handler gets a tenant's id from no
//! other place, so it cannot forget to ask.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use shikiri_app::gate::{self, Caller, Peer};
use shikiri_app::{App, AppError};
use shikiri_model::audit::{Actor, AuditOrigin};
use shikiri_model::ids::{ConversationId, KeyId, ModelId, RunId, ServerId, TenantId};
use shikiri_model::key::{KeyScope, Secret};
use shikiri_model::models::Model;
use shikiri_model::record::Stored;
use shikiri_model::tenant::{Tenant, TenantStatus};

use crate::error::{Code, Problem};
use crate::state::Shared;
use crate::views::ModelJson;

/// What can be had without a key. Everything else needs one, also what does not exist.
pub(crate) const PUBLIC: [&str; 5] = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"];

/// All that a key for hooks opens.
pub(crate) const HOOKS: &str = "/hooks/claude";

pub(crate) async fn authenticate(
    State(web): State<Shared>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if !PUBLIC.contains(&request.uri().path()) {
        let secret = secret(request.headers()).ok_or_else(Problem::unauthorized)?;
        let Some(caller) = web.gate.caller(&secret).await? else {
            web.gate.slow_down(request.extensions().get::<Peer>().copied()).await?;
            return Err(Problem::unauthorized());
        };
        if matches!(caller.scope, KeyScope::Hooks(_)) && request.uri().path() != HOOKS {
            return Err(Problem::new(Code::Forbidden, "this key is for hooks alone"));
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

/// None if there are several: which one is meant is not ours to guess.
fn secret(headers: &HeaderMap) -> Option<Secret> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    gate::bearer(value)
}

fn caller(parts: &Parts) -> Result<Caller, Problem> {
    parts.extensions.get::<Caller>().cloned().ok_or_else(Problem::unauthorized)
}

/// The use cases, with the caller as the one who makes the changes: for routes that change who may
/// do what.
pub(crate) struct ActingApp(pub(crate) App);

impl FromRequestParts<Shared> for ActingApp {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let Caller { key, name, .. } = caller(parts)?;
        // What a proxy says of others is not proof.
        let from = parts.extensions.get::<Peer>().map(|Peer(address)| address.ip().to_string());
        let origin = AuditOrigin { actor: Actor::Key { id: key, name }, from };
        Ok(Self(web.app.acting_as(origin)))
    }
}

/// The caller holds the admin key. To others these routes are not there.
pub(crate) struct Admin(pub(crate) Caller);

impl FromRequestParts<Shared> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let caller = caller(parts)?;
        match caller.scope {
            KeyScope::Admin => Ok(Self(caller)),
            KeyScope::Tenant(_) | KeyScope::Hooks(_) => Err(Problem::not_found()),
        }
    }
}

/// The caller may manage the tenant in the path: its record and its keys.
pub(crate) struct TenantManagement {
    pub(crate) tenant: TenantId,
    is_admin: bool,
}

impl TenantManagement {
    /// A tenant must not lift its own limits.
    pub(crate) fn require_admin(&self, what: &str) -> Result<(), Problem> {
        if self.is_admin {
            return Ok(());
        }
        Err(Problem::new(Code::Forbidden, format!("{what} needs the admin key")))
    }
}

impl FromRequestParts<Shared> for TenantManagement {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let access = authorize(parts, web).await?;
        let is_admin = access.caller.scope == KeyScope::Admin;
        // The admin must be able to lift a limit that is used up.
        if !is_admin {
            web.gate.count_request(&access.record)?;
        }
        Ok(Self { tenant: access.tenant, is_admin })
    }
}

/// As `TenantManagement`, with the key in the path, which may or may not exist.
pub(crate) struct KeyManagement {
    pub(crate) access: TenantManagement,
    pub(crate) key: KeyId,
}

impl FromRequestParts<Shared> for KeyManagement {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let access = TenantManagement::from_request_parts(parts, web).await?;
        let id = path_id(parts, "key").await;
        let key = id.parse().map_err(|_| Problem::no_key(&id))?;
        Ok(Self { access, key })
    }
}

/// The caller may use the tenant in the path, and is within its rate.
pub(crate) struct TenantAccess {
    pub(crate) tenant: TenantId,
    pub(crate) record: Arc<Tenant>,
    pub(crate) caller: Caller,
}

impl FromRequestParts<Shared> for TenantAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let access = authorize(parts, web).await?;
        web.gate.count_request(&access.record)?;
        Ok(access)
    }
}

/// As `TenantAccess`, with the run in the path, which may or may not exist.
pub(crate) struct RunAccess {
    pub(crate) access: TenantAccess,
    pub(crate) run: RunId,
}

impl FromRequestParts<Shared> for RunAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let access = TenantAccess::from_request_parts(parts, web).await?;
        let id = path_id(parts, "r").await;
        let run = id.parse().map_err(|_| Problem::no_run(&id))?;
        Ok(Self { access, run })
    }
}

/// As `TenantAccess`, with the conversation in the path, which may or may not exist.
pub(crate) struct ConversationAccess {
    pub(crate) access: TenantAccess,
    pub(crate) conversation: ConversationId,
}

impl FromRequestParts<Shared> for ConversationAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let access = TenantAccess::from_request_parts(parts, web).await?;
        let id = path_id(parts, "c").await;
        let conversation = id.parse().map_err(|_| Problem::missing("conversation", &id))?;
        Ok(Self { access, conversation })
    }
}

/// As `TenantAccess`, with the MCP server in the path, which may or may not exist.
pub(crate) struct ServerAccess {
    pub(crate) access: TenantAccess,
    pub(crate) server: ServerId,
}

impl FromRequestParts<Shared> for ServerAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let access = TenantAccess::from_request_parts(parts, web).await?;
        let id = path_id(parts, "s").await;
        let server = id.parse().map_err(|_| Problem::missing("mcp_server", &id))?;
        Ok(Self { access, server })
    }
}

/// As `TenantAccess`, with the skill's name in the path, which may be none that a skill can have.
pub(crate) struct SkillAccess {
    pub(crate) access: TenantAccess,
    pub(crate) name: String,
}

impl FromRequestParts<Shared> for SkillAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let access = TenantAccess::from_request_parts(parts, web).await?;
        Ok(Self { access, name: path_id(parts, "name").await })
    }
}

/// The caller holds a key, whosever it is, and is within its tenant's rate. Models are everybody's
/// to see.
pub(crate) struct AnyKey {
    is_admin: bool,
}

impl AnyKey {
    /// As much of a model as the caller may see.
    pub(crate) fn model(&self, stored: Stored<Model>) -> ModelJson {
        if self.is_admin { stored.into() } else { ModelJson::for_tenant(stored) }
    }
}

impl FromRequestParts<Shared> for AnyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        match caller(parts)?.scope {
            KeyScope::Admin => Ok(Self { is_admin: true }),
            KeyScope::Tenant(tenant) | KeyScope::Hooks(tenant) => {
                web.gate.count_request(&*web.gate.tenant(&tenant).await?)?;
                Ok(Self { is_admin: false })
            }
        }
    }
}

/// The tenant that the caller's key is for, within its rate: hooks of whoever runs the server are
/// those of `local`.
pub(crate) struct HooksAccess(pub(crate) TenantId);

impl FromRequestParts<Shared> for HooksAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
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

impl FromRequestParts<Shared> for ModelInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let id = path_id(parts, "m").await;
        id.parse().map(Self).map_err(|_| Problem::missing("model", &id))
    }
}

/// As `TenantAccess`, with the execution in the path, which may or may not exist.
pub(crate) struct ExecutionAccess {
    pub(crate) access: TenantAccess,
    pub(crate) execution: RunId,
}

impl FromRequestParts<Shared> for ExecutionAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let access = TenantAccess::from_request_parts(parts, web).await?;
        let id = path_id(parts, "e").await;
        let execution = id.parse().map_err(|_| Problem::missing("execution", &id))?;
        Ok(Self { access, execution })
    }
}

/// The same answer for a tenant that is not there and one that is not the caller's, and after the
/// same work: a tenant that the key does not open is not looked up, so that neither the store nor
/// our memory of it can be heard in how long the answer takes.
async fn authorize(parts: &mut Parts, web: &Shared) -> Result<TenantAccess, Problem> {
    let caller = caller(parts)?;
    let id = path_id(parts, "t").await;
    let missing = || Problem::no_tenant(&id);
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
