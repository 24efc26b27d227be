//! Questions to chat pages in a real Chrome, over its DevTools protocol. The pages are described by
//! data (`providers.toml`); what they answer is untrusted text and is only handed on.

mod ask;
mod bridge;
mod cdp;
mod check;
mod chrome;
mod error;
mod page;
mod provider;

pub use bridge::Bridge;
pub use check::{Checked, LoginPage, Match, State};
pub use chrome::{BrowserOptions, Prospect, keep_if_asked, prospect};
pub use error::{BookError, BrowserError};
pub use provider::DescriptionCheck;
