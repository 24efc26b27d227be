//! Asks providers' chat pages for lanes. Each lane has its own tab and connection at each provider;
//! lanes share only the browser.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use shikiri_lanes::{
    AskError, AskErrorCause, AskStage, LaneKey, PageAnswer, PageDriver, PageQuestion, ProviderInfo,
    SendGate,
};
use shikiri_model::ids::TenantId;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::ask::{self, PageAskError, PageAskRequest};
use crate::cdp::{BrowserTabs, CdpConnection};
use crate::chrome::{BrowserOptions, BrowserPool};
use crate::error::BrowserError;
use crate::page::BrowserPage;
use crate::provider::{DescriptionCheck, ProviderCatalog, ProviderSpec};

/// Puts questions to providers' pages in a Chrome.
pub struct BrowserBridge {
    pub(crate) browsers: BrowserPool,
    pub(crate) catalog: ProviderCatalog,
    tabs: Mutex<HashMap<(LaneKey, String), LaneTabEntry>>,
}

/// A lane's tab at a provider.
#[derive(Clone, Default)]
struct LaneTabEntry {
    /// The tab's id, so that no other lane takes it.
    tab: Option<String>,
    state: Arc<AsyncMutex<LanePageState>>,
}

/// The page of a lane's tab, locked by the question that uses it.
#[derive(Default)]
struct LanePageState {
    page: Option<BrowserPage>,
    /// Whether the last question was answered. It is false during a question, so a cancelled one
    /// leaves it false.
    is_clean: bool,
}

impl BrowserBridge {
    pub fn new(options: BrowserOptions) -> Self {
        let catalog = ProviderCatalog::new(&options.folder);
        Self { browsers: BrowserPool::new(options), catalog, tabs: Mutex::default() }
    }

    /// Uses the project's `providers.toml` only while this check accepts its text.
    #[must_use]
    pub fn with_description_check(self, check: DescriptionCheck) -> Self {
        Self { catalog: self.catalog.with_check(check), ..self }
    }

    fn provider(&self, id: &str) -> Result<ProviderSpec, AskErrorCause> {
        match self.catalog.find(id) {
            Ok(Some(provider)) if provider.is_enabled => Ok(provider),
            Ok(_) => Err(AskErrorCause::UnknownProvider(id.to_owned())),
            Err(error) => Err(AskErrorCause::Broken(error.to_string())),
        }
    }

    fn page_state(&self, key: &(LaneKey, String)) -> Arc<AsyncMutex<LanePageState>> {
        let mut entries = self.tabs.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&entries.entry(key.clone()).or_default().state)
    }

    /// Claims a tab for a lane; false if another lane has it.
    fn claim_tab(&self, key: &(LaneKey, String), tab: &str) -> bool {
        let mut entries = self.tabs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken =
            entries.iter().any(|(other, entry)| other != key && entry.tab.as_deref() == Some(tab));
        if !is_taken {
            entries.entry(key.clone()).or_default().tab = Some(tab.to_owned());
        }
        !is_taken
    }

    /// Opens a page in the named tab if it exists, else in a new tab. A browser that has ended is
    /// replaced.
    pub(crate) async fn open(
        &self,
        tenant: &TenantId,
        tab: Option<&str>,
    ) -> Result<BrowserPage, BrowserError> {
        let (endpoint, is_headless) = self.browsers.find(tenant).await?;
        let tabs = match BrowserTabs::of(&endpoint).await {
            Ok(tabs) => tabs,
            Err(_) => {
                self.browsers.forget(tenant, &endpoint).await;
                return self.open_anew(tenant).await;
            }
        };
        if let Some(tab) = tab
            && tabs.has(tab).await?
            // Attaching fails if the tab is being closed: then a new one is opened.
            && let Ok(link) = CdpConnection::attach(&endpoint, tab).await
            && let Ok(page) = BrowserPage::open(link, tab.to_owned()).await
        {
            return Ok(page);
        }
        let tab = tabs.open(is_headless).await?;
        BrowserPage::open(CdpConnection::attach(&endpoint, &tab).await?, tab).await
    }

    async fn open_anew(&self, tenant: &TenantId) -> Result<BrowserPage, BrowserError> {
        let (endpoint, is_headless) = self.browsers.find(tenant).await?;
        let tab = BrowserTabs::of(&endpoint).await?.open(is_headless).await?;
        BrowserPage::open(CdpConnection::attach(&endpoint, &tab).await?, tab).await
    }
}

