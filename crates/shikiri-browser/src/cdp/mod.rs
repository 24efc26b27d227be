//! The DevTools protocol: commands, messages, connections, and what is done with tabs as such.

pub(crate) mod commands;
mod frames;
mod link;
mod tabs;
mod transport;

pub(crate) use commands::CdpCommand;
pub(crate) use frames::{Frame, FrameReader};
pub(crate) use link::Link;
pub(crate) use tabs::Tabs;
pub(crate) use transport::MAX_ANSWER;
