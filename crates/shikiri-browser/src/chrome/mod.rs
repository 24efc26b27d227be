//! Chooses, starts and shares browsers: a running one from the settings, or one Chrome per tenant.
//!
//! A profile can be open in one Chrome only, and every `shikiri` process of a project needs it. The
//! first process starts a keeper, which starts Chrome; the others connect to the keeper's socket. Each
//! process holds a shared lock on a file, and the keeper ends Chrome when it gets the exclusive lock.
//! A killed process releases its lock, too.

mod attach_browser;
mod browser_keeper;
mod chrome_flags;
mod find_chrome;
mod keeper_socket;
mod port_owner;
mod relay;
mod start_browser;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

pub use browser_keeper::run_keeper_if_requested;
use keeper_socket::KeeperAddress;
use shikiri_model::ids::TenantId;
use tokio::sync::Mutex as AsyncMutex;

use crate::error::BrowserError;

/// Settings of the browser.
#[derive(Clone, Debug, Default)]
pub struct BrowserOptions {
    /// The project's data folder, which holds the profiles.
    pub folder: PathBuf,
    /// A running browser to use for the tenant `local`: http://127.0.0.1:9222, or ws://….
    pub url: Option<String>,
    /// Allows `url` to name another machine, or a browser of another user.
    pub allow_remote: bool,
    /// The Chrome to start without a `url`; by default the first one on the PATH.
    pub chrome_bin: Option<PathBuf>,
    /// Whether the browser runs without a window.
    pub is_headless: bool,
    /// A program that calls `run_keeper_if_requested`; by default this one.
    pub keeper: Option<PathBuf>,
}

/// The address of a browser.
#[derive(Clone, PartialEq)]
pub(crate) enum BrowserEndpoint {
    /// A browser with a keeper.
    Keeper(KeeperAddress),
    /// A browser from the settings: `ws://127.0.0.1:40123/devtools/browser/…`
    WebSocket(String),
}

/// A browser that this process uses.
struct BrowserHandle {
    endpoint: BrowserEndpoint,
    is_headless: bool,
    /// The lock that keeps the browser alive; `None` for one from the settings.
    _users: Option<File>,
}

type BrowserSlot = Arc<AsyncMutex<Option<BrowserHandle>>>;

pub(crate) struct BrowserPool {
    options: BrowserOptions,
    slots: Mutex<HashMap<TenantId, BrowserSlot>>,
}

impl BrowserPool {
    pub(crate) fn new(options: BrowserOptions) -> Self {
        Self { options, slots: Mutex::default() }
    }

    /// The tenant's browser and whether it is headless. Starts it if necessary.
    pub(crate) async fn find(
        &self,
        tenant: &TenantId,
    ) -> Result<(BrowserEndpoint, bool), BrowserError> {
        let slot = self.slot(tenant);
        let mut slot = slot.lock().await;
        if let Some(browser) = slot.as_ref() {
            return Ok((browser.endpoint.clone(), browser.is_headless));
        }
        let found = match &self.options.url {
            // A person's own browser is not for other tenants.
            Some(url) if *tenant == TenantId::local() => {
                attach_browser::attach(url, &self.options).await?
            }
            _ => start_browser::acquire_browser(&self.options, tenant).await?,
        };
        let browser = slot.insert(found);
        Ok((browser.endpoint.clone(), browser.is_headless))
    }

    /// The tenant's browser if it runs.
    pub(crate) async fn running_endpoint(&self, tenant: &TenantId) -> Option<BrowserEndpoint> {
        self.slot(tenant).lock().await.as_ref().map(|browser| browser.endpoint.clone())
    }

    /// Drops a browser that no longer answers; the next question starts another.
    pub(crate) async fn forget(&self, tenant: &TenantId, endpoint: &BrowserEndpoint) {
        let slot = self.slot(tenant);
        let mut slot = slot.lock().await;
        if slot.as_ref().is_some_and(|browser| browser.endpoint == *endpoint) {
            *slot = None;
        }
    }

    fn slot(&self, tenant: &TenantId) -> BrowserSlot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(tenant.clone()).or_default())
    }
}

/// The browser that the settings select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrowserPlan {
    /// A Chrome is started.
    Start { program: PathBuf, is_headless: bool, is_unconfined: bool },
    /// A running browser is used.
    Attach { url: String },
}

/// Which browser the options select. Starts none.
pub fn plan_browser(options: &BrowserOptions) -> Result<BrowserPlan, BrowserError> {
    if let Some(url) = &options.url {
        attach_browser::check(url, options.allow_remote)?;
        return Ok(BrowserPlan::Attach { url: url.clone() });
    }
    Ok(BrowserPlan::Start {
        program: find_chrome::program(options.chrome_bin.as_deref())?,
        is_headless: options.is_headless,
        is_unconfined: chrome_flags::is_root(),
    })
}
