//! Streams that the writer remembers, so that appending to one needs no look at its row.

use std::collections::HashMap;

use shikiri_model::event::StreamId;

use crate::settle::StreamRow;

/// A stream as the writer remembers it between batches.
#[derive(Clone, Debug)]
pub(super) struct KnownStream {
    pub(super) id: i64,
    pub(super) row: StreamRow,
}

/// Streams that the writer remembers; beyond this it forgets them all and starts again.
const KNOWN_STREAMS: usize = 16_384;

/// Streams by name. Good only while nobody else writes: the writer empties it when another
/// connection has committed, or when a transaction of its own did not.
#[derive(Debug, Default)]
pub(super) struct KnownStreams(pub(super) HashMap<StreamId, KnownStream>);

impl KnownStreams {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn make_room(&mut self, coming: usize) {
        if self.0.len() + coming > KNOWN_STREAMS {
            self.0.clear();
        }
    }
}
