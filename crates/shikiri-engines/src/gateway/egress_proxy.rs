//! The run's HTTP proxy: tunnels (`CONNECT`) and plain requests, both only to where the tenant's
//! policy allows.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::egress_rules::EgressRoute;
use super::gateway_server::{GatewayBody, RunConnection, body, text};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a tunnel may be idle in both directions.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
const BUFFER: usize = 16 * 1024;

/// The far end of a tunnel.
type OutsideStream = Box<dyn TunnelIo>;

trait TunnelIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> TunnelIo for S {}

/// Headers that concern only the next hop.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Removes the headers that concern only the next hop.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

impl RunConnection {
    pub(super) async fn open_tunnel(self, request: Request<Incoming>) -> Response<GatewayBody> {
        if !self.state.token.opens_proxy(request.headers()) {
            return unauthorized();
        }
        let authority = request.uri().authority().cloned();
        let Some((authority, port)) = authority.and_then(|a| Some((a.clone(), a.port_u16()?)))
        else {
            return text(StatusCode::BAD_REQUEST, "CONNECT needs a host and a port");
        };
        // The operator's proxies are chosen by what the tunnel is for.
        let scheme = if port == 80 { "http" } else { "https" };
        let Ok(uri) = format!("{scheme}://{authority}").parse::<Uri>() else {
            return text(StatusCode::BAD_REQUEST, "this is no host");
        };
        let route = match self.state.egress.authorize_connection(authority.host(), port, &uri).await
        {
            Ok(route) => route,
            Err(refusal) => return text(StatusCode::FORBIDDEN, &refusal.to_string()),
        };
        let connected = match &route {
            EgressRoute::Direct(addresses) => {
                connect(addresses.as_slice()).await.map(|stream| Box::new(stream) as OutsideStream)
            }
            EgressRoute::OperatorProxy(proxy) => {
                tunnel_through(proxy, &format!("{}:{port}", authority.host())).await
            }
        };
        let outside = match connected {
            Ok(outside) => outside,
            Err(error) => return unreachable(authority.as_str(), &error),
        };
        let permit = self.permit;
        let tunnel = async move {
            if let Ok(inside) = hyper::upgrade::on(request).await {
                copy_both_ways(TokioIo::new(inside), outside).await;
            }
            drop(permit);
        };
        match self.tunnels.send(Box::pin(tunnel)).await {
            Ok(()) => Response::new(body("")),
            Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "the run ends"),
        }
    }

    /// A plain `http` request that was sent to the proxy.
    pub(super) async fn proxy_request(
        self,
        mut request: Request<Incoming>,
    ) -> Response<GatewayBody> {
        if !self.state.token.opens_proxy(request.headers()) {
            return unauthorized();
        }
        let uri = request.uri().clone();
        let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return text(StatusCode::BAD_REQUEST, "only http is proxied: use CONNECT for others");
        };
        let port = authority.port_u16().unwrap_or(80);
        let route = match self.state.egress.authorize_connection(authority.host(), port, &uri).await
        {
            Ok(route) => route,
            Err(refusal) => return text(StatusCode::FORBIDDEN, &refusal.to_string()),
        };
        strip_hop_by_hop(request.headers_mut());
        // Some servers route by this header, so it must name the authorized host.
        let host = HeaderValue::from_str(without_user(authority.as_str()));
        let Ok(host) = host else { return text(StatusCode::BAD_REQUEST, "this is no host") };
        request.headers_mut().insert(header::HOST, host);
        match exchange(route, request).await {
            Ok(response) => response,
            Err(error) => unreachable(authority.as_str(), &error),
        }
    }
}

fn without_user(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// One request on a connection of its own.
async fn exchange(
    route: EgressRoute,
    mut request: Request<Incoming>,
) -> io::Result<Response<GatewayBody>> {
    let stream = match &route {
        EgressRoute::Direct(addresses) => {
            let path = request.uri().path_and_query().cloned();
            let path =
                path.map_or_else(|| Ok(Uri::from_static("/")), |path| path.to_string().parse());
            *request.uri_mut() = path.map_err(io::Error::other)?;
            connect(addresses.as_slice()).await?
        }
        EgressRoute::OperatorProxy(proxy) => {
            if let Some(value) = proxy.basic_auth() {
                request.headers_mut().insert(header::PROXY_AUTHORIZATION, value.clone());
            }
            connect_to_proxy(proxy).await?
        }
    };
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // The connection ends with the response's body, or when that is dropped.
    tokio::spawn(connection);
    let mut response = sender.send_request(request).await.map_err(io::Error::other)?;
    strip_hop_by_hop(response.headers_mut());
    Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
}

async fn connect(addresses: impl tokio::net::ToSocketAddrs) -> io::Result<TcpStream> {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(addresses)).await;
    let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn connect_to_proxy(proxy: &Intercept) -> io::Result<TcpStream> {
    let uri = proxy.uri();
    let host = uri.host().unwrap_or_default();
    if uri.scheme_str() != Some("http") {
        let what = "the operator's proxy is not an http one, which is the only kind that is used";
        return Err(io::Error::other(what));
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    connect((bare, uri.port_u16().unwrap_or(80))).await
}

/// Opens a tunnel through the operator's proxy.
async fn tunnel_through(proxy: &Intercept, target: &str) -> io::Result<OutsideStream> {
    let stream = connect_to_proxy(proxy).await?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::connect(target).header(header::HOST, target);
    if let Some(value) = proxy.basic_auth() {
        request = request.header(header::PROXY_AUTHORIZATION, value);
    }
    let request = request.body(Empty::<bytes::Bytes>::new()).map_err(io::Error::other)?;
    let answer = tokio::time::timeout(CONNECT_TIMEOUT, sender.send_request(request)).await;
    let answer = answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    let answer = answer.map_err(io::Error::other)?;
    if !answer.status().is_success() {
        return Err(io::Error::other(format!("the operator's proxy answered {}", answer.status())));
    }
    let upgraded = hyper::upgrade::on(answer).await.map_err(io::Error::other)?;
    Ok(Box::new(TokioIo::new(upgraded)))
}

fn unauthorized() -> Response<GatewayBody> {
    let status = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
    let mut response = text(status, "this is not the token of the run");
    let how = HeaderValue::from_static("Basic realm=\"run\"");
    response.headers_mut().insert(header::PROXY_AUTHENTICATE, how);
    response
}

fn unreachable(place: &str, error: &io::Error) -> Response<GatewayBody> {
    let place = without_user(place);
    text(StatusCode::BAD_GATEWAY, &format!("{place} cannot be reached: {error}"))
}

/// Copies until both directions have ended, or the tunnel is idle for too long.
async fn copy_both_ways(inside: impl AsyncRead + AsyncWrite, outside: impl AsyncRead + AsyncWrite) {
    let (from_inside, to_inside) = tokio::io::split(inside);
    let (from_outside, to_outside) = tokio::io::split(outside);
    let is_active = AtomicBool::new(true);
    let both = async {
        let up = copy(from_inside, to_outside, &is_active);
        let down = copy(from_outside, to_inside, &is_active);
        // An error in one direction ends the tunnel; a regular end does not.
        let _ = tokio::try_join!(up, down);
    };
    let idle = async {
        while is_active.swap(false, Ordering::Relaxed) {
            tokio::time::sleep(IDLE_TIMEOUT).await;
        }
    };
    tokio::select! {
        () = both => {}
        () = idle => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    is_active: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await?;
        is_active.store(true, Ordering::Relaxed);
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}
