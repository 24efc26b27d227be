//! A connection below HTTP, for what no HTTP client would send and for when its bytes arrive.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A plain connection to the server.
pub(crate) struct Wire(pub(crate) TcpStream);

impl Wire {
    pub(crate) async fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until `end` has come; fails if the connection ends first.
    pub(crate) async fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut read = Vec::new();
        while !read.windows(end.len()).any(|window| window == end) {
            let mut part = [0; 4096];
            let count = self.0.read(&mut part).await.unwrap();
            assert!(count > 0, "cut off after {:?}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&part[..count]);
        }
        read
    }

    /// All that still comes; None if the server leaves the connection open for `patience`.
    pub(crate) async fn rest(&mut self, patience: Duration) -> Option<Vec<u8>> {
        let mut read = Vec::new();
        // A reset is an end as well.
        let ended = tokio::time::timeout(patience, self.0.read_to_end(&mut read)).await;
        ended.is_ok().then_some(read)
    }
}
