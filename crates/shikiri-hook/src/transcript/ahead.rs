//! Reads a long file ahead, in a thread of its own: to get bytes out of the system's cache takes as
//! long as to search them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Blocks that are read and not yet searched.
const BLOCKS: usize = 3;
/// In front of what was read there is room for the rest of a line of the block before.
pub(super) const ROOM: usize = 64 << 10;

pub(super) struct Ahead {
    read: Receiver<io::Result<Vec<u8>>>,
    free: Sender<Vec<u8>>,
}

impl Ahead {
    /// None if there is no thread to be had; then one reads oneself.
    pub(super) fn start(file: &File, offset: u64, block: usize) -> Option<Self> {
        let file = file.try_clone().ok()?;
        let ((filled, read), (free, spare)) = (channel(), channel());
        for _ in 0..BLOCKS {
            free.send(Vec::new()).ok()?;
        }
        let work = move || read_all(&file, offset, block, &spare, &filled);
        std::thread::Builder::new().spawn(work).ok()?;
        Some(Self { read, free })
    }

    /// What comes next, after the room in front of it; nothing but the room at the end.
    pub(super) fn next(&self) -> io::Result<Vec<u8>> {
        // A thread that is gone had nothing more to read.
        self.read.recv().unwrap_or_else(|_| Ok(vec![0; ROOM]))
    }

    /// To be filled again.
    pub(super) fn give_back(&self, block: Vec<u8>) {
        // At the end there is nobody who would take it.
        let _ = self.free.send(block);
    }
}

fn read_all(
    file: &File,
    mut offset: u64,
    block: usize,
    spare: &Receiver<Vec<u8>>,
    filled: &Sender<io::Result<Vec<u8>>>,
) {
    // Until there is no more, or nobody who wants it.
    while let Ok(mut bytes) = spare.recv() {
        bytes.resize(ROOM + block, 0);
        let read = read_at(file, &mut bytes[ROOM..], offset);
        let length = *read.as_ref().unwrap_or(&0);
        bytes.truncate(ROOM + length);
        offset += length as u64;
        if filled.send(read.map(|_| bytes)).is_err() || length == 0 {
            return;
        }
    }
}

pub(super) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(bytes, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
