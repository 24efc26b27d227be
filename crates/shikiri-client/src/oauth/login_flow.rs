//! The steps of a login.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, OAuthClientConfig,
};
use shikiri_model::host::sanitize_line;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::callback_listener::CallbackListener;
use super::login_http::LoginHttpClient;
use super::token_store::{ClientRegistration, ServerLogin};
use super::{OAuthTokenProvider, TokenOrigin, TokenState};
use crate::error::ClientError;
use crate::loopback_url::is_loopback_url;

/// The length to which untrusted texts are cut.
const MAX_SHOWN: usize = 300;
/// A scope for which some servers give refresh tokens.
const OFFLINE: &str = "offline_access";

/// The authorization server of an MCP server.
pub(super) struct AuthorizationServer {
    pub(super) manager: AuthorizationManager,
    pub(super) issuer: Option<String>,
    metadata: AuthorizationMetadata,
}

/// Runs `work` without logging: rmcp's log lines hold codes and untrusted texts.
pub(super) async fn without_logging<T>(work: impl Future<Output = T>) -> T {
    Box::pin(work).with_subscriber(NoSubscriber::default()).await
}

impl OAuthTokenProvider {
    /// A manager that has not contacted the authorization server yet.
    pub(super) async fn manager(&self) -> Result<AuthorizationManager, ClientError> {
        let web = LoginHttpClient::new().map_err(ClientError::Unreachable)?;
        let made = AuthorizationManager::new_with_oauth_http_client(&*self.url, Arc::new(web));
        let mut manager = made.await.map_err(map_auth_error)?;
        manager.set_credential_store(self.token_cache.clone());
        Ok(manager)
    }

    /// Discovers the authorization server, from the server's refusal or by asking the server.
    pub(super) async fn discover(
        &self,
        said: Option<&str>,
    ) -> Result<AuthorizationServer, ClientError> {
        let mut manager = self.manager().await?;
        let resolving = manager.resolve_metadata_from_challenge(said);
        let resolution = without_logging(resolving).await.map_err(map_auth_error)?;
        if !resolution.source.is_discovered() {
            return Err(ClientError::Unauthorized(
                "wants a key and says nothing of a login: give one as the header Authorization"
                    .to_owned(),
            ));
        }
        let metadata = resolution.metadata;
        check_endpoints(&metadata)?;
        manager.set_metadata(metadata.clone());
        Ok(AuthorizationServer { manager, issuer: metadata.issuer.clone(), metadata })
    }

    /// Configures the manager as the client that the credentials were issued to.
    pub(super) fn configure(
        &self,
        manager: &mut AuthorizationManager,
        kept: &ServerLogin,
    ) -> Result<(), ClientError> {
        let client_id = &kept.credentials.client_id;
        let is_by_hand = self.spec.client_id.as_ref() == Some(client_id);
        let secret = match is_by_hand {
            true => self.spec.client_secret.clone(),
            false => kept.client_secret.clone(),
        };
        manager.configure_client(client(client_id, &self.url, secret)).map_err(map_auth_error)
    }

    /// Has the user log in, and stores the credentials. If `scopes` are given, only they are
    /// requested.
    pub(super) async fn log_in_with_browser(
        &self,
        token_state: &mut TokenState,
        found: AuthorizationServer,
        scopes: Vec<String>,
    ) -> Result<(), ClientError> {
        token_state.manager = None;
        let AuthorizationServer { mut manager, metadata, .. } = found;
        let done = self.run_login(&mut manager, &metadata, scopes).await;
        if done.is_err() {
            // Forget the registration for this login: it has no tokens.
            let _ = self.token_cache.reload().await;
        }
        done?;
        token_state.gain(&self.token_cache, TokenOrigin::LoggedIn).await;
        token_state.manager = Some(manager);
        Ok(())
    }

    async fn run_login(
        &self,
        manager: &mut AuthorizationManager,
        metadata: &AuthorizationMetadata,
        scopes: Vec<String>,
    ) -> Result<(), ClientError> {
        let Some(browser) = &self.browser else {
            return Err(ClientError::Unauthorized(format!(
                "wants you to log in: `shikiri host login {}`",
                self.server
            )));
        };
        let listener = CallbackListener::open(self.spec.callback_port)
            .await
            .map_err(ClientError::Unauthorized)?;
        let requested = self.scopes(manager, metadata, scopes).await;
        let scopes: Vec<&str> = requested.iter().map(String::as_str).collect();
        let client_secret = self.register(manager, metadata, listener.address(), &scopes).await?;
        let page = without_logging(manager.get_authorization_url(&scopes))
            .await
            .map_err(map_auth_error)?;
        let state = state_of(&page)?;
        self.token_cache.register(ClientRegistration { client_secret, requested }).await;
        let _with_person = LoginWaitGuard::new(&self.with_person);
        browser.show(&self.server, &page).await.map_err(ClientError::Unauthorized)?;
        let callback = listener.wait(&state).await;
        let callback = callback.map_err(|why| ClientError::Unauthorized(sanitize_text(&why)))?;
        let issuer = callback.issuer.as_deref();
        let exchange =
            manager.exchange_code_for_token_with_issuer(&callback.code, &callback.state, issuer);
        without_logging(exchange).await.map(drop).map_err(map_auth_error)
    }

