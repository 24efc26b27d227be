//! A cursor on a stream that first replays, then follows live.
//!
//! No event is skipped or delivered twice: the cursor only ever delivers the event after the last
//! one. If that event is not in memory, the cursor reads the store.

use std::sync::Arc;

use shikiri_model::cursor::{CursorError, StreamExtent};
use shikiri_model::event::{Chunk, EventRef, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_store::{HubSubscription, HubTopic, HubWake, Store, StoreError};

/// Bytes that are read from the store at a time.
const PAGE_BYTES: usize = 256 * 1024;

pub struct Watch {
    store: Arc<dyn Store>,
    tenant: TenantId,
    stream: StreamId,
    wakes: HubSubscription,
    cursor: Seq,
    /// Delivered next, in order.
    ready: std::collections::VecDeque<Chunk>,
    /// Whether the store may have more than `ready` and `wakes` say.
    stale: bool,
    extent: StreamExtent,
}

/// Events that follow what was delivered before.
#[derive(Clone, Debug)]
pub struct EventBatch {
    chunk: Chunk,
    after: Seq,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum WatchError {
    /// The reader was so slow that events were removed before it read them.
    #[error(transparent)]
    Cursor(CursorError),
    #[error(transparent)]
    Store(StoreError),
}

impl EventBatch {
    pub fn events(&self) -> impl Iterator<Item = EventRef<'_>> {
        self.chunk.events_after(self.after)
    }

    pub fn last_seq(&self) -> Seq {
        self.chunk.last_seq()
    }

    /// The events after `seq`, if there are any.
    pub fn rest_after(&self, seq: Seq) -> Option<Self> {
        let after = seq.max(self.after);
        (after < self.chunk.last_seq()).then(|| Self { chunk: self.chunk.clone(), after })
    }
}

impl From<StoreError> for WatchError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cursor(cursor) => Self::Cursor(cursor),
            other => Self::Store(other),
        }
    }
}

impl Watch {
    /// Refuses a stream that does not exist, and a cursor that cannot be served.
    pub async fn start(
        store: Arc<dyn Store>,
        tenant: TenantId,
        stream: StreamId,
        after: Seq,
    ) -> Result<Self, StoreError> {
        // Subscribed before the first read, so that no event is missed in between.
        let wakes = store.hub().subscribe(HubTopic::Stream(stream.clone()));
        let page = store.read(&tenant, &stream, after, PAGE_BYTES).await?;
        let stale = page.chunks.last().map_or(after, Chunk::last_seq) < page.extent.head;
        Ok(Self {
            store,
            tenant,
            stream,
            wakes,
            cursor: after,
            ready: page.chunks.into(),
            stale,
            extent: page.extent,
        })
    }

    /// The next events; None once the stream is closed and all of it was delivered.
    pub async fn next(&mut self) -> Result<Option<EventBatch>, WatchError> {
        loop {
            if let Some(delivery) = self.take_ready() {
                return Ok(Some(delivery));
            }
            if self.stale {
                self.read_page().await?;
            } else if self.extent.is_exhausted_at(self.cursor) {
                return Ok(None);
            } else {
                let wakes = self.wakes.next().await;
                self.apply_wakes(wakes);
            }
        }
    }

    /// Events that are available without waiting.
    pub fn take_ready(&mut self) -> Option<EventBatch> {
        if self.ready.is_empty() && !self.stale {
            let wakes = self.wakes.take();
            self.apply_wakes(wakes);
        }
        while let Some(chunk) = self.ready.pop_front() {
            if chunk.last_seq() <= self.cursor {
                continue;
            }
            let after = std::mem::replace(&mut self.cursor, chunk.last_seq());
            return Some(EventBatch { chunk, after });
        }
        None
    }

    pub fn cursor(&self) -> Seq {
        self.cursor
    }

    fn apply_wakes(&mut self, wakes: Vec<HubWake>) {
        for wake in wakes {
            self.apply_wake(wake);
        }
    }

    fn apply_wake(&mut self, wake: HubWake) {
        let reached = self.ready.back().map_or(self.cursor, Chunk::last_seq);
        match wake {
            HubWake::Chunk { chunk, closes } if !self.stale && chunk.first_seq() <= reached + 1 => {
                self.extent.head = self.extent.head.max(chunk.last_seq());
                self.extent.closed |= closes;
                self.ready.push_back(chunk);
            }
            _ => self.stale = true,
        }
    }

    async fn read_page(&mut self) -> Result<(), WatchError> {
        let read = self.store.read(&self.tenant, &self.stream, self.cursor, PAGE_BYTES).await;
        let page = read?;
        self.stale = page.chunks.last().map_or(self.cursor, Chunk::last_seq) < page.extent.head;
        self.extent = page.extent;
        self.ready.extend(page.chunks);
        Ok(())
    }
}
