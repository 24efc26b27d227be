//! Asks questions on chat pages in a real Chrome, over its DevTools protocol.
//!
//! [`BrowserBridge`] implements `PageDriver`, through which lanes ask. One question takes these steps:
//!
//! 1. `provider` reads the description of the page: the built-in `providers.toml` and over it the
//!    project's own. No code knows a site by name.
//! 2. `chrome` finds the tenant's browser or starts one. A keeper process holds Chrome's pipe and
//!    shares it with the other processes of the project.
//! 3. `cdp` opens a tab and a connection to it. Each lane has its own tab at each provider.
//! 4. `ask` opens the chat, types, awaits the caller's `SendGate`, sends once and waits for the answer.
//!    `page` runs the script `page.js` in the tab, which looks at the page, types and clicks. One run
//!    of that script checks the text and clicks, so the click cannot be repeated.
//!
//! Answers are untrusted text: they are returned, and never executed or followed. `page_check` serves
//! `shikiri browser check` and `login`. A program that uses this crate calls
//! [`run_keeper_if_requested`] first, because it is started again as the keeper.
//!
//! To start reading: `browser_bridge.rs`, then `ask/mod.rs`. `docs/decisions/0014-browser-bridge.md`
//! and `0018-devtools-over-a-pipe.md` explain why.

mod ask;
mod browser_bridge;
mod cdp;
mod chrome;
mod error;
mod loopback_host;
mod page;
mod page_check;
mod provider;

pub use browser_bridge::BrowserBridge;
pub use chrome::{BrowserOptions, BrowserPlan, plan_browser, run_keeper_if_requested};
pub use error::{BrowserError, ProviderFileError};
pub use page_check::{LoginPage, PageCheck, PageCheckState, SelectorMatch};
pub use provider::{DescriptionCheck, provider_file_schema};
