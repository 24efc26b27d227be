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
use shikiri_app::App;
use shikiri_tenancy::gate::{AccessGate, PeerAddress};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::router;
use crate::slow_reader::{PATIENCE, SlowReaderGuard};
use crate::web_options::WebOptions;
use crate::web_state::{SharedWebState, WebState};

/// For a request's head, counted from the start of the wait: the limit of an idle kept-alive
/// connection too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(8);
/// Bounds the head of a request, and hyper's buffer for a slow reader beyond one frame.
const MAX_BUFFER: usize = 64 * 1024;
/// Pause after a failed accept (mostly too many open files), in which others may be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time that requests under way have to finish when the server drains.
const DRAIN_LIMIT: Duration = Duration::from_secs(9);

pub struct WebServer {
    web: SharedWebState,
    other_routes: Router,
}

impl WebServer {
    pub fn new(app: App, gate: Arc<AccessGate>, options: WebOptions) -> Self {
        Self { web: Arc::new(WebState::new(app, gate, options)), other_routes: Router::new() }
    }

    /// Adds another service's routes, such as MCP's. Host and Origin checks, panic handling and
    /// metrics apply to them too. They check their own callers.
    #[must_use]
    pub fn mount(mut self, routes: Router) -> Self {
        self.other_routes = self.other_routes.merge(routes);
        self
    }

    /// The whole service, as `serve` serves it.
    pub fn router(&self) -> Router {
        router::build(&self.web, self.other_routes.clone())
    }

    /// Serves until `drain` is cancelled. It is then unready at once and accepts no more
    /// connections. Streams end so that they can be resumed, requests under way finish, and it
    /// returns within ten seconds.
    pub async fn serve(self, listener: TcpListener, drain: CancellationToken) -> io::Result<()> {
        let connections = WebConnections {
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
        // It ends with the drain. Awaiting it leaves no task behind.
        sweep.await.map_err(io::Error::other)
    }
}

struct WebConnections {
    web: SharedWebState,
    router: Router,
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Ends what is still open when the drain has taken too long.
    cut: CancellationToken,
}

impl WebConnections {
    async fn accept(&self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.spawn_connection(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn spawn_connection(&self, stream: TcpStream, peer: SocketAddr) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.web.metrics.refused_connections.inc();
            // One attempt: a full server does not wait for a slow client.
            let _ = stream.try_write(FULL);
            return;
        };
        if let Err(error) = set_socket_options(&stream) {
            tracing::debug!(%error, "a connection could not be tuned");
        }
        let web = Arc::clone(&self.web);
        let cut = self.cut.clone();
        // Requests carry the peer's address, for routes that only this machine may use.
        let router = self.router.clone().map_request(move |mut request: hyper::Request<_>| {
            request.extensions_mut().insert(PeerAddress(peer));
            request
        });
        self.tasks.spawn(serve_connection(
            web,
            stream,
            TowerToHyperService::new(router),
            cut,
            permit,
        ));
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

fn set_socket_options(stream: &TcpStream) -> io::Result<()> {
    // Otherwise a small event waits 40 ms for the peer's acknowledgement of the one before.
    stream.set_nodelay(true)?;
    // A vanished machine acknowledges nothing. Without this the system would try for 15 minutes.
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_user_timeout(Some(PATIENCE))?;
    Ok(())
}

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\
Content-Length: 0\r\nConnection: close\r\n\r\n";

/// One connection, to its end.
async fn serve_connection<S, B>(
    web: SharedWebState,
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
        // The peer went away or did not send HTTP. The server can do nothing about it.
        tracing::debug!(%error, "a connection ended early");
    }
    web.metrics.open_connections.dec();
}
