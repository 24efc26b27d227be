//! The steps of a login.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, OAuthClientConfig,
};
use shikiri_model::host::clean_line;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::callback::Door;
use super::vault::{Kept, Registration};
use super::web::Web;
use super::{How, OAuth, Standing};
use crate::error::ClientError;
use crate::place::is_here;

/// Strangers' words are repeated up to here.
const MAX_SHOWN: usize = 300;
/// A scope by which some servers give refresh tokens.
const OFFLINE: &str = "offline_access";

/// The authorization server of a server.
pub(super) struct Found {
    pub(super) manager: AuthorizationManager,
    pub(super) issuer: Option<String>,
    metadata: AuthorizationMetadata,
}

/// rmcp's log lines hold codes, and strangers' words as they came: none of them is written.
pub(super) async fn quietly<T>(work: impl Future<Output = T>) -> T {
    Box::pin(work).with_subscriber(NoSubscriber::default()).await
}

impl OAuth {
    /// One that has met nobody yet.
    pub(super) async fn manager(&self) -> Result<AuthorizationManager, ClientError> {
        let web = Web::new().map_err(ClientError::Unreachable)?;
        let made = AuthorizationManager::new_with_oauth_http_client(&*self.url, Arc::new(web));
        let mut manager = made.await.map_err(told)?;
        manager.set_credential_store(self.shelf.clone());
        Ok(manager)
    }

    /// Finds out where one logs in, from what the server said when it refused us, or by asking it.
    pub(super) async fn discover(&self, said: Option<&str>) -> Result<Found, ClientError> {
        let mut manager = self.manager().await?;
        let resolving = manager.resolve_metadata_from_challenge(said);
        let resolution = quietly(resolving).await.map_err(told)?;
        if !resolution.source.is_discovered() {
            return Err(ClientError::Unauthorized(
                "wants a key and says nothing of a login: give one as the header Authorization"
                    .to_owned(),
            ));
        }
        let metadata = resolution.metadata;
        check_endpoints(&metadata)?;
        manager.set_metadata(metadata.clone());
        Ok(Found { manager, issuer: metadata.issuer.clone(), metadata })
    }

    /// Makes the manager act as the client that the credentials were given to.
    pub(super) fn configure(
        &self,
        manager: &mut AuthorizationManager,
        kept: &Kept,
    ) -> Result<(), ClientError> {
        let client_id = &kept.credentials.client_id;
        let is_by_hand = self.spec.client_id.as_ref() == Some(client_id);
        let secret = match is_by_hand {
            true => self.spec.client_secret.clone(),
            false => kept.client_secret.clone(),
        };
        manager.configure_client(client(client_id, &self.url, secret)).map_err(told)
    }

    /// Has a person log in, and keeps what comes of it. `scopes`, if any, are all that is asked.
    pub(super) async fn ask_person(
        &self,
        standing: &mut Standing,
        found: Found,
        scopes: Vec<String>,
    ) -> Result<(), ClientError> {
        standing.manager = None;
        let Found { mut manager, metadata, .. } = found;
        let done = self.walk_through(&mut manager, &metadata, scopes).await;
        if done.is_err() {
            // What was registered for this login belongs to no tokens.
            let _ = self.shelf.read_again().await;
        }
        done?;
        standing.gain(&self.shelf, How::LoggedIn).await;
        standing.manager = Some(manager);
        Ok(())
    }

    async fn walk_through(
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
        let door = Door::open(self.spec.callback_port).await.map_err(ClientError::Unauthorized)?;
        let requested = self.scopes(manager, metadata, scopes).await;
        let scopes: Vec<&str> = requested.iter().map(String::as_str).collect();
        let client_secret = self.register(manager, metadata, door.address(), &scopes).await?;
        let page = quietly(manager.get_authorization_url(&scopes)).await.map_err(told)?;
        let state = state_of(&page)?;
        self.shelf.register(Registration { client_secret, requested }).await;
        let _with_person = WithPerson::new(&self.with_person);
        browser.show(&self.server, &page).await.map_err(ClientError::Unauthorized)?;
        let brought = door.wait(&state).await;
        let brought = brought.map_err(|why| ClientError::Unauthorized(shown(&why)))?;
        let issuer = brought.issuer.as_deref();
        let exchange =
            manager.exchange_code_for_token_with_issuer(&brought.code, &brought.state, issuer);
        quietly(exchange).await.map(drop).map_err(told)
    }

