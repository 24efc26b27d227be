//! A small typed HTTP client: path in, status and JSON out, with or without a key.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

/// A client of one server with one key.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    key: Option<String>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Client {
    /// Without a key.
    pub fn new(base: &str) -> Self {
        // A connection per request: none is left over from a server that was killed.
        let http = reqwest::Client::builder()
            .pool_max_idle_per_host(0)
            .tls_backend_preconfigured(no_tls())
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .build()
            .expect("an HTTP client");
        Self { http, base: base.to_owned(), key: None }
    }

    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self.clone() }
    }

    #[must_use]
    pub fn without_key(&self) -> Self {
        Self { key: None, ..self.clone() }
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// A request for the caller to complete.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::PATCH, path).json(body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    pub async fn send(&self, request: RequestBuilder) -> Answer {
        match self.try_send(request).await {
            Ok(answer) => answer,
            Err(error) => panic!("no answer: {error:?}"),
        }
    }

    /// For servers that may be down. The limit applies to the whole response and replaces the
    /// request's own. A caller that wants to hang up earlier drops the future.
    pub async fn try_send(&self, request: RequestBuilder) -> reqwest::Result<Answer> {
        let response = request.timeout(Duration::from_secs(120)).send().await?;
        let status = response.status().as_u16();
        let text = |value: &reqwest::header::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let headers = response.headers().iter();
        let headers = headers.map(|(name, value)| (name.to_string(), text(value))).collect();
        Ok(Answer { status, headers, body: response.bytes().await?.to_vec() })
    }
}

/// Test servers speak plain HTTP. TLS is disabled explicitly: the product enables its feature in
/// this build, which would look for a process-wide provider.
fn no_tls() -> rustls::ClientConfig {
    let ring = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let versions = rustls::ClientConfig::builder_with_provider(ring);
    let versions = versions.with_safe_default_protocol_versions().expect("versions of TLS");
    versions.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("not JSON ({e}): {} {}", self.status, self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The body of a response with this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Checks for a problem document with this status, complete and in order.
    #[track_caller]
    pub fn problem(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["status"], status, "{problem}");
        for field in ["type", "title", "detail", "code"] {
            assert!(problem[field].is_string(), "{field} is missing: {problem}");
        }
        problem
    }
}
