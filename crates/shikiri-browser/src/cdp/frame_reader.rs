//! Reads DevTools messages from a byte stream. Each ends with a NUL, as on Chrome's pipe.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes that are kept of an oversized message: enough for the id at its start.
const HEAD: usize = 64;

/// A message as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CdpFrame {
    Whole(Bytes),
    /// The start of an oversized message, whose rest was skipped.
    TooLong(Bytes),
}

/// Reads messages without buffering more than the limit for each.
pub(crate) struct CdpFrameReader<R> {
    source: R,
    limit: usize,
    buffer: BytesMut,
    /// Bytes of the buffer that hold no NUL.
    scanned: usize,
    /// The start of the oversized message that is being skipped.
    skipped: Option<Bytes>,
}

impl<R: AsyncRead + Unpin> CdpFrameReader<R> {
    pub(crate) fn new(source: R, limit: usize) -> Self {
        Self { source, limit, buffer: BytesMut::new(), scanned: 0, skipped: None }
    }

    /// The next message; `None` at the end of the stream. Cancelling loses no bytes.
    pub(crate) async fn next(&mut self) -> io::Result<Option<CdpFrame>> {
        loop {
            if let Some(frame) = self.take_frame() {
                return Ok(Some(frame));
            }
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn take_frame(&mut self) -> Option<CdpFrame> {
        let end = self.buffer[self.scanned..].iter().position(|byte| *byte == 0);
        if let Some(end) = end.map(|end| self.scanned + end) {
            let message = self.buffer.split_to(end + 1).freeze().slice(..end);
            self.scanned = 0;
            return Some(match self.skipped.take() {
                Some(head) => CdpFrame::TooLong(head),
                None if message.len() > self.limit => CdpFrame::TooLong(head_of(&message)),
                None => CdpFrame::Whole(message),
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

    async fn read_all(bytes: &[u8], limit: usize) -> Vec<CdpFrame> {
        let mut reader = CdpFrameReader::new(bytes, limit);
        let mut all = Vec::new();
        while let Some(frame) = reader.next().await.unwrap() {
            all.push(frame);
        }
        all
    }

    #[tokio::test]
    async fn messages_end_with_a_nul_and_an_unfinished_one_is_none() {
        let whole = |text: &'static str| CdpFrame::Whole(Bytes::from_static(text.as_bytes()));
        assert_eq!(read_all(b"one\0two\0\0thr", 8).await, [whole("one"), whole("two"), whole("")]);
        assert_eq!(read_all(b"", 8).await, []);
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_is_skipped_and_the_next_is_read() {
        let long = vec![b'x'; 100_000];
        let mut bytes = long.clone();
        bytes.extend_from_slice(b"\0next\0");
        let head = Bytes::from(vec![b'x'; HEAD]);
        let next = CdpFrame::Whole(Bytes::from_static(b"next"));
        assert_eq!(read_all(&bytes, 50).await, [CdpFrame::TooLong(head), next]);
    }
}
