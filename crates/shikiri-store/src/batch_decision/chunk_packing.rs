//! Packs the events that a batch appends to one stream into chunks.

use shikiri_model::event::{Chunk, ChunkBuilder, Seq};
use shikiri_model::time::Timestamp;

use crate::commit::StreamAppend;

/// The approximate size of a chunk.
const CHUNK_BYTES: usize = 256 * 1024;

pub(super) struct PendingChunks {
    pub(super) is_new: bool,
    pub(super) note: Option<String>,
    next_chunk_first: Seq,
    builder: ChunkBuilder,
    chunks: Vec<Chunk>,
}

impl PendingChunks {
    pub(super) fn starting_after(head: Seq, is_new: bool) -> Self {
        Self {
            is_new,
            note: None,
            next_chunk_first: head + 1,
            builder: ChunkBuilder::default(),
            chunks: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, at: Timestamp, append: &StreamAppend) {
        for event in &append.events {
            self.builder.push(at, event);
            if self.builder.size() >= CHUNK_BYTES {
                self.cut();
            }
        }
        if append.note.is_some() {
            self.note.clone_from(&append.note);
        }
    }

    pub(super) fn finish(mut self) -> Vec<Chunk> {
        self.cut();
        self.chunks
    }

    fn cut(&mut self) {
        let chunk = std::mem::take(&mut self.builder).finish(self.next_chunk_first);
        if let Some(chunk) = chunk {
            self.next_chunk_first = chunk.last_seq() + 1;
            self.chunks.push(chunk);
        }
    }
}
