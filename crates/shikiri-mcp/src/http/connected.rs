//! The stream that a connection of the older era has open besides its calls'.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use shikiri_app::gate::OpenStream;
use shikiri_model::connection::{Connection, Place};
use shikiri_model::event::Seq;
use tokio_util::sync::CancellationToken;

use super::sse::{self, Feed};
use super::{Door, Refusal, legacy, lock, plain};
use crate::fault::Fault;
use crate::notices::Notices;

pub(super) struct ConnectionFeed {
    door: Arc<Door>,
    connection: Arc<Connection>,
    notices: Notices,
    slot: OpenStream,
    /// Cancelled when another stream takes this one's place.
    replaced: CancellationToken,
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
        let replaced = take_place(door, &connection, after.is_some())?;
        let notices = Notices::open(&door.mcp, Arc::clone(&connection), after).await;
        let notices = notices.map_err(|_| legacy::gone())?;
        let primes = connection.protocol.as_str() >= "2025-11-25" && after.is_none();
        let opening = if primes {
            sse::priming(&connection, Place { call: 0, seq: notices.cursor() }).into()
        } else {
            Bytes::from_static(sse::KEEP_ALIVE)
        };
        let door = Arc::clone(door);
        Ok(Self { door, connection, notices, slot, replaced, opening: Some(opening) })
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
            () = self.replaced.cancelled() => None,
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

impl Drop for ConnectionFeed {
    fn drop(&mut self) {
        // Unless another stream has taken the place.
        if !self.replaced.is_cancelled() {
            self.replaced.cancel();
            lock(&self.door.listeners).remove(&self.connection.id);
        }
    }
}

fn take_place(
    door: &Door,
    connection: &Connection,
    comes_back: bool,
) -> Result<CancellationToken, Refusal> {
    let mut listeners = lock(&door.listeners);
    if let Some(first) = listeners.get(&connection.id).filter(|first| !first.is_cancelled()) {
        if !comes_back {
            let fault = Fault::request("this session has a stream already: close it first");
            return Err(plain(StatusCode::CONFLICT, &fault));
        }
        first.cancel();
    }
    let place = CancellationToken::new();
    listeners.insert(connection.id.clone(), place.clone());
    Ok(place)
}
