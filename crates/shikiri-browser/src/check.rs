//! Tries the providers' pages for a person: what is found there, and whether somebody is logged in.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use shikiri_model::ids::TenantId;
use tokio::time::Instant;

use crate::bridge::Bridge;
use crate::cdp::Tabs;
use crate::error::BrowserError;
pub use crate::page::Match;
use crate::page::{Asked, Look, Page};
use crate::provider::Provider;

const WATCH: Duration = Duration::from_millis(500);
/// A login button has to be there for so long.
const LOGIN: Duration = Duration::from_millis(800);

/// How a provider's page was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A question could be typed.
    Ready,
    LoginRequired,
    /// There is no input box as described.
    PageChanged,
    /// The page does not come.
    Unreachable,
    /// Switched off in providers.toml.
    Disabled,
}

#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    pub provider: String,
    pub name: String,
    pub state: State,
    /// In words, with the next step.
    pub text: String,
    /// Where the page was in the end, without what follows its path.
    pub url: Option<String>,
    /// How often each selector matches there.
    pub selectors: BTreeMap<String, Vec<Match>>,
}

impl Checked {
    fn new(provider: &Provider, state: State, text: impl Into<String>) -> Self {
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

impl Bridge {
    /// Tries each provider's page, in a tab that is closed afterwards.
    pub async fn check(&self, tenant: &TenantId) -> Result<Vec<Checked>, BrowserError> {
        let mut all = Vec::new();
        for provider in self.book.all()? {
            if !provider.is_enabled {
                all.push(Checked::new(&provider, State::Disabled, "switched off"));
                continue;
            }
            let page = self.open(tenant, None).await?;
            let checked = self.try_page(&page, &provider).await;
            if let Some(endpoint) = self.browsers.known(tenant).await
                && let Ok(tabs) = Tabs::of(&endpoint).await
            {
                // It is empty or shows a start page: left open it harms nobody.
                let _ = tabs.close(page.tab()).await;
            }
            all.push(checked);
        }
        Ok(all)
    }

    /// Opens the page of each provider and leaves it open, for a person to log in. Gives the pages
    /// with what they are of.
    pub async fn open_for_login(&self, tenant: &TenantId) -> Result<Vec<LoginPage>, BrowserError> {
        let (_, is_headless) = self.browsers.find(tenant).await?;
        if is_headless {
            return Err(BrowserError::unavailable(
                "the project's browser runs without a window: end the other shikiri processes of \
                 this project, then try again where there is a display",
            ));
        }
        let mut pages = Vec::new();
        for provider in self.book.all()?.into_iter().filter(|provider| provider.is_enabled) {
            let page = self.open(tenant, None).await?;
            page.go(&provider.new_chat).await?;
            pages.push(LoginPage { page, provider });
        }
        Ok(pages)
    }

    async fn try_page(&self, page: &Page, provider: &Provider) -> Checked {
        let asked = Asked::new(provider, "");
        let found = match page.go(&provider.new_chat).await {
            Ok(()) => wait(page, provider, &asked).await,
            Err(error) => Err(error),
        };
        let file = self.book.file().display();
        let mut checked = match &found {
            Ok((look, State::Ready)) => {
                let text = match look.send || provider.selectors.send.is_empty() {
                    true => "the input box is there, and the way to send",
                    // Many pages show it only once something is typed.
                    false => "the input box is there",
                };
                Checked::new(provider, State::Ready, text)
            }
            Ok((_, State::LoginRequired)) => {
                let text = "it wants a login: run `shikiri browser login`";
                Checked::new(provider, State::LoginRequired, text)
            }
            Ok((look, state)) => {
                let text = match look.status {
                    400.. => format!("the page answers {}", look.status),
                    _ => format!("no input box as described; correct `selectors.input` in {file}"),
                };
                Checked::new(provider, *state, text)
            }
            Err(BrowserError::BadSelector(selector)) => {
                let text = format!("{selector} is no selector; correct it in {file}");
                Checked::new(provider, State::PageChanged, text)
            }
            Err(error) => Checked::new(provider, State::Unreachable, error.to_string()),
        };
        if let Ok((look, _)) = &found {
            checked.url = look.url.split(['?', '#']).next().map(str::to_owned);
            checked.selectors = page.survey(&asked).await.unwrap_or_default();
        }
        checked
    }
}

/// Until it is clear what the page is.
async fn wait(
    page: &Page,
    provider: &Provider,
    asked: &Asked<'_>,
) -> Result<(Look, State), BrowserError> {
    let deadline = Instant::now() + provider.times.input;
    let mut login_since = None;
    let mut look = page.look(asked).await?;
    loop {
        let now = Instant::now();
        login_since = look.login.then(|| login_since.unwrap_or(now));
        let is_wall = login_since.is_some_and(|since| now - since >= LOGIN);
        if provider.is_login(&look.url) || is_wall {
            return Ok((look, State::LoginRequired));
        }
        if look.input && look.loaded && !look.login && provider.is_home(&look.url) {
            return Ok((look, State::Ready));
        }
        if now >= deadline {
            let state = if look.status >= 400 { State::Unreachable } else { State::PageChanged };
            return Ok((look, state));
        }
        look = page.watch(asked, &look, WATCH).await?;
    }
}

/// A page at which a person may log in.
pub struct LoginPage {
    page: Page,
    provider: Provider,
}

impl LoginPage {
    pub fn name(&self) -> &str {
        &self.provider.name
    }

    /// Whether it was not closed.
    pub fn is_open(&self) -> bool {
        self.page.is_open()
    }

    /// Whether a person is logged in; `None` if the page cannot tell: it is closed, or closing.
    pub async fn is_logged_in(&self) -> Option<bool> {
        let look = self.page.look(&Asked::new(&self.provider, "")).await.ok()?;
        Some(look.input && !look.login && self.provider.is_home(&look.url))
    }
}
