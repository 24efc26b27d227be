//! As much of an HTTP client as is needed, and no slower than that.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    buffer: Vec<u8>,
}

pub(crate) struct Head {
    pub(crate) status: u16,
    content_length: Option<usize>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, address, buffer: Vec::new() })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        self.send("GET", path, None, "").await?;
        self.answer().await
    }

    pub(crate) async fn post(
        &mut self,
        path: &str,
        key: Option<&str>,
        body: &str,
    ) -> Result<Vec<u8>> {
        self.send("POST", path, key, body).await?;
        self.answer().await
    }

    /// A request without its answer.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &str,
    ) -> Result<()> {
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n{key}content-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}",
            self.address
        );
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// Reads the head of an answer; what follows it stays in the buffer.
    pub(crate) async fn head(&mut self) -> Result<Head> {
        let end = loop {
            if let Some(found) = memchr::memmem::find(&self.buffer, b"\r\n\r\n") {
                break found + 4;
            }
            self.fill().await?;
        };
        let text = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
        self.buffer.drain(..end);
        let status = text.split(' ').nth(1).context("no status")?.parse()?;
        let content_length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .and_then(|value| value.trim().parse().ok());
        Ok(Head { status, content_length })
    }

    pub(crate) async fn answer(&mut self) -> Result<Vec<u8>> {
        let head = self.head().await?;
        let length = head.content_length.context("an answer without a length")?;
        while self.buffer.len() < length {
            self.fill().await?;
        }
        let body: Vec<u8> = self.buffer.drain(..length).collect();
        let text = || String::from_utf8_lossy(&body).into_owned();
        ensure!((200..300).contains(&head.status), "status {}: {}", head.status, text());
        Ok(body)
    }

    /// The next piece of a chunked body; None at its end, after which the connection can be used
    /// again.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let end = loop {
            if let Some(found) = memchr::memmem::find(&self.buffer, b"\r\n") {
                break found;
            }
            self.fill().await?;
        };
        let size = std::str::from_utf8(&self.buffer[..end]).context("a chunk's size")?;
        let size = usize::from_str_radix(size, 16).context("a chunk's size")?;
        let (start, whole) = (end + 2, end + 2 + size + 2);
        while self.buffer.len() < whole {
            self.fill().await?;
        }
        let chunk = self.buffer[start..start + size].to_vec();
        self.buffer.drain(..whole);
        Ok((size > 0).then_some(chunk))
    }

    /// Reads until this has come, and drops all up to its end.
    pub(crate) async fn skip_past(&mut self, needle: &[u8]) -> Result<()> {
        loop {
            if let Some(found) = memchr::memmem::find(&self.buffer, needle) {
                self.buffer.drain(..found + needle.len());
                return Ok(());
            }
            self.fill().await?;
        }
    }

    /// The raw stream and what was read of it too early.
    pub(crate) fn into_parts(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.buffer)
    }

    async fn fill(&mut self) -> Result<()> {
        let count = self.stream.read_buf(&mut self.buffer).await?;
        ensure!(count > 0, "the server closed the connection");
        Ok(())
    }
}
