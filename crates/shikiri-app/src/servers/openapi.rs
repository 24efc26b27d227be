//! An API that a document describes: read, called, and kept where the document put it.
//!
//! Each request looks its host's addresses up, judges them, and goes to just those; so neither a
//! name that points elsewhere a moment later nor an answer that sends us on leads to another place.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request as HttpRequest, StatusCode, header};
use serde_json::Value;
use shikiri_model::server::spec_url;
use shikiri_openapi::{Api, Operation, Place, Request, translate};

use super::check::shown;
use super::http::Target;

/// Of one answer, and of a document.
const MAX_ANSWER: usize = 10 * 1024 * 1024;
const MAX_MIB: usize = MAX_ANSWER / 1024 / 1024;
/// For one call, with all that it is sent on to.
const PATIENCE: Duration = Duration::from_secs(30);
/// For fetching a document.
const FETCHING: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 5;
const ACCEPTED: &str = "application/json, text/*;q=0.9, */*;q=0.5";
const AGENT: &str = concat!("shikiri/", env!("CARGO_PKG_VERSION"));

/// An API with the headers that it is called with. Those are secrets: this is not printed.
pub(crate) struct OpenApi {
    pub(crate) api: Api,
    headers: BTreeMap<String, String>,
    allow_private: bool,
    patience: Duration,
}

/// What an API answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

impl OpenApi {
    /// Reads the document, which is fetched first if it is elsewhere.
    pub(crate) async fn open(
        spec: &str,
        url: Option<&str>,
        headers: BTreeMap<String, String>,
        allow_private: bool,
    ) -> Result<Self, String> {
        let document = spec_url(spec).map(str::to_owned);
        let text = match &document {
            Some(address) => fetch(address, &headers, url, allow_private).await?,
            None => spec.to_owned(),
        };
        let url = url.map(str::to_owned);
        // A large document takes its time.
        let translated = tokio::task::spawn_blocking(move || {
            translate(&text, Place { url: url.as_deref(), document: document.as_deref() })
        });
        let api = translated.await.map_err(|error| format!("cannot be read: {error}"))?;
        let api = api.map_err(|error| format!("its document cannot be used: {error}"))?;
        Ok(Self { api, headers, allow_private, patience: PATIENCE })
    }

    /// Whether anybody is there: any answer will do.
    pub(crate) async fn knock(&self) -> Result<StatusCode, String> {
        let url = self.api.base.as_str().to_owned();
        let request = Request { method: "HEAD", url, headers: self.headers.clone(), body: None };
        Ok(send(&request, self.allow_private).await?.status())
    }

    /// Whether it is at an address that it may be at.
    pub(crate) async fn is_in_reach(&self) -> Result<(), String> {
        super::permit::is_in_reach(self.api.base.as_str(), self.allow_private).await
    }

    /// Names of headers that its operations need and that are not given.
    pub(crate) fn missing(&self) -> Vec<String> {
        self.api.missing(self.headers.keys().map(String::as_str))
    }

    /// Calls an operation. The error is the model's to know.
    pub(crate) async fn call(&self, operation: &Operation, input: &Value) -> Result<Reply, String> {
        let request = operation.request(input, &self.headers).map_err(|error| error.to_string())?;
        let called = tokio::time::timeout(self.patience, follow(request, self.allow_private)).await;
        called.unwrap_or_else(|_| Err(format!("no answer within {} s", self.patience.as_secs())))
    }
}

/// A document from elsewhere. The headers are for the API: its document is asked for with them only
/// where the record itself says that both are on one host.
async fn fetch(
    address: &str,
    headers: &BTreeMap<String, String>,
    base: Option<&str>,
    allow_private: bool,
) -> Result<String, String> {
    let is_own = base.is_some_and(|base| shikiri_openapi::is_same_origin(base, address));
    let headers = if is_own { headers.clone() } else { BTreeMap::new() };
    let request = Request { method: "GET", url: address.to_owned(), headers, body: None };
    let fetched = tokio::time::timeout(FETCHING, follow(request, allow_private)).await;
    let fetched = fetched.unwrap_or_else(|_| Err("no answer within 10 s".to_owned()));
    let reply = fetched.map_err(|error| format!("its document: {error}"))?;
    if !reply.status.is_success() {
        return Err(format!("its document: {address} answered {}", reply.status));
    }
    let text = String::from_utf8(reply.body.into());
    text.map_err(|_| "its document is not UTF-8".to_owned())
}

/// Sends a request, and goes where it is sent on to, but nowhere else than to the same host.
async fn follow(mut request: Request, allow_private: bool) -> Result<Reply, String> {
    for _ in 0..=MAX_REDIRECTS {
        let answer = send(&request, allow_private).await?;
        let status = answer.status();
        if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
            let location = answer.headers().get(header::LOCATION);
            let location = location.and_then(|to| to.to_str().ok()).unwrap_or_default();
            let next = request.redirected(location);
            request = next.ok_or_else(|| {
                format!("answered {status} and sends us on to {:?}: refused", shown(location))
            })?;
            continue;
        }
        let kind = answer.headers().get(header::CONTENT_TYPE);
        let content_type = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => format!("the answer has more than {MAX_MIB} MiB"),
            false => format!("the answer broke off: {error}"),
        })?;
        return Ok(Reply { status, content_type, body: body.to_bytes() });
    }
    Err("it sends us on and on".to_owned())
}

async fn send(
    request: &Request,
    allow_private: bool,
) -> Result<hyper::Response<hyper::body::Incoming>, String> {
    let target = Target::find(&request.url, &request.headers, allow_private).await?;
    let path = target.uri.path_and_query().map_or("/", |path| path.as_str());
    let host = target.uri.authority().map_or("", |authority| authority.as_str());
    let method = Method::from_bytes(request.method.as_bytes()).unwrap_or_default();
    let ready = HttpRequest::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, AGENT)
        .header(header::ACCEPT, ACCEPTED)
        .body(Full::new(Bytes::from(request.body.clone().unwrap_or_default())));
    target.dispatch(ready.map_err(|error| format!("cannot be asked: {error}"))?).await
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
