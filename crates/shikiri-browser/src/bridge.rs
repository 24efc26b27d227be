//! The bridge: every lane has, at each provider, a place of its own with a tab and a connection to
//! it. Nothing is shared between places but the browser itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use shikiri_app::lane::{
    AskError, Asked, Cause, LaneKey, PageDriver, Provider as Shown, Question, Stage, Witness,
};
use shikiri_model::ids::TenantId;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::ask::{self, Failed, Order};
use crate::cdp::{Link, Tabs};
use crate::chrome::{BrowserOptions, Browsers};
use crate::error::BrowserError;
use crate::page::Page;
use crate::provider::{Book, DescriptionCheck, Provider};

/// Puts questions to providers' pages in a Chrome.
pub struct Bridge {
    pub(crate) browsers: Browsers,
    pub(crate) book: Book,
    places: Mutex<HashMap<(LaneKey, String), Place>>,
}

/// A lane's place at a provider.
#[derive(Clone, Default)]
struct Place {
    /// Its tab, by which others see that it is taken.
    tab: Option<String>,
    seat: Arc<AsyncMutex<Seat>>,
}

/// What whoever asks there works with.
#[derive(Default)]
struct Seat {
    page: Option<Page>,
    /// The last question was answered, so that the page is as it should be. Taken away while one is
    /// asked: whoever gives up leaves it false.
    is_clean: bool,
}

impl Bridge {
    pub fn new(options: BrowserOptions) -> Self {
        let book = Book::new(&options.folder);
        Self { browsers: Browsers::new(options), book, places: Mutex::default() }
    }

    /// The project's `providers.toml` counts only as long as this says so of its text.
    #[must_use]
    pub fn with_description_check(self, check: DescriptionCheck) -> Self {
        Self { book: self.book.with_check(check), ..self }
    }

    fn provider(&self, id: &str) -> Result<Provider, Cause> {
        match self.book.find(id) {
            Ok(Some(provider)) if provider.is_enabled => Ok(provider),
            Ok(_) => Err(Cause::UnknownProvider(id.to_owned())),
            Err(error) => Err(Cause::Broken(error.to_string())),
        }
    }

    fn seat(&self, key: &(LaneKey, String)) -> Arc<AsyncMutex<Seat>> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&places.entry(key.clone()).or_default().seat)
    }

    /// Takes a tab for a place; false if another has it.
    fn take(&self, key: &(LaneKey, String), tab: &str) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken =
            places.iter().any(|(other, place)| other != key && place.tab.as_deref() == Some(tab));
        if !is_taken {
            places.entry(key.clone()).or_default().tab = Some(tab.to_owned());
        }
        !is_taken
    }

    /// A page in a tab: the one that is named if it is there, else a new one. A browser that was
    /// ended since it was last used is replaced.
    pub(crate) async fn open(
        &self,
        tenant: &TenantId,
        tab: Option<&str>,
    ) -> Result<Page, BrowserError> {
        let (endpoint, is_headless) = self.browsers.find(tenant).await?;
        let tabs = match Tabs::of(&endpoint).await {
            Ok(tabs) => tabs,
            Err(_) => {
                self.browsers.forget(tenant, &endpoint).await;
                return self.open_anew(tenant).await;
            }
        };
        if let Some(tab) = tab
            && tabs.has(tab).await?
            // One that is being closed just now is as good as none.
            && let Ok(link) = Link::attach(&endpoint, tab).await
            && let Ok(page) = Page::open(link, tab.to_owned()).await
        {
            return Ok(page);
        }
        let tab = tabs.open(is_headless).await?;
        Page::open(Link::attach(&endpoint, &tab).await?, tab).await
    }

    async fn open_anew(&self, tenant: &TenantId) -> Result<Page, BrowserError> {
        let (endpoint, is_headless) = self.browsers.find(tenant).await?;
        let tab = Tabs::of(&endpoint).await?.open(is_headless).await?;
        Page::open(Link::attach(&endpoint, &tab).await?, tab).await
    }
}

