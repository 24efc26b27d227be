//! Forwards requests for the model API to the operator's upstream, with the operator's credential.
//! Method, path, query, headers and bodies pass as they are, streaming both ways. A request to
//! Bedrock is signed again, so its body is read first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode, request};
use http_body_util::{BodyDataStream, BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use reqwest::Url;
use serde_json::json;
use shikiri_executions::execution::TurnRequest;

use super::egress_proxy::strip_hop_by_hop;
use super::gateway_server::{GatewayBody, body, text};
use super::model_api_observer::{ModelApiObserver, ModelCallId};
use crate::claude_login::ClaudeLogin;
use crate::messages::error_text::join_causes;
use crate::messages::http_clients::HttpClients;
use crate::messages::{AwsCredentialSources, ModelApiError, ModelApiUpstream};

/// Bedrock takes 25 MB.
const MAX_SIGNED_BODY: usize = 64 * 1024 * 1024;
/// Headers with the run's own token, of one hop, or of the old signature.
const REPLACED: [&str; 8] = [
    "authorization",
    "x-api-key",
    "host",
    "expect",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-content-sha256",
    "amz-sdk-request",
];
/// The gateway's path prefixes, and the API's paths below them.
const ANTHROPIC_PREFIX: &str = "/anthropic";
const ANTHROPIC_PATHS: [&str; 1] = ["/v1/"];
const BEDROCK_PREFIX: &str = "/bedrock";
const BEDROCK_PATHS: [&str; 2] = ["/model/", "/inference-profiles"];

pub(super) struct ModelApi {
    upstream: ModelApiUpstream,
    http: reqwest::Client,
    observer: Arc<dyn ModelApiObserver>,
    calls: AtomicU64,
}

impl ModelApi {
    pub(super) async fn new(
        request: &TurnRequest,
        clients: &HttpClients,
        aws: &AwsCredentialSources,
        observer: Arc<dyn ModelApiObserver>,
        login: Option<&ClaudeLogin>,
    ) -> Result<Self, ModelApiError> {
        let upstream = match login {
            Some(login) => {
                ModelApiUpstream::with_login(&request.model, &request.env, login.clone())?
            }
            None => ModelApiUpstream::from_env(&request.model, &request.env, aws).await?,
        };
        let http = clients.forwarding(&request.env)?;
        Ok(Self { upstream, http, observer, calls: AtomicU64::new(0) })
    }

    pub(super) fn is_bedrock(&self) -> bool {
        self.upstream.is_bedrock()
    }

    pub(super) fn upstream(&self) -> &ModelApiUpstream {
        &self.upstream
    }

    pub(super) async fn forward(&self, request: Request<Incoming>) -> Response<GatewayBody> {
        let Some(url) = self.url(&request) else {
            return text(StatusCode::NOT_FOUND, "this is no path of the model API");
        };
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let (mut head, body) = request.into_parts();
        strip_hop_by_hop(&mut head.headers);
        for name in REPLACED {
            head.headers.remove(name);
        }
        self.observer.request(call, &head);
        let sent = if self.is_bedrock() {
            self.send_signed(call, url, head, body).await
        } else {
            self.send_streaming(call, url, head, body).await
        };
        match sent {
            Ok(response) => self.answer(call, response),
            Err(error) => error.response(),
        }
    }

    /// The upstream address of a request, if its path belongs to the API.
    fn url<B>(&self, request: &Request<B>) -> Option<Url> {
        let (prefix, paths): (_, &[&str]) = match self.is_bedrock() {
            true => (BEDROCK_PREFIX, &BEDROCK_PATHS),
            false => (ANTHROPIC_PREFIX, &ANTHROPIC_PATHS),
        };
        let path = request.uri().path().strip_prefix(prefix)?;
        if !paths.iter().any(|start| path.starts_with(start)) || has_dot_segment(path) {
            return None;
        }
        let query = request.uri().query();
        self.upstream.url(path, query)
    }

    async fn send_streaming(
        &self,
        call: ModelCallId,
        url: Url,
        head: request::Parts,
        body: Incoming,
    ) -> Result<reqwest::Response, ForwardError> {
        let mut headers = head.headers;
        self.upstream.add_credential(&mut headers)?;
        let mut request = self.http.request(head.method, url).headers(headers);
        if !body.is_end_stream() {
            let observer = Arc::clone(&self.observer);
            let pieces = BodyDataStream::new(body)
                .inspect_ok(move |bytes| observer.request_bytes(call, bytes));
            request = request.body(reqwest::Body::wrap_stream(pieces));
        }
        Ok(request.send().await?)
    }

    async fn send_signed(
        &self,
        call: ModelCallId,
        url: Url,
        head: request::Parts,
        body: Incoming,
    ) -> Result<reqwest::Response, ForwardError> {
        let body = Limited::new(body, MAX_SIGNED_BODY).collect().await;
        let body: Bytes = body.map_err(|_| ForwardError::Body)?.to_bytes();
        self.observer.request_bytes(call, &body);
        let mut headers: HeaderMap = head.headers;
        self.upstream.sign(&head.method, &url, &mut headers, &body).await?;
        let request = self.http.request(head.method, url).headers(headers);
        Ok(request.body(body).send().await?)
    }

    fn answer(&self, call: ModelCallId, response: reqwest::Response) -> Response<GatewayBody> {
        let (mut head, body) = Response::<reqwest::Body>::from(response).into_parts();
        strip_hop_by_hop(&mut head.headers);
        self.observer.response(call, &head);
        let observer = Arc::clone(&self.observer);
        let body = body.map_frame(move |frame| {
            if let Some(bytes) = frame.data_ref() {
                observer.response_bytes(call, bytes);
            }
            frame
        });
        Response::from_parts(head, body.map_err(Into::into).boxed_unsync())
    }
}

/// Whether a path has dot segments, such as `/v1/../admin`.
fn has_dot_segment(path: &str) -> bool {
    path.split(['/', '\\']).any(|segment| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    })
}

#[derive(Debug, thiserror::Error)]
enum ForwardError {
    /// The operator gave no credential. Not 401: Claude Code would ask again for minutes.
    #[error("{0}")]
    NoCredential(String),
    #[error("{0}")]
    Credential(ModelApiError),
    #[error("the request's body could not be read, or is larger than 64 MiB")]
    Body,
    #[error("the model API cannot be reached: {}", without_url(.0))]
    Upstream(#[from] reqwest::Error),
}

impl From<ModelApiError> for ForwardError {
    fn from(error: ModelApiError) -> Self {
        match error {
            ModelApiError::NotConfigured(reason) => Self::NoCredential(reason),
            other => Self::Credential(other),
        }
    }
}

impl ForwardError {
    /// The error in the API's format, so that the engine reports the reason.
    fn response(&self) -> Response<GatewayBody> {
        let (status, kind) = match self {
            Self::NoCredential(_) => (StatusCode::BAD_REQUEST, "invalid_request_error"),
            Self::Credential(_) => (StatusCode::UNAUTHORIZED, "authentication_error"),
            Self::Body => (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"),
            Self::Upstream(_) => (StatusCode::BAD_GATEWAY, "api_error"),
        };
        let error = json!({ "type": kind, "message": self.to_string() });
        let document = json!({ "type": "error", "error": error, "message": self.to_string() });
        let mut response = Response::new(body(document.to_string()));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// The causes of a failure, without the upstream's address, which may hold a password.
fn without_url(error: &reqwest::Error) -> String {
    std::error::Error::source(error).map_or_else(|| "it did not answer".to_owned(), join_causes)
}
