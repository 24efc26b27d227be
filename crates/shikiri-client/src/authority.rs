//! Who we are at a server that asks.

use async_trait::async_trait;

use crate::error::ClientError;

/// A server's "no": it wants to know who we are, or that we may do more.
#[derive(Clone, Copy)]
pub struct Challenge<'a> {
    pub status: u16,
    /// Its `WWW-Authenticate`.
    pub said: Option<&'a str>,
    /// The token that it was shown.
    pub token: Option<&'a str>,
}

/// Has tokens for one server, and gets new ones.
#[async_trait]
pub trait Authority: Send + Sync {
    /// The token to send now, refreshed if it is about to run out.
    async fn token(&self) -> Option<String>;

    /// The server refused what it was sent. After Ok the request is sent again, with what `token`
    /// then gives.
    async fn challenged(&self, challenge: Challenge<'_>) -> Result<(), ClientError>;

    /// Whether a person is being waited for. That time is not the server's.
    fn is_with_person(&self) -> bool;
}
