//! A cursor on a stream that first replays, then follows live.
//!
//! Nothing is skipped and nothing is sent twice: whatever wakes the cursor, it only ever delivers
//! the event after the last one. If it cannot get that one from memory it reads the store.

use std::sync::Arc;

use shikiri_model::cursor::{CursorError, Extent};
use shikiri_model::event::{Chunk, EventRef, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_store::{Store, StoreError, Subscription, Topic, Wake};

/// Read from the store at a time.
const PAGE_BYTES: usize = 256 * 1024;

pub struct Watch {
    store: Arc<dyn Store>,
    tenant: TenantId,
    stream: StreamId,
    news: Subscription,
    cursor: Seq,
    /// Delivered next, in order.
    ready: std::collections::VecDeque<Chunk>,
    /// The store may have more than `ready` and `news` say.
    look: bool,
    extent: Extent,
}

/// Events that follow what was delivered before.
#[derive(Clone, Debug)]
pub struct Delivery {
    chunk: Chunk,
    after: Seq,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum WatchError {
    /// The reader was so slow that events were removed before it came to them.
    #[error(transparent)]
    Cursor(CursorError),
    #[error(transparent)]
    Store(StoreError),
}

impl Delivery {
    pub fn events(&self) -> impl Iterator<Item = EventRef<'_>> {
        self.chunk.events_after(self.after)
    }

    pub fn last_seq(&self) -> Seq {
        self.chunk.last_seq()
    }

    /// What is left once `seq` was handled, if anything.
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
    pub(crate) async fn start(
        store: Arc<dyn Store>,
        tenant: TenantId,
        stream: StreamId,
        after: Seq,
    ) -> Result<Self, StoreError> {
        // Subscribed before the first read, so that nothing falls between the two.
        let news = store.hub().subscribe(Topic::Stream(stream.clone()));
        let page = store.read(&tenant, &stream, after, PAGE_BYTES).await?;
        let look = page.chunks.last().map_or(after, Chunk::last_seq) < page.extent.head;
        Ok(Self {
            store,
            tenant,
            stream,
            news,
            cursor: after,
            ready: page.chunks.into(),
            look,
            extent: page.extent,
        })
    }

    /// The next events; None once the stream is closed and all of it was delivered.
    pub async fn next(&mut self) -> Result<Option<Delivery>, WatchError> {
        loop {
            if let Some(delivery) = self.take_ready() {
                return Ok(Some(delivery));
            }
            if self.look {
                self.read_page().await?;
            } else if self.extent.ends_at(self.cursor) {
                return Ok(None);
            } else {
                let news = self.news.next().await;
                self.hear_all(news);
            }
        }
    }

    /// Events that can be had without waiting for anybody.
    pub fn take_ready(&mut self) -> Option<Delivery> {
        if self.ready.is_empty() && !self.look {
            let news = self.news.take();
            self.hear_all(news);
        }
        while let Some(chunk) = self.ready.pop_front() {
            if chunk.last_seq() <= self.cursor {
                continue;
            }
            let after = std::mem::replace(&mut self.cursor, chunk.last_seq());
            return Some(Delivery { chunk, after });
        }
        None
    }

    pub fn cursor(&self) -> Seq {
        self.cursor
    }

    fn hear_all(&mut self, news: Vec<Wake>) {
        for wake in news {
            self.hear(wake);
        }
    }

    fn hear(&mut self, wake: Wake) {
        let reached = self.ready.back().map_or(self.cursor, Chunk::last_seq);
        match wake {
            Wake::Chunk { chunk, closes } if !self.look && chunk.first_seq() <= reached + 1 => {
                self.extent.head = self.extent.head.max(chunk.last_seq());
                self.extent.closed |= closes;
                self.ready.push_back(chunk);
            }
            _ => self.look = true,
        }
    }

    async fn read_page(&mut self) -> Result<(), WatchError> {
        let read = self.store.read(&self.tenant, &self.stream, self.cursor, PAGE_BYTES).await;
        let page = read?;
        self.look = page.chunks.last().map_or(self.cursor, Chunk::last_seq) < page.extent.head;
        self.extent = page.extent;
        self.ready.extend(page.chunks);
        Ok(())
    }
}
