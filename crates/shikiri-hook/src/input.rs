//! Reads the event, but not for ever and not without end.

use std::io::Read as _;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Claude Code sends whole files in the input of a tool, not more.
const MOST_BYTES: usize = 64 * 1024 * 1024;

pub(crate) fn read(deadline: Instant) -> Result<Vec<u8>, String> {
    let mut stdin = std::io::stdin().lock();
    let mut text = Vec::with_capacity(16 * 1024);
    let mut part = [0; 64 * 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        let ready = poll(&mut [PollFd::new(&rustix::stdio::stdin(), PollFlags::IN)], Some(&left));
        match ready {
            Ok(0) => return Err("no event came on standard input".to_owned()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(format!("cannot read standard input: {error}")),
        }
        match stdin.read(&mut part) {
            Ok(0) => return Ok(text),
            Ok(count) => text.extend_from_slice(&part[..count]),
            Err(error) => return Err(format!("cannot read standard input: {error}")),
        }
        if text.len() > MOST_BYTES {
            return Err(format!("the event is larger than {} MiB", MOST_BYTES >> 20));
        }
    }
}
