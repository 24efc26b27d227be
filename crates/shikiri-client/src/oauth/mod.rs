//! Logging in at servers that ask for it, by OAuth as MCP wants it: what rmcp's manager does is
//! used (finding the authorization server, PKCE, exchange, refresh); when to do what, what is kept
//! and what a person sees is decided here.
//!
//! Credentials are good with the issuer that gave them, at the server that they were given for:
//! for any other they do not exist.

mod callback;
mod flow;
#[cfg(test)]
mod flow_tests;
mod vault;
mod web;

pub use vault::Vault;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rmcp::transport::auth::{AuthError, AuthorizationManager, WWWAuthenticateParams};
use shikiri_model::host::{OAuthSpec, Reach, ServerSpec};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::authority::{Authority, Challenge};
use crate::error::ClientError;
use flow::{Found, quietly, told, unkept};
use vault::{Kept, Shelf};

/// A token that is refused so soon was never any good.
const JUST_NOW: Duration = Duration::from_secs(30);

/// Has a person look at a page.
#[async_trait]
pub trait Browser: Send + Sync {
    /// Shows the page at which one logs in for a server. Nobody is waited for.
    async fn show(&self, server: &str, page: &str) -> Result<(), String>;
}

/// What proves to one server who we are.
pub struct OAuth {
    server: String,
    url: String,
    spec: OAuthSpec,
    shelf: Shelf,
    browser: Option<Arc<dyn Browser>>,
    standing: Mutex<Standing>,
    with_person: AtomicBool,
}

#[derive(Default)]
struct Standing {
    /// Judges the token. Once it has met the authorization server, it can refresh.
    manager: Option<AuthorizationManager>,
    /// The token that this process got last, and whether a person had to help.
    gained: Option<(String, How, Instant)>,
    /// A token that has run out and could not be refreshed.
    spent: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Refreshed,
    LoggedIn,
}

impl OAuth {
    /// None for a server that is a program of ours. Without a browser nobody is asked to log in.
    pub fn new(
        spec: &ServerSpec,
        vault: Arc<dyn Vault>,
        browser: Option<Arc<dyn Browser>>,
    ) -> Option<Self> {
        let Reach::Http { url, .. } = &spec.reach else { return None };
        Some(Self {
            server: spec.name.clone(),
            url: url.clone(),
            spec: spec.oauth.clone(),
            shelf: Shelf::new(vault, spec.reach.endpoint()),
            browser,
            standing: Mutex::default(),
            with_person: AtomicBool::new(false),
        })
    }

    /// Logs in, whatever is kept. Gives the issuer's name.
    pub async fn log_in(&self) -> Result<String, ClientError> {
        let mut standing = self.standing.lock().await;
        let kept = self.shelf.read_again().await.map_err(unkept)?;
        let found = self.discover(None).await?;
        self.of_issuer(kept, &found).await?;
        let issuer = found.issuer.clone().unwrap_or_else(|| self.url.clone());
        self.ask_person(&mut standing, found, Vec::new()).await?;
        Ok(issuer)
    }

    /// Forgets what is kept. False if there was nothing.
    pub async fn log_out(&self) -> Result<bool, ClientError> {
        let mut standing = self.standing.lock().await;
        let kept = self.shelf.read_again().await.map_err(unkept)?;
        self.shelf.forget().await.map_err(unkept)?;
        *standing = Standing::default();
        Ok(kept.is_some())
    }

    /// The credentials, if they are this issuer's; others are forgotten.
    async fn of_issuer(
        &self,
        kept: Option<Kept>,
        found: &Found,
    ) -> Result<Option<Kept>, ClientError> {
        let Some(kept) = kept else { return Ok(None) };
        if kept.issuer() == found.issuer.as_deref() {
            return Ok(Some(kept));
        }
        if self.spec.client_id.is_some() {
            // A registration by hand was made with one issuer: its secret is not for another.
            return Err(ClientError::Unauthorized(format!(
                "sends us to another authorization server than before ({}): if that is right, \
                 `shikiri host logout {}` forgets the old one",
                flow::shown(found.issuer.as_deref().unwrap_or("without a name")),
                self.server
            )));
        }
        tracing::warn!(server = %self.server, "another authorization server: credentials forgotten");
        self.shelf.forget().await.map_err(unkept)?;
        Ok(None)
    }

