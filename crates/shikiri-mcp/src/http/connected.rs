//! The stream that a connection of the older era has open besides its calls'.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use shikiri_app::AppError;
use shikiri_app::gate::OpenStream;
use shikiri_model::connection::{Connection, Place};
use shikiri_model::event::Seq;
use shikiri_model::ids::ConnectionId;
use tokio_util::sync::CancellationToken;

use super::sse::{self, Feed};
use super::{Door, Refusal, legacy, lock, plain, problem};
use crate::fault::Fault;
use crate::notices::Notices;

pub(super) struct ConnectionFeed {
    connection: Arc<Connection>,
    notices: Notices,
    slot: OpenStream,
    place: ListenersPlace,
    opening: Option<Bytes>,
}

impl ConnectionFeed {
    /// From `after` on, or from now on. A second stream is refused, except to a client that comes
    /// back: its first one may be dead without our knowing.
    pub(super) async fn open(
        door: &Arc<Door>,
        connection: Arc<Connection>,
        slot: OpenStream,
        after: Option<Seq>,
    ) -> Result<Self, Refusal> {
        let place = take_place(door, &connection, after.is_some())?;
        let notices = Notices::open(&door.mcp, Arc::clone(&connection), after).await;
        let notices = notices.map_err(|error| match error {
            AppError::NotFound { .. } | AppError::Invalid { .. } => legacy::gone(),
            error => problem(error),
        })?;
        let primes = connection.protocol.as_str() >= "2025-11-25" && after.is_none();
        let opening = if primes {
            sse::priming(&connection, Place { call: 0, seq: notices.cursor() }).into()
        } else {
            Bytes::from_static(sse::KEEP_ALIVE)
        };
        Ok(Self { connection, notices, slot, place, opening: Some(opening) })
    }
}

impl Feed for ConnectionFeed {
    async fn next_frame(&mut self) -> Option<Bytes> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        tokio::select! {
            biased;
            () = self.slot.over().cancelled() => None,
            () = self.place.replaced.cancelled() => None,
            notices = self.notices.next() => {
                let mut frame = String::new();
                for notice in notices? {
                    let place = Place { call: 0, seq: notice.seq };
                    let id = self.connection.event_id(place).to_string();
                    sse::push(&mut frame, Some(&id), &notice.text);
                }
                Some(frame.into())
            }
        }
    }
}

/// The one stream that a connection has on this node; given up when dropped, also by a request
/// that was cut before its stream began.
struct ListenersPlace {
    door: Arc<Door>,
    id: ConnectionId,
    /// Cancelled when another stream takes the place.
    replaced: CancellationToken,
}

impl Drop for ListenersPlace {
    fn drop(&mut self) {
        let mut listeners = lock(&self.door.listeners);
        // Unless another stream has taken the place.
        if !self.replaced.is_cancelled() {
            self.replaced.cancel();
            listeners.remove(&self.id);
        }
    }
}

fn take_place(
    door: &Arc<Door>,
    connection: &Connection,
    comes_back: bool,
) -> Result<ListenersPlace, Refusal> {
    let mut listeners = lock(&door.listeners);
    if let Some(first) = listeners.get(&connection.id).filter(|first| !first.is_cancelled()) {
        if !comes_back {
            let fault = Fault::request("this session has a stream already: close it first");
            return Err(plain(StatusCode::CONFLICT, &fault));
        }
        first.cancel();
    }
    let replaced = CancellationToken::new();
    let id = connection.id.clone();
    listeners.insert(id.clone(), replaced.clone());
    Ok(ListenersPlace { door: Arc::clone(door), id, replaced })
}
