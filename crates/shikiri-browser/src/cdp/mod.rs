//! A client for Chrome's DevTools protocol: commands, connections, tabs.

mod browser_tabs;
mod cdp_connection;
pub(crate) mod commands;
mod frame_reader;
mod transport;

pub(crate) use browser_tabs::BrowserTabs;
pub(crate) use cdp_connection::CdpConnection;
pub(crate) use commands::CdpCommand;
pub(crate) use frame_reader::{CdpFrame, CdpFrameReader};
pub(crate) use transport::MAX_ANSWER;
