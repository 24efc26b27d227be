//! The SSE transport of 2024: one stream carries all answers and names the endpoint for posting
//! messages.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::http::HttpTransport;
use super::sse::SseEventStream;
use crate::error::ClientError;
use crate::token_provider::TokenProvider;

pub(crate) struct OlderSseTransport {
    stream: HttpTransport,
    /// Known once the stream is open.
    endpoint: OnceLock<HttpTransport>,
}

impl OlderSseTransport {
    pub(crate) fn new(
        url: &str,
        headers: &BTreeMap<String, String>,
        authority: Option<Arc<dyn TokenProvider>>,
        addresses: &[SocketAddr],
    ) -> Result<Self, ClientError> {
        let stream = HttpTransport::new(url, headers, authority, addresses)?;
        Ok(Self { stream, endpoint: OnceLock::new() })
    }

    /// Opens the stream, and reads it up to the event that names the endpoint.
    pub(crate) async fn open(&self) -> Result<SseEventStream, ClientError> {
        let mut events = self.stream.listen(&Vec::new(), None).await?;
        while let Some(event) = events.next().await? {
            if event.name == "endpoint" {
                let endpoint = self.stream.at_endpoint(&event.data)?;
                self.endpoint.get_or_init(|| endpoint);
                return Ok(events);
            }
        }
        Err(ClientError::Garbled("its stream ended before it named an endpoint".to_owned()))
    }

    pub(crate) async fn send(&self, message: &Value) -> Result<(), ClientError> {
        match self.endpoint.get() {
            Some(endpoint) => endpoint.post_one_way(message).await,
            None => Err(ClientError::Unreachable("its stream is not open".to_owned())),
        }
    }
}
