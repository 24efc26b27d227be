//! Host and Origin checks: no web page may talk to this server through its visitor's browser.
//!
//! A page of another site whose name points at our address (DNS rebinding) still sends that name as
//! Host, and its own Origin. Both are refused before anything else is read.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Uri, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::problem_response::{Code, ProblemResponse};
use crate::web_options::WebOptions;
use crate::web_state::SharedWebState;

pub(crate) async fn check_host_and_origin(
    State(web): State<SharedWebState>,
    request: Request,
    next: Next,
) -> Result<Response, ProblemResponse> {
    allow(&web.options, request.uri(), request.headers())?;
    Ok(next.run(request).await)
}

fn allow(options: &WebOptions, uri: &Uri, headers: &HeaderMap) -> Result<(), ProblemResponse> {
    let host = match (uri.authority(), single(headers, header::HOST)?) {
        // A full address in the request line wins over the header (RFC 9112, 3.2.2).
        (Some(authority), _) => authority.clone(),
        (None, Some(text)) => {
            parse(text).ok_or_else(|| ProblemResponse::invalid("Host", "is not a host"))?
        }
        (None, None) => return Err(ProblemResponse::invalid("Host", "is missing")),
    };
    if !is_allowed_host(options, &host) {
        let detail = "this server is not called that: add the name with --allow-host";
        return Err(ProblemResponse::new(Code::HostNotAllowed, detail));
    }
    match single(headers, header::ORIGIN)? {
        Some(origin) if !is_allowed_origin(options, origin, &host) => {
            let detail = "pages of other sites may not call this server";
            Err(ProblemResponse::new(Code::OriginNotAllowed, detail))
        }
        _ => Ok(()),
    }
}

/// Two headers of one name could be read differently by a proxy and by us.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, ProblemResponse> {
    let mut values = headers.get_all(&name).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(ProblemResponse::invalid(name.as_str(), "was sent twice"));
    }
    let text = first.map(|value| value.to_str());
    text.transpose().map_err(|_| ProblemResponse::invalid(name.as_str(), "is not text"))
}

fn parse(text: &str) -> Option<Authority> {
    let authority: Authority = text.parse().ok()?;
    (!authority.as_str().contains('@') && !authority.host().is_empty()).then_some(authority)
}

fn is_allowed_host(options: &WebOptions, host: &Authority) -> bool {
    is_loopback(host)
        || is_listed(options, host)
        // DNS rebinding needs a name: a person typed an address that is sent as Host.
        || (!options.listen.ip().is_loopback() && ip(host).is_some())
}

/// The page is one of ours: same port, and the same host or two names of this machine.
fn is_allowed_origin(options: &WebOptions, origin: &str, host: &Authority) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let Some(origin) = rest.and_then(parse) else { return false };
    let same_host = origin.host().eq_ignore_ascii_case(host.host())
        || (is_loopback(&origin) && is_loopback(host));
    is_listed(options, &origin) || (same_host && origin.port_u16() == host.port_u16())
}

fn is_listed(options: &WebOptions, host: &Authority) -> bool {
    options.allowed_hosts.iter().any(|allowed| {
        allowed.eq_ignore_ascii_case(host.host()) || allowed.eq_ignore_ascii_case(host.as_str())
    })
}

fn is_loopback(host: &Authority) -> bool {
    host.host().eq_ignore_ascii_case("localhost") || ip(host).is_some_and(|ip| ip.is_loopback())
}

fn ip(host: &Authority) -> Option<IpAddr> {
    host.host().trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
#[path = "host_check_tests.rs"]
mod tests;
