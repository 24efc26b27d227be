//! Opens, finds and closes tabs: over a connection to the browser that is made for the purpose and
//! ended with it, so that lanes share none.

use super::Link;
use super::commands::{CloseTarget, CreateTarget, GetBrowserVersion, GetTargets};
use crate::chrome::Endpoint;
use crate::error::BrowserError;

pub(crate) struct Tabs {
    link: Link,
}

impl Tabs {
    pub(crate) async fn of(endpoint: &Endpoint) -> Result<Self, BrowserError> {
        Ok(Self { link: Link::connect(endpoint).await? })
    }

    /// The id of a new, empty tab. In a browser that nobody looks at it gets a window of its own:
    /// a tab behind another one is slowed down. In a person's window it opens behind theirs.
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

    /// Whether it is one that shows nothing.
    pub(crate) async fn is_headless(&self) -> Result<bool, BrowserError> {
        let version = self.link.run(&GetBrowserVersion {}).await?;
        Ok(version.user_agent.contains("Headless"))
    }
}
