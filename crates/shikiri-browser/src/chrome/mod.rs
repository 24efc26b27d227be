//! Which browser is driven: one that runs already and was named, or a Chrome of our own per tenant.
//!
//! A profile can be open in one Chrome only, and every `shikiri` process of a project needs it. So
//! whoever comes first has a keeper start it, the others find it there, and it ends with the last of
//! them: each holds a shared lock on a file, and the keeper waits for the whole of it. A process that
//! is killed lets go like any other. The keeper alone holds the pipe by which such a Chrome is driven,
//! and shares it at a socket.

mod attach;
mod find;
mod flags;
mod keeper;
mod owner;
mod relay;
mod socket;
mod start;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

pub use keeper::keep_if_asked;
use shikiri_model::ids::TenantId;
use socket::KeeperAddress;
use tokio::sync::Mutex as AsyncMutex;

use crate::error::BrowserError;

/// Which browser, and how.
#[derive(Clone, Debug, Default)]
pub struct BrowserOptions {
    /// The project's data folder, in which profiles lie.
    pub folder: PathBuf,
    /// A running browser to use for the tenant `local`: http://127.0.0.1:9222, or ws://….
    pub url: Option<String>,
    /// That browser may be on another machine, or another user's.
    pub allow_remote: bool,
    /// The program to start otherwise [found on the PATH].
    pub chrome_bin: Option<PathBuf>,
    /// Without a window.
    pub is_headless: bool,
    /// A program that calls `keep_if_asked` [this one].
    pub keeper: Option<PathBuf>,
}

/// How a browser is reached.
#[derive(Clone, PartialEq)]
pub(crate) enum Endpoint {
    /// One that we started, at its keeper's socket.
    Keeper(KeeperAddress),
    /// One that was named: `ws://127.0.0.1:40123/devtools/browser/…`
    WebSocket(String),
}

/// A browser that this process uses.
struct Held {
    endpoint: Endpoint,
    is_headless: bool,
    /// As long as it is locked, the keeper lets the browser live. None for one that was named.
    _users: Option<File>,
}

type Place = Arc<AsyncMutex<Option<Held>>>;

pub(crate) struct Browsers {
    options: BrowserOptions,
    places: Mutex<HashMap<TenantId, Place>>,
}

impl Browsers {
    pub(crate) fn new(options: BrowserOptions) -> Self {
        Self { options, places: Mutex::default() }
    }

    /// The tenant's browser and whether it shows nothing; started if there is none.
    pub(crate) async fn find(&self, tenant: &TenantId) -> Result<(Endpoint, bool), BrowserError> {
        let place = self.place(tenant);
        let mut held = place.lock().await;
        if let Some(held) = held.as_ref() {
            return Ok((held.endpoint.clone(), held.is_headless));
        }
        let found = match &self.options.url {
            // What a person is logged in to is not for the tenants of a server.
            Some(url) if *tenant == TenantId::local() => attach::attach(url, &self.options).await?,
            _ => start::hold(&self.options, tenant).await?,
        };
        Ok({
            let found = held.insert(found);
            (found.endpoint.clone(), found.is_headless)
        })
    }

    /// The same, but nothing is started.
    pub(crate) async fn known(&self, tenant: &TenantId) -> Option<Endpoint> {
        self.place(tenant).lock().await.as_ref().map(|held| held.endpoint.clone())
    }

    /// That browser does not answer any more: the next question looks for another.
    pub(crate) async fn forget(&self, tenant: &TenantId, endpoint: &Endpoint) {
        let place = self.place(tenant);
        let mut held = place.lock().await;
        if held.as_ref().is_some_and(|held| held.endpoint == *endpoint) {
            *held = None;
        }
    }

    fn place(&self, tenant: &TenantId) -> Place {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(places.entry(tenant.clone()).or_default())
    }
}

/// What can be told about the browser without starting one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// It would be started.
    Start { program: PathBuf, is_headless: bool, is_unconfined: bool },
    /// It was named.
    Attach { url: String },
}

/// Which browser would be used.
pub fn prospect(options: &BrowserOptions) -> Result<Prospect, BrowserError> {
    if let Some(url) = &options.url {
        attach::check(url, options.allow_remote)?;
        return Ok(Prospect::Attach { url: url.clone() });
    }
    Ok(Prospect::Start {
        program: find::program(options.chrome_bin.as_deref())?,
        is_headless: options.is_headless,
        is_unconfined: flags::is_root(),
    })
}
