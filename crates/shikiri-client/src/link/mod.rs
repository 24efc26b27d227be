//! How bytes go to a server and come back. Nothing here knows what a call is.

pub(crate) mod http;
pub(crate) mod sse;
pub(crate) mod stdio;
pub(crate) mod tls;

/// A message larger than this is not read to its end.
pub(crate) const MAX_MESSAGE: usize = 16 * 1024 * 1024;
