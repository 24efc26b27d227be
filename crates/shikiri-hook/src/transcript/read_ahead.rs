//! Reads a long file ahead in a thread: copying bytes from the system's cache takes as long as
//! searching them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The most blocks that are read and not searched yet.
const BLOCKS: usize = 3;
/// Free bytes in front of each block, for the incomplete line of the block before.
pub(super) const ROOM: usize = 64 << 10;

pub(super) struct ReadAhead {
    read: Receiver<io::Result<Vec<u8>>>,
    free: Sender<Vec<u8>>,
}

impl ReadAhead {
    /// None if no thread can be started; the caller then reads itself.
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

    /// The next block after its free bytes; only free bytes at the end.
    pub(super) fn next(&self) -> io::Result<Vec<u8>> {
        // The thread has ended, so there is nothing more to read.
        self.read.recv().unwrap_or_else(|_| Ok(vec![0; ROOM]))
    }

    /// Returns a block for reuse.
    pub(super) fn recycle_block(&self, block: Vec<u8>) {
        // At the end the thread does not take it any more.
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
    // Ends when the reader is dropped.
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
