//! Agents' sessions as callers. They are looked up at every request, because a session ends at a
//! fixed time and another node may end it.

use shikiri_model::ids::{AgentSessionId, TenantId};
use shikiri_model::key::SecretToken;
use shikiri_model::record::{Document as _, StoredDocument};
use shikiri_model::team::AgentSession;
use shikiri_runtime::AppError;
use shikiri_store::{StoreExt, store};

use crate::Tenancy;

impl Tenancy {
    /// The session that a token opened, if it is live.
    pub async fn live_session_for_token(
        &self,
        token: &SecretToken,
    ) -> Result<Option<AgentSession>, AppError> {
        let found = self.session_of(token).await?;
        self.filter_live(found.map(|stored| stored.value)).await
    }

    /// The session of that id, if it is live.
    pub async fn live_session(
        &self,
        tenant: &TenantId,
        id: &AgentSessionId,
    ) -> Result<Option<AgentSession>, AppError> {
        let found = self.runtime.store().load::<AgentSession>(tenant, id.as_str()).await?;
        self.filter_live(found.map(|stored| stored.value)).await
    }

    async fn filter_live(
        &self,
        session: Option<AgentSession>,
    ) -> Result<Option<AgentSession>, AppError> {
        let Some(session) = session else { return Ok(None) };
        let now = self.runtime.store().now().await?;
        Ok(Some(session).filter(|session| session.is_live(now)))
    }

    /// Whether a secret is valid: a key that was not revoked, or the token of a live session.
    pub(crate) async fn is_valid_secret(&self, secret: &SecretToken) -> Result<bool, AppError> {
        if secret.session_tenant().is_some() {
            return Ok(self.live_session_for_token(secret).await?.is_some());
        }
        Ok(self.key_of(secret).await?.is_some())
    }

    /// The session that a token opened, live or ended.
    pub async fn session_of(
        &self,
        token: &SecretToken,
    ) -> Result<Option<StoredDocument<AgentSession>>, AppError> {
        let Some(tenant) = token.session_tenant() else { return Ok(None) };
        let hash = token.hash();
        let found = self.runtime.store().find(AgentSession::KIND, &tenant, hash.as_str()).await?;
        let session = found.map(|found| store::decode::<AgentSession>(&found)).transpose()?;
        Ok(session.filter(|session| session.value.hash == hash))
    }
}
