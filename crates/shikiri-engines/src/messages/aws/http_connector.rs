//! HTTP for AWS's library: this crate's client, with its certificates and proxies and without
//! redirects. Addresses of the machine itself are called directly, because a proxy would answer with
//! the credentials of another machine.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use reqwest::Url;

/// Time limit of a request without its own. Requests to an instance's metadata have 1 s.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// The largest answer that is read.
const MAX_ANSWER: usize = 1024 * 1024;
/// Headers that hold credentials.
const SECRET_HEADERS: [&str; 4] =
    ["authorization", "x-amz-security-token", "x-amz-sso_bearer_token", "x-aws-ec2-metadata-token"];
const WEB_IDENTITY_FIELD: &str = "WebIdentityToken";

/// Clones share the list of sent secrets.
#[derive(Clone)]
pub(super) struct AwsHttp {
    outside: reqwest::Client,
    direct: reqwest::Client,
    /// Secrets that requests carried, which an error must not repeat.
    sent: Arc<Mutex<Vec<String>>>,
}

impl AwsHttp {
    pub(super) fn new(outside: reqwest::Client, direct: reqwest::Client) -> Self {
        Self { outside, direct, sent: Arc::default() }
    }

    /// Takes the secrets that were sent since the last call.
    pub(super) fn take_sent(&self) -> Vec<String> {
        std::mem::take(&mut *self.sent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn remember(&self, request: &HttpRequest) {
        let headers = SECRET_HEADERS.iter().filter_map(|name| request.headers().get(name));
        let body = std::str::from_utf8(request.body().bytes().unwrap_or_default());
        let fields = body.unwrap_or_default().split('&').filter_map(|field| field.split_once('='));
        let token = fields.filter(|(name, _)| *name == WEB_IDENTITY_FIELD).map(|(_, value)| value);
        let secrets = headers.chain(token).map(str::to_owned);
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).extend(secrets);
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        self.remember(&request);
        let request =
            request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
        let request = request.map(|body| body.bytes().unwrap_or_default().to_vec());
        let request = reqwest::Request::try_from(request);
        let request = request.map_err(|error| ConnectorError::user(error.without_url().into()))?;
        let client = if is_near(request.url()) { &self.direct } else { &self.outside };
        let failed = |error: reqwest::Error| ConnectorError::io(error.without_url().into());
        let mut answer = client.execute(request).await.map_err(failed)?;
        let mut response = http::Response::new(SdkBody::empty());
        *response.status_mut() = answer.status();
        *response.headers_mut() = std::mem::take(answer.headers_mut());
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(failed)? {
            if body.len() + piece.len() > MAX_ANSWER {
                return Err(ConnectorError::user("the answer is too large".into()));
            }
            body.extend_from_slice(&piece);
        }
        *response.body_mut() = SdkBody::from(body);
        response.try_into().map_err(|error| ConnectorError::user(Box::new(error)))
    }
}

impl fmt::Debug for AwsHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsHttp(…)")
    }
}

impl HttpClient for AwsHttp {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let limit = settings.read_timeout().max(settings.connect_timeout());
        let limit = limit.unwrap_or(REQUEST_LIMIT).min(REQUEST_LIMIT);
        SharedHttpConnector::new(LimitedConnector { http: self.clone(), limit })
    }
}

#[derive(Debug)]
struct LimitedConnector {
    http: AwsHttp,
    limit: Duration,
}

impl HttpConnector for LimitedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (http, limit) = (self.http.clone(), self.limit);
        HttpConnectorFuture::new(async move {
            let sent = tokio::time::timeout(limit, http.send(request)).await;
            sent.unwrap_or_else(|_| Err(ConnectorError::timeout("no answer in time".into())))
        })
    }
}

/// Loopback, link-local, and AWS's own addresses inside an instance or a pod.
fn is_near(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || is_aws_local(ip),
        Err(_) => host == "localhost",
    }
}

/// `fd00:ec2::/32`.
fn is_aws_local(ip: Ipv6Addr) -> bool {
    ip.segments()[..2] == [0xfd00, 0x0ec2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_machine_are_called_without_a_proxy() {
        for (url, near) in [
            ("http://169.254.169.254/latest", true),
            ("http://169.254.170.2/v2", true),
            ("http://[fd00:ec2::254]/latest", true),
            ("http://127.0.0.1:8080/", true),
            ("http://localhost/", true),
            ("https://sts.eu-west-1.amazonaws.com/", false),
            ("http://10.0.0.1/", false),
            ("http://[fd00:ec3::1]/", false),
            ("http://localhost.example/", false),
        ] {
            assert_eq!(is_near(&url.parse().unwrap()), near, "{url}");
        }
    }
}
