//! Reads the event from standard input, with a deadline and a size limit.

use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The input of a tool can contain whole files, but not more.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// Most events are smaller.
const FIRST_BYTES: usize = 64 * 1024;

pub(crate) fn read(deadline: Instant) -> Result<Vec<u8>, String> {
    let stdin = rustix::stdio::stdin();
    let mut text = Vec::with_capacity(FIRST_BYTES);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        let ready = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&left));
        match ready {
            Ok(0) => return Err("no event came on standard input".to_owned()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(format!("cannot read standard input: {error}")),
        }
        if text.len() == text.capacity() {
            text.reserve(text.len());
        }
        // Reads into the spare capacity, so that unused memory is never touched.
        match rustix::io::read(stdin, spare_capacity(&mut text)) {
            Ok(0) => return Ok(text),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(format!("cannot read standard input: {error}")),
        }
        if text.len() > MOST_BYTES {
            return Err(format!("the event is larger than {} MiB", MOST_BYTES >> 20));
        }
    }
}
