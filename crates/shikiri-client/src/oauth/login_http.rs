//! The HTTP client of the login: with the product's TLS set-up, and with bounds.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::redirect::Policy;
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy,
    OAuthHttpRequest,
};

use crate::http_setup::{ProxyRules, http_client_builder};

/// The largest document of a login.
const MAX_BODY: usize = 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct LoginHttpClient {
    follows: reqwest::Client,
    stops: reqwest::Client,
}

impl LoginHttpClient {
    pub(super) fn new() -> Result<Self, String> {
        let build = |policy: Policy| {
            let builder = http_client_builder(&ProxyRules::from_environment())?;
            let built = builder.timeout(PATIENCE).redirect(policy).build();
            built.map_err(|error| error.to_string())
        };
        Ok(Self { follows: build(Policy::limited(5))?, stops: build(Policy::none())? })
    }
}

impl OAuthHttpClient for LoginHttpClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        let client = match request.redirect_policy {
            OAuthHttpRedirectPolicy::Follow => &self.follows,
            _ => &self.stops,
        };
        Box::pin(async move {
            let request = reqwest::Request::try_from(request.request)?;
            let response = client.execute(request).await?;
            let mut answer = http::Response::builder().status(response.status());
            for (name, value) in response.headers() {
                answer = answer.header(name, value);
            }
            let mut parts = response.bytes_stream();
            let mut body = Vec::new();
            while let Some(part) = parts.next().await {
                body.extend_from_slice(&part?);
                if body.len() > MAX_BODY {
                    return Err(OAuthHttpClientError::from("an answer of more than 1 MiB"));
                }
            }
            Ok(answer.body(body)?)
        })
    }
}
