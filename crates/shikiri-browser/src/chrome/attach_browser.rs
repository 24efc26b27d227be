//! Attaches to a running browser at an address from the settings.

use std::io;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::{BrowserEndpoint, BrowserHandle, BrowserOptions, port_owner};
use crate::cdp::BrowserTabs;
use crate::error::BrowserError;
use crate::loopback_host::is_loopback;

const PATIENCE: Duration = Duration::from_secs(5);
const MAX_ANSWER: usize = 64 * 1024;
const NEXT: &str = "start Chrome with --remote-debugging-port and a --user-data-dir of its own, or \
                    leave SHIKIRI_BROWSER_URL out to have one started";

pub(super) async fn attach(
    text: &str,
    options: &BrowserOptions,
) -> Result<BrowserHandle, BrowserError> {
    let url = check(text, options.allow_remote)?;
    let endpoint = tokio::time::timeout(PATIENCE, find(&url)).await.unwrap_or_else(|_| {
        Err(BrowserError::unavailable(format!("nothing answers at {text} in time; {NEXT}")))
    })?;
    let refused = |error: BrowserError| {
        BrowserError::unavailable(format!("{text} cannot be driven: {error}; {NEXT}"))
    };
    let tabs = BrowserTabs::of(&endpoint).await.map_err(refused)?;
    let is_headless = tabs.is_headless().await.map_err(refused)?;
    Ok(BrowserHandle { endpoint, is_headless, _users: None })
}

/// Checks that an address may be used.
pub(super) fn check(text: &str, allow_remote: bool) -> Result<Url, BrowserError> {
    let wrong = |why: &str| BrowserError::unavailable(format!("SHIKIRI_BROWSER_URL: {text} {why}"));
    let url = Url::parse(text).map_err(|_| wrong("is no address; write http://127.0.0.1:PORT"))?;
    if !matches!(url.scheme(), "http" | "ws") || url.port_or_known_default().is_none() {
        return Err(wrong("has to begin with http:// or ws://"));
    }
    let host = url.host().ok_or_else(|| wrong("names no host"))?;
    if allow_remote {
        return Ok(url);
    }
    if !is_loopback(host) {
        return Err(wrong(
            "is not on this machine: whoever drives a browser can read all of it, and the way there \
             is open to listeners; SHIKIRI_BROWSER_ALLOW_REMOTE=true allows it",
        ));
    }
    let us = rustix::process::geteuid().as_raw();
    match url.port_or_known_default().and_then(port_owner::listener) {
        Some(user) if user != us => Err(wrong(&format!(
            "belongs to another user (id {user}): start a Chrome of your own; \
             SHIKIRI_BROWSER_ALLOW_REMOTE=true allows it"
        ))),
        _ => Ok(url),
    }
}

async fn find(url: &Url) -> Result<BrowserEndpoint, BrowserError> {
    if url.scheme() == "ws" {
        return Ok(BrowserEndpoint::WebSocket(url.to_string()));
    }
    let version = fetch_version(url).await.map_err(|why| {
        BrowserError::unavailable(format!("no browser to drive at {url}: {why}; {NEXT}"))
    })?;
    // The browser may report another host; the configured one is reachable.
    let path = Url::parse(&version.browser)
        .map_err(|error| BrowserError::unavailable(format!("{url} names no browser: {error}")))?;
    Ok(BrowserEndpoint::WebSocket(format!("ws://{}{}", url.authority(), path.path())))
}

#[derive(Deserialize)]
struct DevtoolsVersion {
    #[serde(rename = "webSocketDebuggerUrl")]
    browser: String,
}

async fn fetch_version(url: &Url) -> io::Result<DevtoolsVersion> {
    let port = url.port_or_known_default().unwrap_or(80);
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host, port)).await?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(io::Error::other)?;
    // The connection ends with the request.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::get("/json/version")
        .header(header::HOST, url.authority())
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let answer = sender.send_request(request).await.map_err(io::Error::other)?;
    if answer.status() != StatusCode::OK {
        return Err(io::Error::other(format!("it answers {}", answer.status())));
    }
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(io::Error::other)?.to_bytes();
    serde_json::from_slice(&body).map_err(|_| io::Error::other("it is no browser"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_may_be_named_unless_allowed() {
        for good in ["http://127.0.0.1:1", "http://localhost:1/", "ws://[::1]:1/devtools/browser/x"]
        {
            assert!(check(good, false).is_ok(), "{good}");
        }
        for bad in ["", "127.0.0.1:9222", "https://127.0.0.1:1", "file:///x", "http://"] {
            assert!(check(bad, true).is_err(), "{bad}");
        }
        for far in ["http://192.0.2.1:9222", "ws://browser.example/devtools/browser/x"] {
            let error = check(far, false).unwrap_err().to_string();
            assert!(error.contains("is not on this machine"), "{error}");
            assert!(check(far, true).is_ok(), "{far}");
        }
    }
}
