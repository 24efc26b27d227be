//! The HTTP server: connections in, drained on request.
//!
//! Not `axum::serve`, which leaves Nagle's algorithm on (44 ms per SSE reply) and waits for ever
//! for the rest of a half-sent request.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use shikiri_app::gate::{Gate, Peer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::options::WebOptions;
use crate::router;
use crate::slow_reader::{PATIENCE, SlowReaderGuard};
use crate::state::{Shared, Web};

/// For a request's head, from the first wait for it: a kept-alive connection may be idle as long.
const HEADER_TIMEOUT: Duration = Duration::from_secs(8);
/// Bounds the head of a request, and what hyper holds back for a slow reader beyond one frame.
const MAX_BUFFER: usize = 64 * 1024;
/// After a failed accept (too many open files, most likely) others may free something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Requests that are under way get this long to finish when the server drains.
const DRAIN_LIMIT: Duration = Duration::from_secs(9);

pub struct Server {
    web: Shared,
    other_doors: Router,
}

impl Server {
    pub fn new(gate: Arc<Gate>, options: WebOptions) -> Self {
        Self { web: Arc::new(Web::new(gate, options)), other_doors: Router::new() }
    }

    /// Puts another door's routes beside ours. Host and Origin are checked, panics caught and
    /// requests counted for them too; who may call them is theirs to check.
    #[must_use]
    pub fn mount(mut self, door: Router) -> Self {
        self.other_doors = self.other_doors.merge(door);
        self
    }

    /// The whole service, as `serve` serves it.
    pub fn router(&self) -> Router {
        router::build(&self.web, self.other_doors.clone())
    }

    /// Serves until `drain` is cancelled. Then it is unready at once and takes no more
    /// connections; streams end so that they can be resumed, requests under way finish, and
    /// within ten seconds it returns.
    pub async fn serve(self, listener: TcpListener, drain: CancellationToken) -> io::Result<()> {
        let connections = Connections {
            router: self.router(),
            permits: Arc::new(Semaphore::new(self.web.options.max_connections)),
            tasks: TaskTracker::new(),
            cut: CancellationToken::new(),
            web: Arc::clone(&self.web),
        };
        let gate = Arc::clone(&self.web.gate);
        let sweep = tokio::spawn(async move { gate.sweep().await });
        drain.run_until_cancelled(connections.accept(&listener)).await;
        self.web.gate.draining().cancel();
        drop(listener);
        connections.finish().await;
        // It ends with the drain; waiting for it leaves no task behind.
        sweep.await.map_err(io::Error::other)
    }
}

struct Connections {
    web: Shared,
    router: Router,
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Ends what is still open when the drain has taken too long.
    cut: CancellationToken,
}

impl Connections {
    async fn accept(&self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.take(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take(&self, stream: TcpStream, peer: SocketAddr) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.web.metrics.refused_connections.inc();
            // One attempt: a full house has no time for a slow guest.
            let _ = stream.try_write(FULL);
            return;
        };
        if let Err(error) = tune(&stream) {
            tracing::debug!(%error, "a connection could not be tuned");
        }
        let web = Arc::clone(&self.web);
        let cut = self.cut.clone();
        // A request carries its peer, for what only this machine may see.
        let router = self.router.clone().map_request(move |mut request: hyper::Request<_>| {
            request.extensions_mut().insert(Peer(peer));
            request
        });
        self.tasks.spawn(carry(web, stream, TowerToHyperService::new(router), cut, permit));
    }

    async fn finish(self) {
        self.tasks.close();
        if tokio::time::timeout(DRAIN_LIMIT, self.tasks.wait()).await.is_err() {
            tracing::warn!(open = self.tasks.len(), "connections were cut at the end of the drain");
            self.cut.cancel();
            self.tasks.wait().await;
        }
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    // Otherwise a small event waits for the peer's acknowledgement of the one before: 40 ms.
    stream.set_nodelay(true)?;
    // A machine that vanished acknowledges nothing: without this, the system tries for 15 minutes.
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_user_timeout(Some(PATIENCE))?;
    Ok(())
}

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\
Content-Length: 0\r\nConnection: close\r\n\r\n";

/// One connection, to its end.
async fn carry<S, B>(
    web: Shared,
    stream: TcpStream,
    service: S,
    cut: CancellationToken,
    _permit: OwnedSemaphorePermit,
) where
    S: hyper::service::Service<
            hyper::Request<hyper::body::Incoming>,
            Response = hyper::Response<B>,
            Error = std::convert::Infallible,
        >,
    B: hyper::body::Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    web.metrics.open_connections.inc();
    let guarded = SlowReaderGuard::new(stream, PATIENCE, web.metrics.cut_slow_readers.clone());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(guarded), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = web.gate.draining().cancelled() => {
            connection.as_mut().graceful_shutdown();
            cut.run_until_cancelled(connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        // A peer that went away, or sent no HTTP: nothing that anybody here can mend.
        tracing::debug!(%error, "a connection ended early");
    }
    web.metrics.open_connections.dec();
}