impl BrowserBridge {
    /// Asks in a lane's tab, whose state the caller has locked.
    async fn ask_on_page(
        &self,
        key: &(LaneKey, String),
        state: &mut LanePageState,
        request: &PageAskRequest<'_>,
    ) -> Result<PageAnswer, PageAskError> {
        let is_clean = std::mem::take(&mut state.is_clean);
        let page = match &mut state.page {
            Some(page) if page.is_open() => page,
            lost => {
                let page = self.reopen(key, request.question, lost.as_ref()).await;
                lost.insert(page.map_err(|error| {
                    PageAskError::Early(AskError::unsent(AskErrorCause::BrowserUnavailable(
                        error.to_string(),
                    )))
                })?)
            }
        };
        let answer = ask::ask(page, request, is_clean).await;
        state.is_clean = answer.is_ok();
        answer
    }

    /// The last tab of the question's chat, or a new one. A tab whose page crashed takes commands but
    /// never answers, so it is closed.
    async fn reopen(
        &self,
        key: &(LaneKey, String),
        question: &PageQuestion,
        lost: Option<&BrowserPage>,
    ) -> Result<BrowserPage, BrowserError> {
        let tenant = &question.lane.tenant;
        let crashed = lost.filter(|page| page.is_crashed()).map(|page| page.tab().to_owned());
        let tab = question.tab.as_deref().filter(|tab| crashed.as_deref() != Some(tab));
        self.close_tabs(tenant, crashed.iter()).await;
        let page = self.open(tenant, tab.filter(|tab| self.claim_tab(key, tab))).await?;
        self.claim_tab(key, page.tab());
        Ok(page)
    }

    /// Closes tabs if they and the browser still exist.
    async fn close_tabs(&self, tenant: &TenantId, tabs: impl ExactSizeIterator<Item = &String>) {
        if tabs.len() == 0 {
            return;
        }
        let Some(endpoint) = self.browsers.running_endpoint(tenant).await else { return };
        let Ok(browser) = BrowserTabs::of(&endpoint).await else { return };
        for tab in tabs {
            if let Err(error) = browser.close(tab).await {
                tracing::debug!(%tenant, tab, %error, "a tab could not be closed");
            }
        }
    }
}

impl LanePageState {
    /// Whether the tab was closed.
    fn is_lost(&self) -> bool {
        self.page.as_ref().is_some_and(|page| !page.is_open())
    }
}

#[async_trait]
impl PageDriver for BrowserBridge {
    fn providers(&self) -> Vec<ProviderInfo> {
        // A question returns the error of the file to its caller.
        let all = self.catalog.all().unwrap_or_else(|error| {
            tracing::warn!(%error, "the project's providers.toml is wrong, and not used");
            ProviderCatalog::built_in()
        });
        all.iter().map(ProviderSpec::to_lane_provider).collect()
    }

    async fn ask(
        &self,
        question: &PageQuestion,
        gate: &dyn SendGate,
    ) -> Result<PageAnswer, AskError> {
        let began = Instant::now();
        gate.report_stage(AskStage::Connecting);
        let provider = self.provider(&question.provider).map_err(AskError::unsent)?;
        let thread = match &question.url {
            Some(url) => match provider.conversation(url) {
                Some(thread) => Some(thread),
                None => return Err(AskError::unsent(AskErrorCause::ThreadGone)),
            },
            None => None,
        };
        let provider_file = self.catalog.file().display().to_string();
        let request = PageAskRequest {
            provider: &provider,
            question,
            thread: thread.as_deref(),
            gate,
            provider_file: &provider_file,
            began,
        };
        let key = (question.lane.clone(), provider.id.clone());
        let state = self.page_state(&key);
        let mut state = state.lock().await;
        let was_lost = state.is_lost();
        match self.ask_on_page(&key, &mut state, &request).await {
            // The tab was closed before anything was sent, which only this attempt found out.
            Err(PageAskError::Early(_)) if !was_lost && state.is_lost() => {
                self.ask_on_page(&key, &mut state, &request).await
            }
            answer => answer,
        }
        .map_err(|(PageAskError::Early(error) | PageAskError::Late(error))| error)
    }

    async fn close(&self, lane: &LaneKey, tabs: &BTreeMap<String, String>) {
        let closed: Vec<_> = {
            let mut entries = self.tabs.lock().unwrap_or_else(PoisonError::into_inner);
            let keys: Vec<_> = entries.keys().filter(|(key, _)| key == lane).cloned().collect();
            keys.iter().filter_map(|key| entries.remove(key)).collect()
        };
        let mut all: Vec<String> = tabs.values().cloned().collect();
        for entry in closed {
            let page = entry.state.lock().await.page.take();
            all.extend(page.map(|page| page.tab().to_owned()));
        }
        all.sort_unstable();
        all.dedup();
        self.close_tabs(&lane.tenant, all.iter()).await;
    }
}