    /// What is asked for: the given, or the configured, or what the server names.
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

    /// Becomes a client of the authorization server. Gives the secret that is to be kept.
    async fn register(
        &self,
        manager: &mut AuthorizationManager,
        metadata: &AuthorizationMetadata,
        address: &str,
        scopes: &[&str],
    ) -> Result<Option<String>, ClientError> {
        if let Some(id) = &self.spec.client_id {
            let config = client(id, address, self.spec.client_secret.clone());
            return manager.configure_client(config).map(|()| None).map_err(told);
        }
        let knows_documents = metadata
            .additional_fields
            .get("client_id_metadata_document_supported")
            .is_some_and(|value| value == true);
        if let Some(url) = self.spec.client_metadata_url.as_ref().filter(|_| knows_documents) {
            let config = client(url, address, None);
            return manager.configure_client(config).map(|()| None).map_err(told);
        }
        if metadata.registration_endpoint.is_none() {
            return Err(ClientError::Unauthorized(
                "knows only clients that were registered by hand: give an oauth.clientId in \
                 .mcp.json"
                    .to_owned(),
            ));
        }
        let registering = manager.register_client("shikiri", address, scopes);
        let config = quietly(registering).await.map_err(told)?;
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

/// Says while it lives that a person is waited for.
struct WithPerson<'a>(&'a AtomicBool);

impl<'a> WithPerson<'a> {
    fn new(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::Relaxed);
        Self(flag)
    }
}

impl Drop for WithPerson<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Codes and tokens go over TLS, or stay on this machine.
fn check_endpoints(metadata: &AuthorizationMetadata) -> Result<(), ClientError> {
    let endpoints = [&metadata.authorization_endpoint, &metadata.token_endpoint];
    for endpoint in endpoints.into_iter().chain(&metadata.registration_endpoint) {
        let url = Url::parse(endpoint).ok();
        let is_private = url.as_ref().is_some_and(|url| match url.scheme() {
            "https" => true,
            "http" => is_here(endpoint),
            _ => false,
        });
        if !is_private {
            return Err(ClientError::Unauthorized(format!(
                "its authorization server is not reached over https ({}): nothing is sent there",
                shown(endpoint)
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

/// Whether the authorization server has answered, and said no.
pub(super) fn is_answer(error: &AuthError) -> bool {
    match error {
        AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_) => true,
        // The only sign by which rmcp tells an answer from a line that broke.
        AuthError::TokenRefreshFailed(why) => why.starts_with("Server returned error response"),
        _ => false,
    }
}

pub(super) fn unkept(why: String) -> ClientError {
    ClientError::Unauthorized(format!("the login cannot be kept: {why}"))
}

/// Strangers' words, cleaned and cut.
pub(super) fn shown(text: &str) -> String {
    clean_line(text).chars().take(MAX_SHOWN).collect()
}

pub(super) fn told(error: AuthError) -> ClientError {
    let said = match error {
        AuthError::CredentialStoreError(why) => return unkept(why),
        AuthError::TokenRefreshFailed(why) => {
            return ClientError::Unreachable(format!("its authorization server: {}", shown(&why)));
        }
        // The only sign by which rmcp tells a line that broke from a document that is wrong.
        AuthError::MetadataError(why) if why.starts_with("OAuth metadata discovery failed") => {
            return ClientError::Unreachable(format!("where one logs in: {}", shown(&why)));
        }
        AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => format!(
            "its authorization server calls itself {} and should be {}: nothing was sent to it",
            shown(&received_issuer),
            shown(&expected_issuer)
        ),
        AuthError::AuthorizationServerMissingIssuer { expected_issuer } => format!(
            "its authorization server does not say that it is {}: nothing was sent to it",
            shown(&expected_issuer)
        ),
        other => format!("the login failed: {}", shown(&other.to_string())),
    };
    ClientError::Unauthorized(said)
}
