//! The stored login: its content, and the interface of its store.

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::transport::auth::{
    AuthError, CredentialRefreshGuard, CredentialStore, OAuthTokenResponse, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// Stores secrets durably, keyed by the server's address.
#[async_trait]
pub trait TokenStore: Send + Sync {
    /// The secret. None also for one that can no longer be read, which is then removed.
    async fn open(&self, address: &str) -> Result<Option<Vec<u8>>, String>;
    async fn keep(&self, address: &str, secret: &[u8]) -> Result<(), String>;
    async fn forget(&self, address: &str) -> Result<(), String>;
    /// A lock across processes, held until the guard is dropped: a refresh token may be usable only
    /// once.
    async fn lock(&self) -> Result<Box<dyn Send>, String>;
}

/// Our registration and its tokens, valid with one issuer and at one server only.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ServerLogin {
    pub(super) credentials: StoredCredentials,
    /// The registered secret. A configured one is not stored.
    #[serde(default)]
    pub(super) client_secret: Option<String>,
    /// The requested scopes, granted or not.
    #[serde(default)]
    pub(super) requested: Vec<String>,
}

impl ServerLogin {
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

/// What is stored beside the tokens of a login.
#[derive(Clone, Default)]
pub(super) struct ClientRegistration {
    pub(super) client_secret: Option<String>,
    pub(super) requested: Vec<String>,
}

/// The stored login of one server: a write-through cache of the store.
#[derive(Clone)]
pub(super) struct ServerTokenCache {
    store: Arc<dyn TokenStore>,
    address: String,
    inner: Arc<Mutex<TokenCacheState>>,
}

#[derive(Default)]
struct TokenCacheState {
    is_read: bool,
    kept: Option<ServerLogin>,
    registration: ClientRegistration,
}

impl ServerTokenCache {
    pub(super) fn new(store: Arc<dyn TokenStore>, address: String) -> Self {
        Self { store, address, inner: Arc::default() }
    }

    pub(super) async fn stored_login(&self) -> Result<Option<ServerLogin>, String> {
        let mut inner = self.inner.lock().await;
        if !inner.is_read {
            let found = self.store.open(&self.address).await?;
            inner.kept = found.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            if let Some(kept) = &inner.kept {
                inner.registration = ClientRegistration {
                    client_secret: kept.client_secret.clone(),
                    requested: kept.requested.clone(),
                };
            }
            inner.is_read = true;
        }
        Ok(inner.kept.clone())
    }

    /// Reads the login again, which another process may have changed.
    pub(super) async fn reload(&self) -> Result<Option<ServerLogin>, String> {
        self.inner.lock().await.is_read = false;
        self.stored_login().await
    }

    /// Sets the registration of the next tokens.
    pub(super) async fn register(&self, registration: ClientRegistration) {
        self.inner.lock().await.registration = registration;
    }

    pub(super) async fn forget(&self) -> Result<(), String> {
        let mut inner = self.inner.lock().await;
        self.store.forget(&self.address).await?;
        *inner = TokenCacheState { is_read: true, ..TokenCacheState::default() };
        Ok(())
    }
}

#[async_trait]
impl CredentialStore for ServerTokenCache {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let kept = self.stored_login().await.map_err(AuthError::CredentialStoreError)?;
        Ok(kept.map(|kept| kept.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let mut inner = self.inner.lock().await;
        let ClientRegistration { client_secret, requested } = inner.registration.clone();
        let kept = ServerLogin { credentials, client_secret, requested };
        let bytes = serde_json::to_vec(&kept)
            .map_err(|error| AuthError::CredentialStoreError(error.to_string()))?;
        let keeping = self.store.keep(&self.address, &bytes);
        keeping.await.map_err(AuthError::CredentialStoreError)?;
        inner.kept = Some(kept);
        inner.is_read = true;
        Ok(())
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.forget().await.map_err(AuthError::CredentialStoreError)
    }

    /// Locks the store while a token is refreshed, and reads what another process stored meanwhile.
    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let alone = self.store.lock().await.map_err(AuthError::CredentialStoreError)?;
        self.reload().await.map_err(AuthError::CredentialStoreError)?;
        Ok(Some(CredentialRefreshGuard::new(alone)))
    }
}
