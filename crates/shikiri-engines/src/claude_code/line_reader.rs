//! Reads lines of a limited length, so that an endless line cannot fill the memory.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// The longest accepted line.
pub(super) const LONGEST: usize = 16 * 1024 * 1024;
/// Bytes per read.
const BUFFER: usize = 64 * 1024;

pub(super) struct LineReader<R> {
    reader: BufReader<R>,
    /// The line so far. It is kept here, so that cancelling a read loses nothing.
    line: Vec<u8>,
    is_whole: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error("it wrote a line of more than 16 MiB, which starts with {0:?}")]
    TooLong(String),
    #[error("its output cannot be read: {0}")]
    Io(#[from] std::io::Error),
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(reader: R) -> Self {
        let reader = BufReader::with_capacity(BUFFER, reader);
        Self { reader, line: Vec::new(), is_whole: false }
    }

    /// The next line without its line break; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>, LineError> {
        if std::mem::take(&mut self.is_whole) {
            self.line.clear();
        }
        loop {
            let part = self.reader.fill_buf().await?;
            if part.is_empty() {
                self.is_whole = true;
                return Ok((!self.line.is_empty()).then_some(&self.line));
            }
            let end = part.iter().position(|byte| *byte == b'\n');
            self.line.extend_from_slice(&part[..end.unwrap_or(part.len())]);
            let read = end.map_or(part.len(), |end| end + 1);
            self.reader.consume(read);
            if self.line.len() > LONGEST {
                return Err(LineError::TooLong(start(&self.line, 80)));
            }
            if end.is_some() {
                self.is_whole = true;
                return Ok(Some(&self.line));
            }
        }
    }
}

/// The first characters of bytes that may be no text.
pub(super) fn start(bytes: &[u8], characters: usize) -> String {
    // A character has at most four bytes.
    let bytes = &bytes[..bytes.len().min(characters * 4)];
    String::from_utf8_lossy(bytes).chars().take(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> Vec<String> {
        let mut lines = LineReader::new(bytes);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push(String::from_utf8(line.to_vec()).unwrap());
        }
        read
    }

    #[tokio::test]
    async fn lines_are_read_one_by_one_and_the_last_needs_no_line_break() {
        let long = "長".repeat(BUFFER);
        let text = format!("a\n\n{long}\nlast");
        assert_eq!(read(text.as_bytes()).await, ["a", "", &long, "last"]);
        assert_eq!(read(b"a\n").await, ["a"]);
        assert!(read(b"").await.is_empty());
    }

    #[tokio::test]
    async fn a_line_that_does_not_end_is_an_error() {
        let mut lines = LineReader::new(tokio::io::repeat(b'x'));
        let Err(LineError::TooLong(start)) = lines.next().await else { panic!("it ended") };
        assert_eq!(start, "x".repeat(80));
    }

    #[tokio::test]
    async fn a_cancelled_read_loses_nothing() {
        let (mut writer, reader) = tokio::io::duplex(64);
        let mut lines = LineReader::new(reader);
        tokio::io::AsyncWriteExt::write_all(&mut writer, b"one ").await.unwrap();
        let cancelled = tokio::time::timeout(std::time::Duration::from_millis(5), lines.next());
        assert!(cancelled.await.is_err());
        tokio::io::AsyncWriteExt::write_all(&mut writer, b"line\n").await.unwrap();
        assert_eq!(lines.next().await.unwrap(), Some(&b"one line"[..]));
    }
}
