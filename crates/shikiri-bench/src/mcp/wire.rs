//! An HTTP/1.1 client with keep-alive that does no more than the load needs: whole replies of
//! known length or in chunks, and streams that are only held open.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MOST_HEADERS: usize = 32;

pub(crate) struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
    /// How much of the input is consumed. Nothing is moved until a reply has ended: a hundred small
    /// chunks would be moved a hundred times.
    at: usize,
    body: Vec<u8>,
}

pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) event_stream: bool,
    length: Length,
}

#[derive(Clone, Copy)]
enum Length {
    Known(usize),
    Chunked,
    Unknown,
}

pub(crate) struct Reply<'a> {
    pub(crate) head: Head,
    pub(crate) body: &'a [u8],
}

impl Wire {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: Vec::new(), at: 0, body: Vec::new() })
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(request).await?)
    }

    /// The next reply, to its end.
    pub(crate) async fn reply(&mut self) -> Result<Reply<'_>> {
        let head = self.head().await?;
        self.body.clear();
        match head.length {
            Length::Known(length) => self.take(length).await?,
            Length::Chunked => self.chunks().await?,
            Length::Unknown => bail!("a reply (status {}) that ends nowhere", head.status),
        }
        self.input.drain(..self.at);
        self.at = 0;
        Ok(Reply { head, body: &self.body })
    }

    /// The head of the next reply; its body is left unread.
    pub(crate) async fn head(&mut self) -> Result<Head> {
        loop {
            if let Some((head, length)) = parse(self.rest())? {
                self.at += length;
                return Ok(head);
            }
            self.fill().await?;
        }
    }

    async fn chunks(&mut self) -> Result<()> {
        loop {
            let line = self.line().await?;
            let digits = std::str::from_utf8(&self.rest()[..line])?;
            let length = usize::from_str_radix(digits.trim(), 16)
                .with_context(|| format!("{digits:?} is no length of a chunk"))?;
            self.at += line + 2;
            self.take(length).await?;
            let end = self.line().await?;
            ensure!(end == 0, "a chunk is longer than it said");
            self.at += 2;
            if length == 0 {
                return Ok(());
            }
        }
    }

    /// Appends the next bytes to the body.
    async fn take(&mut self, length: usize) -> Result<()> {
        while self.rest().len() < length {
            self.fill().await?;
        }
        self.body.extend_from_slice(&self.input[self.at..self.at + length]);
        self.at += length;
        Ok(())
    }

    /// The length of the next line.
    async fn line(&mut self) -> Result<usize> {
        loop {
            if let Some(found) = memchr::memmem::find(self.rest(), b"\r\n") {
                return Ok(found);
            }
            self.fill().await?;
        }
    }

    fn rest(&self) -> &[u8] {
        &self.input[self.at..]
    }

    async fn fill(&mut self) -> Result<()> {
        let count = self.stream.read_buf(&mut self.input).await?;
        ensure!(count > 0, "the server closed the connection");
        Ok(())
    }
}

/// The head and its length, if it is all there.
fn parse(input: &[u8]) -> Result<Option<(Head, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(end) = response.parse(input)? else { return Ok(None) };
    let status = response.code.context("no status")?;
    let mut head = Head { status, session: None, event_stream: false, length: Length::Unknown };
    for header in &*response.headers {
        let is = |name| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            head.length = Length::Known(std::str::from_utf8(header.value)?.trim().parse()?);
        } else if is("transfer-encoding") && header.value.eq_ignore_ascii_case(b"chunked") {
            head.length = Length::Chunked;
        } else if is("content-type") {
            head.event_stream = header.value.starts_with(b"text/event-stream");
        } else if is("mcp-session-id") {
            head.session = Some(String::from_utf8(header.value.to_vec())?);
        }
    }
    Ok(Some((head, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers its first request with these pieces, each in a packet of its own.
    async fn answering(pieces: &'static [&'static [u8]]) -> Wire {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            for piece in pieces {
                stream.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        Wire::open(address).await.unwrap()
    }

    #[tokio::test]
    async fn a_chunked_reply_is_put_together_and_the_next_one_is_found() {
        let mut wire = answering(&[
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-",
            b"Encoding: chunked\r\nMcp-Session-Id: s1\r\n\r\nB\r\ndata: one\n\n\r",
            b"\n3\r\ntwo\r\n0\r",
            b"\n\r\nHTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n",
        ])
        .await;
        let first = wire.reply().await.unwrap();
        assert_eq!(first.body, b"data: one\n\ntwo");
        assert_eq!((first.head.status, first.head.event_stream), (200, true));
        assert_eq!(first.head.session.as_deref(), Some("s1"));
        let second = wire.reply().await.unwrap();
        assert_eq!((second.head.status, second.body), (202, b"".as_slice()));
    }

    #[tokio::test]
    async fn a_chunk_that_lies_about_its_length_is_refused() {
        let mut wire =
            answering(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nlong\r\n"])
                .await;
        assert!(wire.reply().await.is_err());
    }
}
