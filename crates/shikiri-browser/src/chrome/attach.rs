//! A browser that somebody else started and whose address was named.

use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;
use url::{Host, Url};

use super::{BrowserOptions, Endpoint, Held, owner};
use crate::cdp::Tabs;
use crate::error::BrowserError;

const PATIENCE: Duration = Duration::from_secs(5);
const MAX_ANSWER: usize = 64 * 1024;
const NEXT: &str = "start Chrome with --remote-debugging-port and a --user-data-dir of its own, or \
                    leave SHIKIRI_BROWSER_URL out to have one started";

pub(super) async fn attach(text: &str, options: &BrowserOptions) -> Result<Held, BrowserError> {
    let url = check(text, options.allow_remote)?;
    let endpoint = tokio::time::timeout(PATIENCE, find(&url)).await.unwrap_or_else(|_| {
        Err(BrowserError::unavailable(format!("nothing answers at {text} in time; {NEXT}")))
    })?;
    let told = |error: BrowserError| {
        BrowserError::unavailable(format!("{text} lets nobody drive it: {error}; {NEXT}"))
    };
    let tabs = Tabs::of(&endpoint).await.map_err(told)?;
    let is_headless = tabs.is_headless().await.map_err(told)?;
    Ok(Held { endpoint, is_headless, _users: None })
}

/// Whether such an address may be used at all.
pub(super) fn check(text: &str, allow_remote: bool) -> Result<Url, BrowserError> {
    let wrong = |why: &str| BrowserError::unavailable(format!("SHIKIRI_BROWSER_URL: {text} {why}"));
    let url = Url::parse(text).map_err(|_| wrong("is no address; write http://127.0.0.1:PORT"))?;
    if !matches!(url.scheme(), "http" | "ws") || url.port_or_known_default().is_none() {
        return Err(wrong("has to begin with http:// or ws://"));
    }
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => return Err(wrong("names no host")),
    };
    if allow_remote {
        return Ok(url);
    }
    if !is_here {
        return Err(wrong(
            "is not on this machine: whoever drives a browser can read all of it, and the way there \
             is open to listeners; SHIKIRI_BROWSER_ALLOW_REMOTE=true allows it",
        ));
    }
    let us = rustix::process::geteuid().as_raw();
    match url.port_or_known_default().and_then(owner::listener) {
        Some(user) if user != us => Err(wrong(&format!(
            "belongs to another user (id {user}): start a Chrome of your own; \
             SHIKIRI_BROWSER_ALLOW_REMOTE=true allows it"
        ))),
        _ => Ok(url),
    }
}

async fn find(url: &Url) -> Result<Endpoint, BrowserError> {
    if url.scheme() == "ws" {
        return Ok(Endpoint::WebSocket(url.to_string()));
    }
    let version = version(url).await.map_err(|why| {
        BrowserError::unavailable(format!("no browser to drive at {url}: {why}; {NEXT}"))
    })?;
    // It may know itself by another name; what leads to it is what was named.
    let path = Url::parse(&version.browser)
        .map_err(|error| BrowserError::unavailable(format!("{url} names no browser: {error}")))?;
    Ok(Endpoint::WebSocket(format!("ws://{}{}", url.authority(), path.path())))
}

#[derive(Deserialize)]
struct Version {
    #[serde(rename = "webSocketDebuggerUrl")]
    browser: String,
}

async fn version(url: &Url) -> Result<Version, String> {
    let port = url.port_or_known_default().unwrap_or(80);
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    let shake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shake.map_err(|error| error.to_string())?;
    // It ends with the request.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::get("/json/version")
        .header(header::HOST, url.authority())
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    if answer.status() != StatusCode::OK {
        return Err(format!("it answers {}", answer.status()));
    }
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    serde_json::from_slice(&body).map_err(|_| "it is no browser".to_owned())
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
            let told = check(far, false).unwrap_err().to_string();
            assert!(told.contains("is not on this machine"), "{told}");
            assert!(check(far, true).is_ok(), "{far}");
        }
    }
}
