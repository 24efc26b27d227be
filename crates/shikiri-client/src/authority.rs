//! Who we are at a server that asks.

use async_trait::async_trait;

use crate::error::ClientError;

/// Has tokens for one server, and gets new ones.
#[async_trait]
pub trait Authority: Send + Sync {
    /// The token to send now, refreshed if it is about to run out.
    async fn token(&self) -> Option<String>;

    /// The server refused what it was sent. `challenge` is its `WWW-Authenticate`. After Ok the
    /// request is sent again, with what `token` then gives.
    async fn challenged(&self, status: u16, challenge: Option<&str>) -> Result<(), ClientError>;
}