impl Bridge {
    /// Asks in a place that nobody else asks in meanwhile.
    async fn ask_at(
        &self,
        key: &(LaneKey, String),
        held: &mut Seat,
        order: &Order<'_>,
    ) -> Result<Asked, Failed> {
        let is_clean = std::mem::take(&mut held.is_clean);
        let page = match &mut held.page {
            Some(page) if page.is_open() => page,
            lost => {
                let page = self.reopen(key, order.question, lost.as_ref()).await;
                lost.insert(page.map_err(|error| {
                    Failed::Early(AskError::unsent(Cause::BrowserUnavailable(error.to_string())))
                })?)
            }
        };
        let asked = ask::ask(page, order, is_clean).await;
        held.is_clean = asked.is_ok();
        asked
    }

    /// The tab in which the question's chat was last, or another. Not one whose page crashed, which
    /// takes commands and answers none: it is closed.
    async fn reopen(
        &self,
        key: &(LaneKey, String),
        question: &Question,
        lost: Option<&Page>,
    ) -> Result<Page, BrowserError> {
        let tenant = &question.lane.tenant;
        let crashed = lost.filter(|page| page.is_crashed()).map(|page| page.tab().to_owned());
        let tab = question.tab.as_deref().filter(|tab| crashed.as_deref() != Some(tab));
        self.close_tabs(tenant, crashed.iter()).await;
        let page = self.open(tenant, tab.filter(|tab| self.take(key, tab))).await?;
        self.take(key, page.tab());
        Ok(page)
    }

    /// As far as they and the browser are there.
    async fn close_tabs(&self, tenant: &TenantId, tabs: impl ExactSizeIterator<Item = &String>) {
        if tabs.len() == 0 {
            return;
        }
        let Some(endpoint) = self.browsers.known(tenant).await else { return };
        let Ok(browser) = Tabs::of(&endpoint).await else { return };
        for tab in tabs {
            if let Err(error) = browser.close(tab).await {
                tracing::debug!(%tenant, tab, %error, "a tab could not be closed");
            }
        }
    }
}

impl Seat {
    /// There was a tab, and it is gone.
    fn is_lost(&self) -> bool {
        self.page.as_ref().is_some_and(|page| !page.is_open())
    }
}

#[async_trait]
impl PageDriver for Bridge {
    fn providers(&self) -> Vec<Shown> {
        // What is wrong in the file is told to whoever asks.
        let all = self.book.all().unwrap_or_else(|error| {
            tracing::warn!(%error, "the project's providers.toml is wrong, and not used");
            Book::built_in()
        });
        all.iter().map(Provider::shown).collect()
    }

    async fn ask(&self, question: &Question, witness: &dyn Witness) -> Result<Asked, AskError> {
        let began = Instant::now();
        witness.tell(Stage::Connecting);
        let provider = self.provider(&question.provider).map_err(AskError::unsent)?;
        let thread = match &question.url {
            Some(url) => match provider.conversation(url) {
                Some(thread) => Some(thread),
                None => return Err(AskError::unsent(Cause::ThreadGone)),
            },
            None => None,
        };
        let book = self.book.file().display().to_string();
        let order = Order {
            provider: &provider,
            question,
            thread: thread.as_deref(),
            witness,
            book: &book,
            began,
        };
        let key = (question.lane.clone(), provider.id.clone());
        let seat = self.seat(&key);
        let mut held = seat.lock().await;
        let was_lost = held.is_lost();
        match self.ask_at(&key, &mut held, &order).await {
            // Its tab was closed before anything was sent, and we learned of it only now.
            Err(Failed::Early(_)) if !was_lost && held.is_lost() => {
                self.ask_at(&key, &mut held, &order).await
            }
            asked => asked,
        }
        .map_err(|(Failed::Early(error) | Failed::Late(error))| error)
    }

    async fn close(&self, lane: &LaneKey, tabs: &BTreeMap<String, String>) {
        let ended: Vec<_> = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            let keys: Vec<_> = places.keys().filter(|(key, _)| key == lane).cloned().collect();
            keys.iter().filter_map(|key| places.remove(key)).collect()
        };
        let mut all: Vec<String> = tabs.values().cloned().collect();
        for place in ended {
            let page = place.seat.lock().await.page.take();
            all.extend(page.map(|page| page.tab().to_owned()));
        }
        all.sort_unstable();
        all.dedup();
        self.close_tabs(&lane.tenant, all.iter()).await;
    }
}
