//! A connection's own stream: what changed, for clients of the older era.
//!
//! Every notice is written to the connection's stream first and sent from there, so it has a
//! number, can be read again, and comes whichever node noticed.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use serde_json::{Value, json};
use shikiri_app::gate::OpenStream;
use shikiri_app::{Delivery, Watch, WatchError};
use shikiri_model::connection::{Connection, Place};
use shikiri_model::event::{NewEvent, Seq};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::sse::{self, Feed};
use super::{Door, Guest, Refusal, legacy, lock, plain, problem};
use crate::fault::Fault;
use crate::listen::{Change, WatchedRuns, next_change};
use crate::message;

const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);

pub(super) struct ConnectionFeed {
    door: Arc<Door>,
    guest: Guest,
    connection: Arc<Connection>,
    slot: OpenStream,
    /// Cancelled when another stream takes this one's place.
    replaced: CancellationToken,
    watch: Watch,
    runs: WatchedRuns,
    changes: broadcast::Receiver<Change>,
    opening: Option<Bytes>,
    is_fresh: bool,
    ended: bool,
}

impl ConnectionFeed {
    /// From `after` on, or from now on. A second stream is refused, except to a client that comes
    /// back: its first one may be dead without our knowing.
    pub(super) async fn open(
        door: &Arc<Door>,
        guest: Guest,
        connection: Arc<Connection>,
        slot: OpenStream,
        after: Option<Seq>,
    ) -> Result<Self, Refusal> {
        let replaced = take_place(door, &connection, after.is_some())?;
        let app = &door.mcp.app;
        let (tenant, stream) = (&connection.tenant, connection.stream());
        let state = app.store().stream(tenant, &stream).await;
        let head = state.map_err(|error| problem(&error.into()))?.map_or(0, |s| s.extent.head);
        let from = after.unwrap_or(head);
        let watch = app.watch(tenant, stream, from).await.map_err(|_| legacy::gone())?;
        let opening = sse::priming(&connection, Place { call: 0, seq: from });
        let primes = connection.protocol.as_str() >= "2025-11-25" && after.is_none();
        Ok(Self {
            changes: door.mcp.changes(),
            opening: Some(if primes { opening.into() } else { Bytes::from_static(b":\n\n") }),
            door: Arc::clone(door),
            guest,
            connection,
            slot,
            replaced,
            watch,
            runs: WatchedRuns::default(),
            is_fresh: true,
            ended: false,
        })
    }

    /// Follows what the client is subscribed to; says so once for each that is new, because it may
    /// have changed while nobody listened.
    async fn follow_subscriptions(&mut self) {
        let connection = Arc::clone(&self.connection);
        self.runs.keep(|uri| connection.subscriptions.iter().any(|s| s == uri));
        for uri in &connection.subscriptions {
            if self.runs.is_watched(uri) {
                continue;
            }
            let mut sources = self.door.mcp.catalogue.resources.iter();
            if let Some(run) = sources.find_map(|source| source.run_of(uri)) {
                self.runs.add(&self.door.mcp.app, &connection.tenant, uri, run).await;
                self.note("notifications/resources/updated", &json!({ "uri": uri })).await;
            }
        }
    }

    async fn note(&mut self, method: &str, params: &Value) {
        let message = message::raw(message::notification(method, params));
        let Ok(event) = NewEvent::new("notice", &json!({ "message": message })) else { return };
        if let Err(error) = self.door.mcp.app.note_on_connection(&self.connection, event).await {
            tracing::debug!(%error, "a notice was not written");
        }
    }

    async fn deliver(&mut self, next: Result<Option<Delivery>, WatchError>) -> Option<Bytes> {
        let delivery = match next {
            Ok(Some(delivery)) => delivery,
            Ok(None) | Err(_) => {
                self.ended = true;
                return None;
            }
        };
        let mut frame = String::new();
        let mut changed = false;
        for event in delivery.events() {
            match event.kind {
                "notice" => {
                    let place = Place { call: 0, seq: event.seq };
                    let id = self.connection.event_id(place).to_string();
                    if let Some(text) = notice(event.data) {
                        sse::push(&mut frame, Some(&id), &text);
                    }
                }
                "changed" => changed = true,
                "ended" => self.ended = true,
                _ => {}
            }
        }
        if changed {
            self.door.forget(&self.connection.id);
            self.refresh().await;
            self.follow_subscriptions().await;
        }
        (!frame.is_empty()).then(|| frame.into())
    }

    /// Also notes that the connection is in use.
    async fn refresh(&mut self) {
        match self.door.connection(&self.guest, &self.connection.id).await {
            Ok(Some(connection)) => self.connection = connection,
            Ok(None) => self.ended = true,
            // A store that cannot answer ends nothing.
            Err(_) => {}
        }
    }
}

#[derive(serde::Deserialize)]
struct Notice<'a> {
    #[serde(borrow)]
    message: &'a serde_json::value::RawValue,
}

fn notice(data: &str) -> Option<String> {
    serde_json::from_str::<Notice<'_>>(data).ok().map(|notice| notice.message.get().to_owned())
}

impl Feed for ConnectionFeed {
    async fn next_frame(&mut self) -> Option<Bytes> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        if std::mem::take(&mut self.is_fresh) {
            self.follow_subscriptions().await;
        }
        while !self.ended {
            tokio::select! {
                biased;
                () = self.slot.over().cancelled() => return None,
                () = self.replaced.cancelled() => return None,
                next = self.watch.next() => {
                    if let Some(frame) = self.deliver(next).await {
                        return Some(frame);
                    }
                }
                change = next_change(&mut self.changes) => {
                    let change = change.unwrap_or(Change::Tools);
                    self.note(change.method(), &json!({})).await;
                }
                (uri, _) = self.runs.next() => {
                    self.note("notifications/resources/updated", &json!({ "uri": uri })).await;
                }
                () = tokio::time::sleep(KEEP_ALIVE_EVERY) => {
                    self.refresh().await;
                    return Some(Bytes::from_static(b":\n\n"));
                }
            }
        }
        None
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
