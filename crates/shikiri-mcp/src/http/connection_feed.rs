//! The stream of a connection of the older era, for what belongs to none of its calls.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use shikiri_model::connection::{EventPosition, McpConnection};
use shikiri_model::event::Seq;
use shikiri_model::ids::ConnectionId;
use shikiri_runtime::AppError;
use shikiri_tenancy::gate::OpenStream;
use tokio_util::sync::CancellationToken;

use super::sse::{self, SseFeed};
use super::{HttpRefusal, McpEndpoint, legacy, lock, problem, refusal_without_id};
use crate::notification_stream::NotificationStream;
use crate::rpc_error::RpcError;

pub(super) struct ConnectionFeed {
    connection: Arc<McpConnection>,
    notices: NotificationStream,
    slot: OpenStream,
    place: ListenerSlot,
    opening: Option<Bytes>,
}

impl ConnectionFeed {
    /// From `after` on, or from now on. A second stream is refused, except to a client that comes
    /// back: its first one may be dead without our knowing.
    pub(super) async fn open(
        endpoint: &Arc<McpEndpoint>,
        connection: Arc<McpConnection>,
        slot: OpenStream,
        after: Option<Seq>,
    ) -> Result<Self, HttpRefusal> {
        let place = claim_listener_slot(endpoint, &connection, after.is_some())?;
        let notices = NotificationStream::open(&endpoint.mcp, Arc::clone(&connection), after).await;
        let notices = notices.map_err(|error| match error {
            AppError::NotFound { .. } | AppError::Invalid { .. } => legacy::expired_event_id(),
            error => problem(error),
        })?;
        let primes = connection.protocol.as_str() >= "2025-11-25" && after.is_none();
        let opening = if primes {
            sse::priming(&connection, EventPosition { call: 0, seq: notices.cursor() }).into()
        } else {
            Bytes::from_static(sse::KEEP_ALIVE)
        };
        Ok(Self { connection, notices, slot, place, opening: Some(opening) })
    }
}

impl SseFeed for ConnectionFeed {
    async fn next_frame(&mut self) -> Option<Bytes> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        tokio::select! {
            biased;
            () = self.slot.cancellation().cancelled() => None,
            () = self.place.replaced.cancelled() => None,
            notices = self.notices.next() => {
                let mut frame = String::new();
                for notice in notices? {
                    let place = EventPosition { call: 0, seq: notice.seq };
                    let id = self.connection.event_id(place).to_string();
                    sse::push(&mut frame, Some(&id), &notice.text);
                }
                Some(frame.into())
            }
        }
    }
}

/// The one stream that a connection has on this node. Dropping it frees the place, also when a
/// request is cut before its stream began.
struct ListenerSlot {
    endpoint: Arc<McpEndpoint>,
    id: ConnectionId,
    /// Cancelled when another stream takes the place.
    replaced: CancellationToken,
}

impl Drop for ListenerSlot {
    fn drop(&mut self) {
        let mut listeners = lock(&self.endpoint.listeners);
        // Unless another stream has taken the place.
        if !self.replaced.is_cancelled() {
            self.replaced.cancel();
            listeners.remove(&self.id);
        }
    }
}

fn claim_listener_slot(
    endpoint: &Arc<McpEndpoint>,
    connection: &McpConnection,
    comes_back: bool,
) -> Result<ListenerSlot, HttpRefusal> {
    let mut listeners = lock(&endpoint.listeners);
    if let Some(first) = listeners.get(&connection.id).filter(|first| !first.is_cancelled()) {
        if !comes_back {
            let fault = RpcError::request("this session has a stream already: close it first");
            return Err(refusal_without_id(StatusCode::CONFLICT, &fault));
        }
        first.cancel();
    }
    let replaced = CancellationToken::new();
    let id = connection.id.clone();
    listeners.insert(id.clone(), replaced.clone());
    Ok(ListenerSlot { endpoint: Arc::clone(endpoint), id, replaced })
}
