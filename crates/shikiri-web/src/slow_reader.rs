//! A connection that gives up on a peer that reads nothing.
//!
//! Hyper asks a body for more only when there is room, so a body cannot see that its reader is
//! stuck. The socket can: a write that stays pending means that the peer's window and our send
//! buffer are full. The connection is then cut without an end of its body, which every SSE client
//! takes as a reason to come back with its `Last-Event-ID`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct SlowReaderGuard<T> {
    inner: T,
    patience: Duration,
    /// Runs while a write is pending, which is rare.
    stalled: Option<Pin<Box<Sleep>>>,
    cut: Counter,
}

impl<T> SlowReaderGuard<T> {
    pub(crate) fn new(inner: T, patience: Duration, cut: Counter) -> Self {
        Self { inner, patience, stalled: None, cut }
    }

    fn check_stall<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stalled.as_mut().poll(cx));
        self.cut.inc();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for SlowReaderGuard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for SlowReaderGuard<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.check_stall(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.check_stall(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_cut_and_a_slow_one_is_not() {
        const PATIENCE: Duration = Duration::from_millis(400);
        let cut = Counter::default();
        let (ours, mut peer) = tokio::io::duplex(16);
        let mut guarded = SlowReaderGuard::new(ours, PATIENCE, cut.clone());
        let reader = tokio::spawn(async move {
            let mut byte = [0; 1];
            for _ in 0..5 {
                tokio::time::sleep(PATIENCE / 4).await;
                peer.read_exact(&mut byte).await.unwrap();
            }
            peer
        });
        guarded.write_all(&[0; 21]).await.unwrap();
        let _peer = reader.await.unwrap();
        assert_eq!(cut.get(), 0);

        let error = guarded.write_all(&[0; 21]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(cut.get(), 1);
    }
}
