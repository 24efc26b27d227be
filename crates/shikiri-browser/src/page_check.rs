//! Checks the providers' pages: which selectors match, and whether a person is logged in.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use shikiri_model::ids::TenantId;
use tokio::time::Instant;

use crate::browser_bridge::BrowserBridge;
use crate::cdp::BrowserTabs;
use crate::error::BrowserError;
pub use crate::page::SelectorMatch;
use crate::page::{BrowserPage, PageProbe, PageSnapshot};
use crate::provider::ProviderSpec;

const WATCH: Duration = Duration::from_millis(500);
/// A login button counts after this time.
const LOGIN: Duration = Duration::from_millis(800);

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PageCheckState {
    /// A question can be typed.
    Ready,
    LoginRequired,
    /// No input box matches the description.
    PageChanged,
    /// The page does not load.
    Unreachable,
    /// Switched off in providers.toml.
    Disabled,
}

#[derive(Clone, Debug, Serialize)]
pub struct PageCheck {
    pub provider: String,
    pub name: String,
    pub state: PageCheckState,
    /// A sentence with the next step.
    pub text: String,
    /// The final address of the page without its query.
    pub url: Option<String>,
    /// The matches of each selector.
    pub selectors: BTreeMap<String, Vec<SelectorMatch>>,
}

impl PageCheck {
    fn new(provider: &ProviderSpec, state: PageCheckState, text: impl Into<String>) -> Self {
        Self {
            provider: provider.id.clone(),
            name: provider.name.clone(),
            state,
            text: text.into(),
            url: None,
            selectors: BTreeMap::new(),
        }
    }
}

impl BrowserBridge {
    /// Checks each provider's page in a temporary tab.
    pub async fn check(&self, tenant: &TenantId) -> Result<Vec<PageCheck>, BrowserError> {
        let mut all = Vec::new();
        for provider in self.catalog.all()? {
            if !provider.is_enabled {
                all.push(PageCheck::new(&provider, PageCheckState::Disabled, "switched off"));
                continue;
            }
            let page = self.open(tenant, None).await?;
            let checked = self.try_page(&page, &provider).await;
            if let Some(endpoint) = self.browsers.running_endpoint(tenant).await
                && let Ok(tabs) = BrowserTabs::of(&endpoint).await
            {
                // A tab that stays open is harmless.
                let _ = tabs.close(page.tab()).await;
            }
            all.push(checked);
        }
        Ok(all)
    }

    /// Opens the page of each enabled provider, for a person to log in.
    pub async fn open_for_login(&self, tenant: &TenantId) -> Result<Vec<LoginPage>, BrowserError> {
        let (_, is_headless) = self.browsers.find(tenant).await?;
        if is_headless {
            return Err(BrowserError::unavailable(
                "the project's browser runs without a window: end the other shikiri processes of \
                 this project, then try again where there is a display",
            ));
        }
        let mut pages = Vec::new();
        for provider in self.catalog.all()?.into_iter().filter(|provider| provider.is_enabled) {
            let page = self.open(tenant, None).await?;
            page.go_to(&provider.new_chat).await?;
            pages.push(LoginPage { page, provider });
        }
        Ok(pages)
    }

    async fn try_page(&self, page: &BrowserPage, provider: &ProviderSpec) -> PageCheck {
        let probe = PageProbe::new(provider, "");
        let found = match page.go_to(&provider.new_chat).await {
            Ok(()) => wait(page, provider, &probe).await,
            Err(error) => Err(error),
        };
        let file = self.catalog.file().display();
        let mut checked = match &found {
            Ok((snapshot, PageCheckState::Ready)) => {
                let text = match snapshot.send || provider.selectors.send.is_empty() {
                    true => "the input box is there, and the way to send",
                    // Many pages show it only once something is typed.
                    false => "the input box is there",
                };
                PageCheck::new(provider, PageCheckState::Ready, text)
            }
            Ok((_, PageCheckState::LoginRequired)) => {
                let text = "it wants a login: run `shikiri browser login`";
                PageCheck::new(provider, PageCheckState::LoginRequired, text)
            }
            Ok((snapshot, state)) => {
                let text = match snapshot.status {
                    400.. => format!("the page answers {}", snapshot.status),
                    _ => format!("no input box as described; correct `selectors.input` in {file}"),
                };
                PageCheck::new(provider, *state, text)
            }
            Err(BrowserError::BadSelector(selector)) => {
                let text = format!("{selector} is no selector; correct it in {file}");
                PageCheck::new(provider, PageCheckState::PageChanged, text)
            }
            Err(error) => PageCheck::new(provider, PageCheckState::Unreachable, error.to_string()),
        };
        if let Ok((snapshot, _)) = &found {
            checked.url = snapshot.url.split(['?', '#']).next().map(str::to_owned);
            checked.selectors = page.survey(&probe).await.unwrap_or_default();
        }
        checked
    }
}

/// Waits until the state of the page is clear.
async fn wait(
    page: &BrowserPage,
    provider: &ProviderSpec,
    probe: &PageProbe<'_>,
) -> Result<(PageSnapshot, PageCheckState), BrowserError> {
    let deadline = Instant::now() + provider.times.input;
    let mut login_since = None;
    let mut snapshot = page.take_snapshot(probe).await?;
    loop {
        let now = Instant::now();
        login_since = snapshot.login.then(|| login_since.unwrap_or(now));
        let is_wall = login_since.is_some_and(|since| now - since >= LOGIN);
        if provider.is_login(&snapshot.url) || is_wall {
            return Ok((snapshot, PageCheckState::LoginRequired));
        }
        if snapshot.input && snapshot.loaded && !snapshot.login && provider.is_home(&snapshot.url) {
            return Ok((snapshot, PageCheckState::Ready));
        }
        if now >= deadline {
            let state = if snapshot.status >= 400 {
                PageCheckState::Unreachable
            } else {
                PageCheckState::PageChanged
            };
            return Ok((snapshot, state));
        }
        snapshot = page.watch(probe, &snapshot, WATCH).await?;
    }
}

/// A page for a person to log in.
pub struct LoginPage {
    page: BrowserPage,
    provider: ProviderSpec,
}

impl LoginPage {
    pub fn name(&self) -> &str {
        &self.provider.name
    }

    /// Whether the page was not closed.
    pub fn is_open(&self) -> bool {
        self.page.is_open()
    }

    /// Whether a person is logged in; `None` if the page cannot tell: it is closed, or closing.
    pub async fn is_logged_in(&self) -> Option<bool> {
        let snapshot = self.page.take_snapshot(&PageProbe::new(&self.provider, "")).await.ok()?;
        Some(snapshot.input && !snapshot.login && self.provider.is_home(&snapshot.url))
    }
}
