//! Agents' sessions as callers. They are looked up at every request: a session ends at its second,
//! and what ends it may happen on another node.

use shikiri_model::ids::{AgentSessionId, TenantId};
use shikiri_model::key::Secret;
use shikiri_model::team::AgentSession;
use shikiri_store::StoreExt;

use crate::app::App;
use crate::error::AppError;
use crate::team::TeamError;

impl App {
    /// The session that a token opened, if it lives.
    pub async fn living_session_of(
        &self,
        token: &Secret,
    ) -> Result<Option<AgentSession>, AppError> {
        let found = self.session_of(token).await.map_err(|error| match error {
            TeamError::App(error) => error,
            TeamError::Refused(refusal) => AppError::Forbidden(refusal.message),
        })?;
        self.if_living(found.map(|stored| stored.value)).await
    }

    /// The session of that id, if it lives.
    pub async fn living_session(
        &self,
        tenant: &TenantId,
        id: &AgentSessionId,
    ) -> Result<Option<AgentSession>, AppError> {
        let found = self.store.load::<AgentSession>(tenant, id.as_str()).await?;
        self.if_living(found.map(|stored| stored.value)).await
    }

    async fn if_living(
        &self,
        session: Option<AgentSession>,
    ) -> Result<Option<AgentSession>, AppError> {
        let Some(session) = session else { return Ok(None) };
        let now = self.store.now().await?;
        Ok(Some(session).filter(|session| session.is_live(now)))
    }

    /// Whether a secret still opens anything: a key that was not revoked, a session that lives.
    pub(super) async fn opens_something(&self, secret: &Secret) -> Result<bool, AppError> {
        if secret.session_tenant().is_some() {
            return Ok(self.living_session_of(secret).await?.is_some());
        }
        Ok(self.key_of(secret).await?.is_some())
    }
}
