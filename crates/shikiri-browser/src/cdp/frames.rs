//! Messages of the DevTools protocol on a stream of bytes: each ends with a NUL, as on Chrome's pipe.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// So much of a message that is too long is kept: enough for the id at its beginning.
const HEAD: usize = 64;

/// A message as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Whole(Bytes),
    /// Longer than is taken. It was read to its end; this is how it began.
    TooLong(Bytes),
}

/// Reads messages, none of which fills more memory than its limit.
pub(crate) struct FrameReader<R> {
    source: R,
    limit: usize,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no NUL.
    scanned: usize,
    /// The beginning of a message that is being skipped.
    skipped: Option<Bytes>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(source: R, limit: usize) -> Self {
        Self { source, limit, buffer: BytesMut::new(), scanned: 0, skipped: None }
    }

    /// None at the end. What was read of a message stays when this is dropped before it is done.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take_frame() {
                return Ok(Some(frame));
            }
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn take_frame(&mut self) -> Option<Frame> {
        let end = self.buffer[self.scanned..].iter().position(|byte| *byte == 0);
        if let Some(end) = end.map(|end| self.scanned + end) {
            let message = self.buffer.split_to(end + 1).freeze().slice(..end);
            self.scanned = 0;
            return Some(match self.skipped.take() {
                Some(head) => Frame::TooLong(head),
                None if message.len() > self.limit => Frame::TooLong(head_of(&message)),
                None => Frame::Whole(message),
            });
        }
        self.scanned = self.buffer.len();
        if self.scanned > self.limit {
            self.skipped.get_or_insert_with(|| head_of(&self.buffer));
            self.buffer = BytesMut::new();
            self.scanned = 0;
        }
        None
    }
}

fn head_of(message: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&message[..message.len().min(HEAD)])
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(bytes: &[u8], limit: usize) -> Vec<Frame> {
        let mut reader = FrameReader::new(bytes, limit);
        let mut all = Vec::new();
        while let Some(frame) = reader.next().await.unwrap() {
            all.push(frame);
        }
        all
    }

    #[tokio::test]
    async fn messages_end_with_a_nul_and_an_unfinished_one_is_none() {
        let whole = |text: &'static str| Frame::Whole(Bytes::from_static(text.as_bytes()));
        assert_eq!(read_all(b"one\0two\0\0thr", 8).await, [whole("one"), whole("two"), whole("")]);
        assert_eq!(read_all(b"", 8).await, []);
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_is_skipped_and_the_next_is_read() {
        let long = vec![b'x'; 100_000];
        let mut bytes = long.clone();
        bytes.extend_from_slice(b"\0next\0");
        let head = Bytes::from(vec![b'x'; HEAD]);
        let next = Frame::Whole(Bytes::from_static(b"next"));
        assert_eq!(read_all(&bytes, 50).await, [Frame::TooLong(head), next]);
    }
}
