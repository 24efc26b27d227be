//! A small HTTP client for our own server: one connection per request, JSON and event streams, with
//! or without TLS. The demo and the doctor need nothing more, and hyper is linked already.

mod server_url;
mod sse;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

pub use server_url::ServerUrl;
pub use sse::{EventStream, Frame};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_ANSWER: usize = 16 * 1024 * 1024;

#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    /// The host name for requests.
    host: String,
    key: String,
    /// The name in the server's certificate; None without TLS.
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// The address at which to reach a listening server: loopback if it listens on all addresses.
pub fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

impl Client {
    pub fn new(address: SocketAddr, key: String) -> Self {
        let address = reachable(address);
        Self { address, host: address.to_string(), key, tls: None }
    }

    /// For a server known by its URL. The key is set later, because it depends on where the server
    /// is.
    pub async fn named(url: &ServerUrl) -> io::Result<Self> {
        let address = tokio::net::lookup_host(url.place()).await?.next();
        let unknown = || io::Error::other("the name stands for no address");
        let address = address.ok_or_else(unknown)?;
        let tls = match url.is_secure {
            true => {
                // The machine's root certificates, and those of SSL_CERT_FILE.
                let config = shikiri_client::tls_config().map_err(io::Error::other)?;
                let name = ServerName::try_from(url.bare_host().to_owned());
                let connector = TlsConnector::from(Arc::new(config));
                Some((connector, name.map_err(io::Error::other)?))
            }
            false => None,
        };
        Ok(Self { address, host: url.authority.clone(), key: String::new(), tls })
    }

    #[must_use]
    pub fn with_key(self, key: String) -> Self {
        Self { key, ..self }
    }

    /// Whether it is on this machine, so that no network is involved.
    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sends a request. A response that is not JSON is returned as a string.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> io::Result<(StatusCode, Value)> {
        self.request_with(method, path, &[], body).await
    }

    /// Sends a request with additional headers.
    pub async fn request_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> io::Result<(StatusCode, Value)> {
        let all = [&[(ACCEPT.as_str(), "application/json")], headers].concat();
        let answer = self.exchange(method, path, &all, body).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect();
        let body = tokio::time::timeout(ANSWER_TIMEOUT, body).await?;
        let bytes = body.map_err(io::Error::other)?.to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Ok((status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text())))
    }

    /// Follows an event stream after the event with this number.
    pub async fn events(&self, path: &str, after: u64) -> io::Result<EventStream> {
        let mut request = self.build(Method::GET, path).header(ACCEPT, "text/event-stream");
        if after > 0 {
            request = request.header("last-event-id", after);
        }
        let answer = self.send(request.body(Full::default())).await?;
        match answer.status() {
            StatusCode::OK => Ok(EventStream::new(answer.into_body())),
            status => Err(io::Error::other(format!("the server answered {status}"))),
        }
    }

    /// Sends a request with additional headers, whose response may be a stream.
    pub async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> io::Result<Response<Incoming>> {
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut request = self.build(method, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Full::new(Bytes::from(text)))).await
    }

    fn build(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json");
        match self.key.as_str() {
            "" => request,
            key => request.header(AUTHORIZATION, format!("Bearer {key}")),
        }
    }

    async fn send(
        &self,
        request: Result<Request<Full<Bytes>>, hyper::http::Error>,
    ) -> io::Result<Response<Incoming>> {
        let request = request.map_err(io::Error::other)?;
        let stream = TcpStream::connect(self.address);
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, stream).await??;
        let mut sender = match &self.tls {
            None => converse(stream).await?,
            Some((connector, name)) => {
                let secured = connector.connect(name.clone(), stream);
                converse(tokio::time::timeout(ANSWER_TIMEOUT, secured).await??).await?
            }
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, sender.send_request(request)).await?;
        answer.map_err(io::Error::other)
    }
}

/// Speaks HTTP on an open connection.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<http1::SendRequest<Full<Bytes>>> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(io::Error::other)?;
    // The task ends with the response body, or with the connection.
    tokio::spawn(connection);
    Ok(sender)
}
