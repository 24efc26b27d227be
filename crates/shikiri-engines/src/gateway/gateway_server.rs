//! Accepts the run's connections and routes requests to the model API or to the proxy.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::GatewayState;

/// Open connections, including tunnels. Package managers open dozens.
const MAX_CONNECTIONS: usize = 256;
/// Time limit for the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, such as with too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Tunnels that may wait to be started.
const WAITING_TUNNELS: usize = 16;

pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;
pub(super) type GatewayBody = UnsyncBoxBody<Bytes, BodyError>;
/// Copies a tunnel until it ends.
pub(super) type TunnelTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One connection of the run.
#[derive(Clone)]
pub(super) struct RunConnection {
    pub(super) state: Arc<GatewayState>,
    pub(super) tunnels: mpsc::Sender<TunnelTask>,
    /// Held by the connection, and by the tunnel that it may become.
    pub(super) permit: Arc<OwnedSemaphorePermit>,
}

/// Serves until the future is dropped, which closes all connections and tunnels.
pub(super) async fn serve(listener: TcpListener, state: Arc<GatewayState>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (tunnels, mut opened) = mpsc::channel(WAITING_TUNNELS);
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = accept(&listener, &permits) => {
                let Some((stream, permit)) = accepted else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let connection = RunConnection {
                    state: Arc::clone(&state),
                    tunnels: tunnels.clone(),
                    permit: Arc::new(permit),
                };
                tasks.spawn(connection.serve(stream));
            }
            Some(tunnel) = opened.recv() => drop(tasks.spawn(tunnel)),
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    let (stream, _) = listener.accept().await.ok()?;
    let _ = stream.set_nodelay(true);
    Some((stream, permit))
}

impl RunConnection {
    async fn serve(self, stream: TcpStream) {
        let service = hyper::service::service_fn(move |request| {
            let connection = self.clone();
            async move { Ok::<_, Infallible>(connection.answer(request).await) }
        });
        // A broken connection needs no report: the run sees it.
        let _ = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
    }

    async fn answer(self, request: Request<Incoming>) -> Response<GatewayBody> {
        let uri = request.uri();
        if request.method() == Method::CONNECT {
            return self.open_tunnel(request).await;
        }
        if uri.scheme().is_none() || self.is_this_gateway(uri) {
            return self.answer_model_api(request).await;
        }
        self.proxy_request(request).await
    }

    /// Clients that ignore `NO_PROXY` ask the proxy for the gateway itself.
    fn is_this_gateway(&self, uri: &http::Uri) -> bool {
        let is_loopback = matches!(uri.host(), Some("127.0.0.1" | "localhost"));
        is_loopback && uri.port_u16() == Some(self.state.port)
    }

    async fn answer_model_api(&self, request: Request<Incoming>) -> Response<GatewayBody> {
        if !self.state.token.opens_model_api(request.headers()) {
            return text(StatusCode::UNAUTHORIZED, "this is not the token of the run");
        }
        self.state.model_api.forward(request).await
    }
}

pub(super) fn text(status: StatusCode, text: &str) -> Response<GatewayBody> {
    let mut response = Response::new(body(format!("{text}\n")));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

pub(super) fn body(content: impl Into<Bytes>) -> GatewayBody {
    Full::new(content.into()).map_err(|never| match never {}).boxed_unsync()
}
