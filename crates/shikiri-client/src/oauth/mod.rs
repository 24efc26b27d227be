//! OAuth login at servers that require it, as MCP specifies it. rmcp's manager does the protocol
//! (discovery, PKCE, exchange, refresh). This module decides when to do what, what is stored, and
//! what the user sees.
//!
//! Credentials are only used with the issuer that gave them, and at the server that they were given
//! for.

mod callback_listener;
#[cfg(test)]
mod flow_tests;
mod login_flow;
mod login_http;
mod token_store;

pub use token_store::TokenStore;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use login_flow::{AuthorizationServer, map_auth_error, storage_error, without_logging};
use rmcp::transport::auth::{AuthError, AuthorizationManager, WWWAuthenticateParams};
use shikiri_model::host::{HostTransport, OAuthSpec, ServerSpec};
use token_store::{ServerLogin, ServerTokenCache};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::ClientError;
use crate::token_provider::{AuthChallenge, TokenProvider};

/// A token that is refused this soon after it was obtained was never valid.
const JUST_NOW: Duration = Duration::from_secs(30);

/// Shows a page to the user.
#[async_trait]
pub trait LoginBrowser: Send + Sync {
    /// Shows the login page for a server. Returns without waiting for the login.
    async fn show(&self, server: &str, page: &str) -> Result<(), String>;
}

/// Provides OAuth tokens for one server.
pub struct OAuthTokenProvider {
    server: String,
    url: String,
    spec: OAuthSpec,
    token_cache: ServerTokenCache,
    browser: Option<Arc<dyn LoginBrowser>>,
    token_state: Mutex<TokenState>,
    with_person: AtomicBool,
}

#[derive(Default)]
struct TokenState {
    /// Checks the token. It can refresh the token once it knows the authorization server.
    manager: Option<AuthorizationManager>,
    /// The token that this process obtained last, and how.
    gained: Option<(String, TokenOrigin, Instant)>,
    /// A token that has expired and could not be refreshed.
    spent: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenOrigin {
    Refreshed,
    LoggedIn,
}

impl OAuthTokenProvider {
    /// None for a server that is a local program. Without a browser the user is not asked to log
    /// in.
    pub fn new(
        spec: &ServerSpec,
        token_store: Arc<dyn TokenStore>,
        browser: Option<Arc<dyn LoginBrowser>>,
    ) -> Option<Self> {
        let HostTransport::Http { url, .. } = &spec.reach else { return None };
        Some(Self {
            server: spec.name.clone(),
            url: url.clone(),
            spec: spec.oauth.clone(),
            token_cache: ServerTokenCache::new(token_store, spec.reach.endpoint()),
            browser,
            token_state: Mutex::default(),
            with_person: AtomicBool::new(false),
        })
    }

    /// Logs in, even if a login is stored. Returns the issuer's name.
    pub async fn log_in(&self) -> Result<String, ClientError> {
        let mut token_state = self.token_state.lock().await;
        let kept = self.token_cache.reload().await.map_err(storage_error)?;
        let found = self.discover(None).await?;
        self.of_issuer(kept, &found).await?;
        let issuer = found.issuer.clone().unwrap_or_else(|| self.url.clone());
        self.log_in_with_browser(&mut token_state, found, Vec::new()).await?;
        Ok(issuer)
    }

    /// Deletes the stored login. False if there was none.
    pub async fn log_out(&self) -> Result<bool, ClientError> {
        let mut token_state = self.token_state.lock().await;
        let kept = self.token_cache.reload().await.map_err(storage_error)?;
        self.token_cache.forget().await.map_err(storage_error)?;
        *token_state = TokenState::default();
        Ok(kept.is_some())
    }

    /// The credentials, if they are from this issuer. Others are deleted.
    async fn of_issuer(
        &self,
        kept: Option<ServerLogin>,
        found: &AuthorizationServer,
    ) -> Result<Option<ServerLogin>, ClientError> {
        let Some(kept) = kept else { return Ok(None) };
        if kept.issuer() == found.issuer.as_deref() {
            return Ok(Some(kept));
        }
        if self.spec.client_id.is_some() {
            // The configured client is registered with one issuer: another must not get its secret.
            return Err(ClientError::Unauthorized(format!(
                "sends us to another authorization server than before ({}): if that is right, \
                 `shikiri host logout {}` forgets the old one",
                login_flow::sanitize_text(found.issuer.as_deref().unwrap_or("without a name")),
                self.server
            )));
        }
        tracing::warn!(server = %self.server, "another authorization server: credentials forgotten");
        self.token_cache.forget().await.map_err(storage_error)?;
        Ok(None)
    }

    /// Refreshes the token. Returns the authorization server if it refuses.
    async fn refresh(
        &self,
        token_state: &mut TokenState,
        kept: &ServerLogin,
        mut found: AuthorizationServer,
    ) -> Result<Result<(), AuthorizationServer>, ClientError> {
        self.configure(&mut found.manager, kept)?;
        match without_logging(found.manager.refresh_token()).await {
            Ok(_) => {
                token_state.gain(&self.token_cache, TokenOrigin::Refreshed).await;
                token_state.manager = Some(found.manager);
                Ok(Ok(()))
            }
            Err(error) if login_flow::is_answer(&error) => Ok(Err(found)),
            Err(error) => Err(map_auth_error(error)),
        }
    }

