//! Tokens for servers that require authentication.

use async_trait::async_trait;

use crate::error::ClientError;

/// A server's refusal: it requires authentication or further scopes.
#[derive(Clone, Copy)]
pub struct AuthChallenge<'a> {
    pub status: u16,
    /// The `WWW-Authenticate` header.
    pub said: Option<&'a str>,
    /// The token that was sent.
    pub token: Option<&'a str>,
}

/// Provides tokens for one server, and gets new ones.
#[async_trait]
pub trait TokenProvider: Send + Sync {
    /// The token to send now, refreshed if it is about to run out.
    async fn token(&self) -> Option<String>;

    /// Called when the server refused a request. After Ok the request is sent again with the token
    /// that `token` then returns.
    async fn handle_challenge(&self, challenge: AuthChallenge<'_>) -> Result<(), ClientError>;

    /// Whether a login by the user is awaited. That time does not count as the server's.
    fn is_awaiting_login(&self) -> bool;
}
