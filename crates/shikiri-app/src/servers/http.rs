//! Streamable HTTP, as much of it as a try needs. Addresses are looked up and judged first, and the
//! connection goes to just those: a name that points elsewhere a moment later changes nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::rt::{Read, Write};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::address::{self, is_secure};
use super::check::is_answer;
use super::sse::Events;

/// Of one answer.
pub(super) const MAX_ANSWER: usize = 1024 * 1024;

/// Where requests go, and what they all carry.
pub(super) struct Target {
    pub(super) uri: Uri,
    addresses: Vec<SocketAddr>,
    headers: HeaderMap,
}

impl Target {
    pub(super) async fn find(
        url: &str,
        headers: &BTreeMap<String, String>,
        allow_private: bool,
    ) -> Result<Self, String> {
        let uri = address::uri(url)?;
        let addresses = address::resolve(&uri, allow_private).await?;
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_bytes(value.as_bytes());
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err("a header of headers_template cannot be sent".to_owned());
            };
            map.insert(name, value);
        }
        Ok(Self { uri, addresses, headers: map })
    }

    /// One request on a connection of its own.
    pub(super) async fn send(
        &self,
        method: Method,
        uri: &Uri,
        extra: &[(&'static str, &str)],
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, String> {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder().method(method).uri(path);
        let host = uri.authority().map_or("", |authority| authority.as_str());
        request = request
            .header(header::HOST, host)
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header(header::CONTENT_TYPE, "application/json");
        for (name, value) in extra {
            request = request.header(*name, *value);
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body)));
        self.dispatch(request.map_err(|error| format!("cannot be asked: {error}"))?).await
    }

    /// The same with a request that is ready, but for the headers that all have.
    pub(super) async fn dispatch(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        for (name, value) in &self.headers {
            request.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
        let stream = self.connect().await?;
        if is_secure(&self.uri) {
            let name = self.uri.host().unwrap_or_default();
            let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
            let name = ServerName::try_from(name).map_err(|error| format!("the host: {error}"))?;
            let secured = TlsConnector::from(tls()?).connect(name, stream).await;
            exchange(secured.map_err(|error| format!("no secure connection: {error}"))?, request)
                .await
        } else {
            exchange(stream, request).await
        }
    }

    async fn connect(&self) -> Result<TcpStream, String> {
        let stream = TcpStream::connect(self.addresses.as_slice()).await;
        stream.map_err(|error| format!("cannot be reached: {error}"))
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    TokioIo<S>: Read + Write,
{
    let broken = |error: hyper::Error| format!("did not answer: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // It ends with the answer's body, or with whoever gives it up.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(broken)
}

fn tls() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    let roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::clone(CONFIG.get_or_init(|| Arc::new(config))))
}

pub(super) struct Http {
    target: Target,
    session: Option<String>,
    version: Option<String>,
}

impl Http {
    pub(super) fn new(target: Target) -> Self {
        Self { target, session: None, version: None }
    }

    /// The version that both sides agreed on.
    pub(super) fn speak(&mut self, version: &str) {
        self.version = Some(version.to_owned());
    }

    pub(super) async fn ask(&mut self, request: &Value) -> Result<Value, String> {
        let answer = self.post(request).await?;
        if let Some(session) = answer.headers().get("mcp-session-id") {
            self.session = session.to_str().ok().map(str::to_owned);
        }
        let kind = answer.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        if kind.starts_with("text/event-stream") {
            return Events::new(answer.into_body()).answer_to(request).await;
        }
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| format!("its answer broke off: {error}"))?.to_bytes();
        let message: Value = serde_json::from_slice(&body)
            .map_err(|_| "it answered, but not as an MCP server does".to_owned())?;
        if is_answer(&message, request) {
            return Ok(message);
        }
        Err("it answered, but not as an MCP server does".to_owned())
    }

    pub(super) async fn tell(&mut self, notification: &Value) -> Result<(), String> {
        self.post(notification).await.map(drop)
    }

    /// Tells the server that its session is over, if it cares.
    pub(super) async fn close(self) {
        if self.session.is_some() {
            let _ = self.send(Method::DELETE, None).await;
        }
    }

    async fn post(&self, message: &Value) -> Result<Response<Incoming>, String> {
        let answer = self.send(Method::POST, Some(message)).await?;
        ok(answer)
    }

    async fn send(
        &self,
        method: Method,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, String> {
        let session = self.session.as_deref().map(|id| ("mcp-session-id", id));
        let version = self.version.as_deref().map(|version| ("mcp-protocol-version", version));
        let extra: Vec<_> = session.into_iter().chain(version).collect();
        self.target.send(method, &self.target.uri, &extra, body).await
    }
}

/// An answer that is none of success.
pub(super) fn ok(answer: Response<Incoming>) -> Result<Response<Incoming>, String> {
    match answer.status() {
        status if status.is_success() => Ok(answer),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(format!("answered {}: look at headers_template and tokens", answer.status()))
        }
        status => Err(format!("answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_secure_connection_is_really_asked_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/mcp", listener.local_addr().unwrap().port());
        let target = Target::find(&url, &BTreeMap::new(), true).await.unwrap();
        let first_byte = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let byte = stream.read_u8().await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            byte
        });
        let refused = Http::new(target).ask(&serde_json::json!({ "id": 1 })).await.unwrap_err();
        assert!(refused.starts_with("no secure connection"), "{refused}");
        assert_eq!(first_byte.await.unwrap(), 22, "a TLS handshake");
    }
}