    /// The scopes for a request that the token does not allow: all requested so far, and the
    /// missing ones.
    fn widen_scopes(
        &self,
        kept: Option<&ServerLogin>,
        said: Option<&str>,
    ) -> Result<Vec<String>, ClientError> {
        let base = reqwest::Url::parse(&self.url).ok();
        let params = base.zip(said).map(|(base, said)| WWWAuthenticateParams::parse(said, &base));
        let wanted = params.and_then(|params| params.scope).unwrap_or_default();
        let mut scopes = kept.map(|kept| kept.requested.clone()).unwrap_or_default();
        let missing: Vec<_> = wanted
            .split_whitespace()
            .filter(|scope| !scopes.iter().any(|known| known == scope))
            .map(str::to_owned)
            .collect();
        if missing.is_empty() {
            return Err(ClientError::Unauthorized(format!(
                "does not allow this with the scopes it was given ({}): `shikiri host login {}` \
                 asks for them once more",
                login_flow::sanitize_text(&scopes.join(" ")),
                self.server
            )));
        }
        scopes.extend(missing);
        Ok(scopes)
    }

    /// The token, refreshed if it is about to expire.
    async fn valid_token(
        &self,
        token_state: &mut TokenState,
    ) -> Result<Option<String>, ClientError> {
        let Some(kept) = self.token_cache.stored_login().await.map_err(storage_error)? else {
            return Ok(None);
        };
        let manager = match token_state.manager.take() {
            Some(manager) => manager,
            None => self.manager().await?,
        };
        let manager = token_state.manager.insert(manager);
        match without_logging(manager.get_access_token()).await {
            Ok(token) => return Ok(Some(token)),
            // It has to refresh the token, but does not know the authorization server yet.
            Err(AuthError::InternalError(_)) => {}
            Err(error) => return Err(map_auth_error(error)),
        }
        let mut found = self.discover(None).await?;
        if kept.issuer() != found.issuer.as_deref() {
            return Err(map_auth_error(AuthError::AuthorizationRequired));
        }
        self.configure(&mut found.manager, &kept)?;
        let manager = token_state.manager.insert(found.manager);
        without_logging(manager.get_access_token()).await.map(Some).map_err(map_auth_error)
    }
}

impl TokenState {
    async fn gain(&mut self, token_cache: &ServerTokenCache, how: TokenOrigin) {
        let kept = token_cache.stored_login().await.ok().flatten();
        self.gained = kept.and_then(|kept| kept.token()).map(|token| (token, how, Instant::now()));
        self.spent = None;
    }

    /// How the refused token was obtained, if that was a moment ago.
    fn just_gained(&self, refused: Option<&str>) -> Option<TokenOrigin> {
        let (token, how, at) = self.gained.as_ref()?;
        (Some(token.as_str()) == refused && at.elapsed() < JUST_NOW).then_some(*how)
    }
}

#[async_trait]
impl TokenProvider for OAuthTokenProvider {
    async fn token(&self) -> Option<String> {
        let mut token_state = self.token_state.lock().await;
        match self.valid_token(&mut token_state).await {
            Ok(token) => token,
            Err(error) => {
                tracing::debug!(server = %self.server, %error, "no token");
                token_state.spent =
                    self.token_cache.stored_login().await.ok().flatten().and_then(|it| it.token());
                None
            }
        }
    }

    async fn handle_challenge(&self, challenge: AuthChallenge<'_>) -> Result<(), ClientError> {
        let mut token_state = self.token_state.lock().await;
        let kept = self.token_cache.reload().await.map_err(storage_error)?;
        let token = kept.as_ref().and_then(ServerLogin::token);
        // Another request or another process may have renewed the token already.
        let refused = challenge.token.or(token_state.spent.as_deref());
        if token.is_some() && token.as_deref() != refused {
            token_state.manager = None;
            return Ok(());
        }
        let mut found = self.discover(challenge.said).await?;
        let kept = self.of_issuer(kept, &found).await?;
        if challenge.status == 403 {
            let scopes = self.widen_scopes(kept.as_ref(), challenge.said)?;
            return self.log_in_with_browser(&mut token_state, found, scopes).await;
        }
        let just_gained = kept.as_ref().and_then(|_| token_state.just_gained(refused));
        if just_gained == Some(TokenOrigin::LoggedIn) {
            let said = "refuses the token that its authorization server has just given us";
            return Err(ClientError::Unauthorized(said.to_owned()));
        }
        if let Some(kept) = kept.filter(|kept| kept.can_refresh() && just_gained.is_none()) {
            match self.refresh(&mut token_state, &kept, found).await? {
                Ok(()) => return Ok(()),
                Err(again) => found = again,
            }
        }
        self.log_in_with_browser(&mut token_state, found, Vec::new()).await
    }

    fn is_awaiting_login(&self) -> bool {
        self.with_person.load(Ordering::Relaxed)
    }
}
