//! The DevTools protocol: connections, and the few commands that are about tabs as such.

mod link;
mod tabs;

pub(crate) use link::Link;
pub(crate) use tabs::Tabs;