    /// Without a person, if there is a refresh token and it is still good.
    async fn refresh(
        &self,
        standing: &mut Standing,
        kept: &Kept,
        mut found: Found,
    ) -> Result<Result<(), Found>, ClientError> {
        self.configure(&mut found.manager, kept)?;
        match quietly(found.manager.refresh_token()).await {
            Ok(_) => {
                standing.gain(&self.shelf, How::Refreshed).await;
                standing.manager = Some(found.manager);
                Ok(Ok(()))
            }
            Err(error) if flow::is_answer(&error) => Ok(Err(found)),
            Err(error) => Err(told(error)),
        }
    }

    /// More than a token allows is wanted: everything that was asked for so far, and that.
    fn wider(&self, kept: Option<&Kept>, said: Option<&str>) -> Result<Vec<String>, ClientError> {
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
                flow::shown(&scopes.join(" ")),
                self.server
            )));
        }
        scopes.extend(missing);
        Ok(scopes)
    }

    /// The token, refreshed if it is about to run out.
    async fn living(&self, standing: &mut Standing) -> Result<Option<String>, ClientError> {
        let Some(kept) = self.shelf.kept().await.map_err(unkept)? else { return Ok(None) };
        let manager = match standing.manager.take() {
            Some(manager) => manager,
            None => self.manager().await?,
        };
        let manager = standing.manager.insert(manager);
        match quietly(manager.get_access_token()).await {
            Ok(token) => return Ok(Some(token)),
            // It has to refresh, and has not met the authorization server yet.
            Err(AuthError::InternalError(_)) => {}
            Err(error) => return Err(told(error)),
        }
        let mut found = self.discover(None).await?;
        if kept.issuer() != found.issuer.as_deref() {
            return Err(told(AuthError::AuthorizationRequired));
        }
        self.configure(&mut found.manager, &kept)?;
        let manager = standing.manager.insert(found.manager);
        quietly(manager.get_access_token()).await.map(Some).map_err(told)
    }
}

impl Standing {
    async fn gain(&mut self, shelf: &Shelf, how: How) {
        let kept = shelf.kept().await.ok().flatten();
        self.gained = kept.and_then(|kept| kept.token()).map(|token| (token, how, Instant::now()));
        self.spent = None;
    }

    /// How the refused token came here, if that was a moment ago.
    fn just_gained(&self, refused: Option<&str>) -> Option<How> {
        let (token, how, at) = self.gained.as_ref()?;
        (Some(token.as_str()) == refused && at.elapsed() < JUST_NOW).then_some(*how)
    }
}

#[async_trait]
impl Authority for OAuth {
    async fn token(&self) -> Option<String> {
        let mut standing = self.standing.lock().await;
        match self.living(&mut standing).await {
            Ok(token) => token,
            Err(error) => {
                tracing::debug!(server = %self.server, %error, "no token");
                standing.spent = self.shelf.kept().await.ok().flatten().and_then(|it| it.token());
                None
            }
        }
    }

    async fn challenged(&self, challenge: Challenge<'_>) -> Result<(), ClientError> {
        let mut standing = self.standing.lock().await;
        let kept = self.shelf.read_again().await.map_err(unkept)?;
        let token = kept.as_ref().and_then(Kept::token);
        // Another request of ours, or another process, may have been faster.
        let refused = challenge.token.or(standing.spent.as_deref());
        if token.is_some() && token.as_deref() != refused {
            standing.manager = None;
            return Ok(());
        }
        let mut found = self.discover(challenge.said).await?;
        let kept = self.of_issuer(kept, &found).await?;
        if challenge.status == 403 {
            let scopes = self.wider(kept.as_ref(), challenge.said)?;
            return self.ask_person(&mut standing, found, scopes).await;
        }
        let just_gained = kept.as_ref().and_then(|_| standing.just_gained(refused));
        if just_gained == Some(How::LoggedIn) {
            let said = "refuses the token that its authorization server has just given us";
            return Err(ClientError::Unauthorized(said.to_owned()));
        }
        if let Some(kept) = kept.filter(|kept| kept.can_refresh() && just_gained.is_none()) {
            match self.refresh(&mut standing, &kept, found).await? {
                Ok(()) => return Ok(()),
                Err(again) => found = again,
            }
        }
        self.ask_person(&mut standing, found, Vec::new()).await
    }

    fn is_with_person(&self) -> bool {
        self.with_person.load(Ordering::Relaxed)
    }
}
