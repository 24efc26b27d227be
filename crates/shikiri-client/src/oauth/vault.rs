//! What is kept of a login, and where.

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::transport::auth::{
    AuthError, CredentialRefreshGuard, CredentialStore, OAuthTokenResponse, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// Keeps secrets from one process to the next. A place is a server's address.
#[async_trait]
pub trait Vault: Send + Sync {
    /// None too if what is there cannot be read any more: then it is gone.
    async fn open(&self, place: &str) -> Result<Option<Vec<u8>>, String>;
    async fn keep(&self, place: &str, secret: &[u8]) -> Result<(), String>;
    async fn forget(&self, place: &str) -> Result<(), String>;
    /// Until the guard is dropped no other process passes here: a refresh token may be good for
    /// one use only.
    async fn alone(&self) -> Result<Box<dyn Send>, String>;
}

/// Our registration and its tokens, good with one issuer at one server only.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) credentials: StoredCredentials,
    /// As registered; one of the configuration is not kept.
    #[serde(default)]
    pub(super) client_secret: Option<String>,
    /// Granted or not.
    #[serde(default)]
    pub(super) requested: Vec<String>,
}

impl Kept {
    pub(super) fn issuer(&self) -> Option<&str> {
        self.credentials.issuer.as_deref()
    }

    fn response(&self) -> Option<&OAuthTokenResponse> {
        self.credentials.token_response.as_ref()
    }

    pub(super) fn token(&self) -> Option<String> {
        use oauth2::TokenResponse as _;
        self.response().map(|response| response.access_token().secret().clone())
    }

    pub(super) fn can_refresh(&self) -> bool {
        use oauth2::TokenResponse as _;
        self.response().is_some_and(|response| response.refresh_token().is_some())
    }
}

/// What a login adds to the tokens that come of it.
#[derive(Clone, Default)]
pub(super) struct Registration {
    pub(super) client_secret: Option<String>,
    pub(super) requested: Vec<String>,
}

/// One server's place in the vault, read once and written through.
#[derive(Clone)]
pub(super) struct Shelf {
    vault: Arc<dyn Vault>,
    place: String,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    is_read: bool,
    kept: Option<Kept>,
    registration: Registration,
}

impl Shelf {
    pub(super) fn new(vault: Arc<dyn Vault>, place: String) -> Self {
        Self { vault, place, inner: Arc::default() }
    }

    pub(super) async fn kept(&self) -> Result<Option<Kept>, String> {
        let mut inner = self.inner.lock().await;
        if !inner.is_read {
            let found = self.vault.open(&self.place).await?;
            inner.kept = found.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            if let Some(kept) = &inner.kept {
                inner.registration = Registration {
                    client_secret: kept.client_secret.clone(),
                    requested: kept.requested.clone(),
                };
            }
            inner.is_read = true;
        }
        Ok(inner.kept.clone())
    }

    /// As another process may have left it meanwhile.
    pub(super) async fn read_again(&self) -> Result<Option<Kept>, String> {
        self.inner.lock().await.is_read = false;
        self.kept().await
    }

    /// What the next tokens belong to.
    pub(super) async fn register(&self, registration: Registration) {
        self.inner.lock().await.registration = registration;
    }

    pub(super) async fn forget(&self) -> Result<(), String> {
        let mut inner = self.inner.lock().await;
        self.vault.forget(&self.place).await?;
        *inner = Inner { is_read: true, ..Inner::default() };
        Ok(())
    }
}

#[async_trait]
impl CredentialStore for Shelf {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let kept = self.kept().await.map_err(AuthError::CredentialStoreError)?;
        Ok(kept.map(|kept| kept.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let mut inner = self.inner.lock().await;
        let Registration { client_secret, requested } = inner.registration.clone();
        let kept = Kept { credentials, client_secret, requested };
        let bytes = serde_json::to_vec(&kept)
            .map_err(|error| AuthError::CredentialStoreError(error.to_string()))?;
        let keeping = self.vault.keep(&self.place, &bytes);
        keeping.await.map_err(AuthError::CredentialStoreError)?;
        inner.kept = Some(kept);
        inner.is_read = true;
        Ok(())
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.forget().await.map_err(AuthError::CredentialStoreError)
    }

    /// Held while a token is refreshed; what another process has kept meanwhile is read first.
    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let alone = self.vault.alone().await.map_err(AuthError::CredentialStoreError)?;
        self.read_again().await.map_err(AuthError::CredentialStoreError)?;
        Ok(Some(CredentialRefreshGuard::new(alone)))
    }
}
