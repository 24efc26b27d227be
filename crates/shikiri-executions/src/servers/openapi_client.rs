//! Client of an API that an OpenAPI document describes.
//!
//! Each request resolves its host, checks the addresses, and connects to just those. So neither a
//! changed DNS record nor a redirect leads to another host. A proxy resolves the name again: what
//! it may reach is up to its own rules.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::body::Bytes;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use shikiri_client::{ProxyRules, describe_http_error, http_client_builder, pin_addresses};
use shikiri_model::server::spec_url;
use shikiri_openapi::{ApiDocument, ApiLocation, ApiOperation, ApiRequest, parse_document};

use super::server_check::shown;

/// Bound on one answer, and on a document.
const MAX_ANSWER: usize = 10 * 1024 * 1024;
const MAX_MIB: usize = MAX_ANSWER / 1024 / 1024;
/// Timeout for one call, redirects included.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for fetching a document.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 5;
const ACCEPTED: &str = "application/json, text/*;q=0.9, */*;q=0.5";
const AGENT: &str = concat!("shikiri/", env!("CARGO_PKG_VERSION"));

/// An API and the headers for its calls. They are secrets, so the type has no `Debug`.
pub(crate) struct OpenApiClient {
    pub(crate) api: ApiDocument,
    headers: BTreeMap<String, String>,
    allow_private: bool,
    timeout: Duration,
}

/// An API's answer.
#[derive(Debug)]
pub(crate) struct OpenApiReply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

impl OpenApiClient {
    /// Reads the document. A document given by its address is fetched first.
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
        // Parsing a large document takes long.
        let translated = tokio::task::spawn_blocking(move || {
            parse_document(
                &text,
                ApiLocation { url: url.as_deref(), document: document.as_deref() },
            )
        });
        let api = translated.await.map_err(|error| format!("cannot be read: {error}"))?;
        let api = api.map_err(|error| format!("its document cannot be used: {error}"))?;
        Ok(Self { api, headers, allow_private, timeout: CALL_TIMEOUT })
    }

    /// Checks that the API answers. Any status will do.
    pub(crate) async fn probe(&self) -> Result<StatusCode, String> {
        let url = self.api.base.as_str().to_owned();
        let request = ApiRequest { method: "HEAD", url, headers: self.headers.clone(), body: None };
        Ok(send(&request, self.allow_private).await?.status())
    }

    /// Checks that its address is allowed.
    pub(crate) async fn is_in_reach(&self) -> Result<(), String> {
        super::server_permissions::is_in_reach(self.api.base.as_str(), self.allow_private).await
    }

    /// Names of missing headers that its operations need.
    pub(crate) fn missing(&self) -> Vec<String> {
        self.api.missing_keys(self.headers.keys().map(String::as_str))
    }

    /// Calls an operation. The error text is for the model.
    pub(crate) async fn call(
        &self,
        operation: &ApiOperation,
        input: &Value,
    ) -> Result<OpenApiReply, String> {
        let request =
            operation.build_request(input, &self.headers).map_err(|error| error.to_string())?;
        let called = tokio::time::timeout(self.timeout, follow(request, self.allow_private)).await;
        called.unwrap_or_else(|_| Err(format!("no answer within {} s", self.timeout.as_secs())))
    }
}

/// Fetches a document. The headers are for the API, so they are only sent with this request if the
/// record itself says that the API and the document have the same origin.
async fn fetch(
    address: &str,
    headers: &BTreeMap<String, String>,
    base: Option<&str>,
    allow_private: bool,
) -> Result<String, String> {
    let is_own = base.is_some_and(|base| shikiri_openapi::is_same_origin(base, address));
    let headers = if is_own { headers.clone() } else { BTreeMap::new() };
    let request = ApiRequest { method: "GET", url: address.to_owned(), headers, body: None };
    let fetched = tokio::time::timeout(FETCH_TIMEOUT, follow(request, allow_private)).await;
    let fetched = fetched.unwrap_or_else(|_| Err("no answer within 10 s".to_owned()));
    let reply = fetched.map_err(|error| format!("its document: {error}"))?;
    if !reply.status.is_success() {
        return Err(format!("its document: {address} answered {}", reply.status));
    }
    let text = String::from_utf8(reply.body.into());
    text.map_err(|_| "its document is not UTF-8".to_owned())
}

/// Sends a request and follows redirects to the same host only.
async fn follow(mut request: ApiRequest, allow_private: bool) -> Result<OpenApiReply, String> {
    for _ in 0..=MAX_REDIRECTS {
        let answer = send(&request, allow_private).await?;
        let status = answer.status();
        if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
            let location = answer.headers().get(header::LOCATION);
            let location = location.and_then(|to| to.to_str().ok()).unwrap_or_default();
            let next = request.follow_redirect(location);
            request = next.ok_or_else(|| {
                format!("answered {status} and sends us on to {:?}: refused", shown(location))
            })?;
            continue;
        }
        let kind = answer.headers().get(header::CONTENT_TYPE);
        let content_type = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        return Ok(OpenApiReply { status, content_type, body: read_body(answer).await? });
    }
    Err("it sends us on and on".to_owned())
}

async fn read_body(mut answer: reqwest::Response) -> Result<Bytes, String> {
    let mut body = Vec::new();
    loop {
        let part = answer.chunk().await;
        let part =
            part.map_err(|error| format!("the answer broke off: {}", describe_http_error(&error)));
        let Some(part) = part? else { return Ok(body.into()) };
        if body.len() + part.len() > MAX_ANSWER {
            return Err(format!("the answer has more than {MAX_MIB} MiB"));
        }
        body.extend_from_slice(&part);
    }
}

async fn send(request: &ApiRequest, allow_private: bool) -> Result<reqwest::Response, String> {
    let addresses = super::addresses(&request.url, allow_private).await?;
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
    headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPTED));
    for (name, value) in &request.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_bytes(value.as_bytes());
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err("a header of headers_template cannot be sent".to_owned());
        };
        headers.entry(name).or_insert(value);
    }
    let builder = http_client_builder(&ProxyRules::from_environment())?;
    let client = pin_addresses(builder, &request.url, &addresses)?.build();
    let client = client.map_err(|error| describe_http_error(&error))?;
    let method = Method::from_bytes(request.method.as_bytes()).unwrap_or_default();
    let mut ready = client.request(method, &request.url).headers(headers);
    if let Some(body) = &request.body {
        ready = ready.body(body.clone());
    }
    ready.send().await.map_err(|error| match error.is_connect() {
        true => format!("cannot be reached: {}", describe_http_error(&error)),
        false => format!("did not answer: {}", describe_http_error(&error)),
    })
}

#[cfg(test)]
#[path = "openapi_client_tests.rs"]
mod tests;
