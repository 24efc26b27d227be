//! A cache of streams, so that appending does not read the stream's row.

use std::collections::HashMap;

use shikiri_model::event::StreamId;

use crate::batch_decision::StreamRow;

/// A stream as of the last batch.
#[derive(Clone, Debug)]
pub(super) struct CachedStream {
    pub(super) id: i64,
    pub(super) row: StreamRow,
}

/// The most streams in the cache. When it is full, it is emptied.
const KNOWN_STREAMS: usize = 16_384;

/// Streams by name. Valid only while no other process writes: the writer empties it when another
/// connection has committed, or when one of its own transactions failed.
#[derive(Debug, Default)]
pub(super) struct StreamCache(pub(super) HashMap<StreamId, CachedStream>);

impl StreamCache {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn make_room(&mut self, coming: usize) {
        if self.0.len() + coming > KNOWN_STREAMS {
            self.0.clear();
        }
    }
}
