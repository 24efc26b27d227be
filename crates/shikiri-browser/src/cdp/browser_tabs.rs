//! Opens, finds and closes tabs. Each use has its own connection to the browser, so lanes share
//! none.

use super::CdpConnection;
use super::commands::{CloseTarget, CreateTarget, GetBrowserVersion, GetTargets};
use crate::chrome::BrowserEndpoint;
use crate::error::BrowserError;

pub(crate) struct BrowserTabs {
    link: CdpConnection,
}

impl BrowserTabs {
    pub(crate) async fn of(endpoint: &BrowserEndpoint) -> Result<Self, BrowserError> {
        Ok(Self { link: CdpConnection::connect(endpoint).await? })
    }

    /// Opens an empty tab and returns its id. A headless browser gets a new window, because a tab
    /// behind another one is slowed down. A visible window keeps its active tab in front.
    pub(crate) async fn open(&self, is_headless: bool) -> Result<String, BrowserError> {
        let command = CreateTarget {
            url: "about:blank",
            new_window: is_headless.then_some(true),
            background: (!is_headless).then_some(true),
        };
        Ok(self.link.run(&command).await?.target_id)
    }

    /// Whether there is such a tab.
    pub(crate) async fn has(&self, tab: &str) -> Result<bool, BrowserError> {
        let found = self.link.run(&GetTargets {}).await?.target_infos;
        Ok(found.iter().any(|info| info.r#type == "page" && info.target_id == tab))
    }

    pub(crate) async fn close(&self, tab: &str) -> Result<(), BrowserError> {
        self.link.run(&CloseTarget { target_id: tab }).await.map(|_| ())
    }

    /// Whether the browser has no window.
    pub(crate) async fn is_headless(&self) -> Result<bool, BrowserError> {
        let version = self.link.run(&GetBrowserVersion {}).await?;
        Ok(version.user_agent.contains("Headless"))
    }
}