    /// The scopes to request: the given ones, else the configured ones, else those that the server
    /// names.
    async fn scopes(
        &self,
        manager: &AuthorizationManager,
        metadata: &AuthorizationMetadata,
        given: Vec<String>,
    ) -> Vec<String> {
        let mut scopes = if given.is_empty() { self.spec.scopes.clone() } else { given };
        if scopes.is_empty() {
            return manager.select_initial_scopes(&[]).await;
        }
        let offered = metadata.scopes_supported.iter().flatten().any(|scope| scope == OFFLINE);
        if offered && !scopes.iter().any(|scope| scope == OFFLINE) {
            scopes.push(OFFLINE.to_owned());
        }
        scopes
    }

    /// Registers as a client of the authorization server. Returns the client secret to store.
    async fn register(
        &self,
        manager: &mut AuthorizationManager,
        metadata: &AuthorizationMetadata,
        address: &str,
        scopes: &[&str],
    ) -> Result<Option<String>, ClientError> {
        if let Some(id) = &self.spec.client_id {
            let config = client(id, address, self.spec.client_secret.clone());
            return manager.configure_client(config).map(|()| None).map_err(map_auth_error);
        }
        let knows_documents = metadata
            .additional_fields
            .get("client_id_metadata_document_supported")
            .is_some_and(|value| value == true);
        if let Some(url) = self.spec.client_metadata_url.as_ref().filter(|_| knows_documents) {
            let config = client(url, address, None);
            return manager.configure_client(config).map(|()| None).map_err(map_auth_error);
        }
        if metadata.registration_endpoint.is_none() {
            return Err(ClientError::Unauthorized(
                "knows only clients that were registered by hand: give an oauth.clientId in \
                 .mcp.json"
                    .to_owned(),
            ));
        }
        let registering = manager.register_client("shikiri", address, scopes);
        let config = without_logging(registering).await.map_err(map_auth_error)?;
        Ok(config.client_secret)
    }
}

fn client(id: &str, address: &str, secret: Option<String>) -> OAuthClientConfig {
    let config = OAuthClientConfig::new(id, address);
    match secret {
        Some(secret) => config.with_client_secret(secret),
        None => config,
    }
}

/// Marks, until it is dropped, that a login by the user is awaited.
struct LoginWaitGuard<'a>(&'a AtomicBool);

impl<'a> LoginWaitGuard<'a> {
    fn new(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::Relaxed);
        Self(flag)
    }
}

impl Drop for LoginWaitGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Checks that codes and tokens are sent over TLS or stay on this machine.
fn check_endpoints(metadata: &AuthorizationMetadata) -> Result<(), ClientError> {
    let endpoints = [&metadata.authorization_endpoint, &metadata.token_endpoint];
    for endpoint in endpoints.into_iter().chain(&metadata.registration_endpoint) {
        let url = Url::parse(endpoint).ok();
        let is_private = url.as_ref().is_some_and(|url| match url.scheme() {
            "https" => true,
            "http" => is_loopback_url(endpoint),
            _ => false,
        });
        if !is_private {
            return Err(ClientError::Unauthorized(format!(
                "its authorization server is not reached over https ({}): nothing is sent there",
                sanitize_text(endpoint)
            )));
        }
    }
    Ok(())
}

fn state_of(page: &str) -> Result<String, ClientError> {
    let url = Url::parse(page).ok();
    let state = url.as_ref().and_then(|url| url.query_pairs().find(|(name, _)| name == "state"));
    let state = state.map(|(_, value)| value.into_owned());
    state.ok_or_else(|| ClientError::Garbled("its authorization page has no address".to_owned()))
}

/// Whether the error is a refusal by the authorization server.
pub(super) fn is_answer(error: &AuthError) -> bool {
    match error {
        AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_) => true,
        // rmcp distinguishes an answer from a broken connection only by this text.
        AuthError::TokenRefreshFailed(why) => why.starts_with("Server returned error response"),
        _ => false,
    }
}

pub(super) fn storage_error(why: String) -> ClientError {
    ClientError::Unauthorized(format!("the login cannot be kept: {why}"))
}

/// Sanitises and cuts an untrusted text.
pub(super) fn sanitize_text(text: &str) -> String {
    sanitize_line(text).chars().take(MAX_SHOWN).collect()
}

pub(super) fn map_auth_error(error: AuthError) -> ClientError {
    let said = match error {
        AuthError::CredentialStoreError(why) => return storage_error(why),
        AuthError::TokenRefreshFailed(why) => {
            return ClientError::Unreachable(format!(
                "its authorization server: {}",
                sanitize_text(&why)
            ));
        }
        // rmcp distinguishes a broken connection from an invalid document only by this text.
        AuthError::MetadataError(why) if why.starts_with("OAuth metadata discovery failed") => {
            return ClientError::Unreachable(format!("where one logs in: {}", sanitize_text(&why)));
        }
        AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => format!(
            "its authorization server calls itself {} and should be {}: nothing was sent to it",
            sanitize_text(&received_issuer),
            sanitize_text(&expected_issuer)
        ),
        AuthError::AuthorizationServerMissingIssuer { expected_issuer } => format!(
            "its authorization server does not say that it is {}: nothing was sent to it",
            sanitize_text(&expected_issuer)
        ),
        other => format!("the login failed: {}", sanitize_text(&other.to_string())),
    };
    ClientError::Unauthorized(said)
}
