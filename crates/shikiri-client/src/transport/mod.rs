//! Transports: sending messages to a server and receiving them. They know nothing of calls.

pub(crate) mod http;
pub(crate) mod older_sse;
pub(crate) mod sse;
pub(crate) mod stdio;
pub(crate) mod tls;

/// The largest message that is read.
pub(crate) const MAX_MESSAGE: usize = 16 * 1024 * 1024;
