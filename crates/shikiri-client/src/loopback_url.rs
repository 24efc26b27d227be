//! Recognises URLs of this machine.

use std::net::IpAddr;

use reqwest::Url;

/// Whether a URL leads to this machine, with or without user information before the host.
pub fn is_loopback_url(address: &str) -> bool {
    let Ok(url) = Url::parse(address) else { return false };
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_here() {
        for here in [
            "http://127.0.0.1:7420/mcp",
            "http://127.0.0.1/mcp",
            "http://localhost:1/",
            "https://localhost/",
            "http://[::1]:7420/mcp",
            "http://user@127.0.0.1:1/",
        ] {
            assert!(is_loopback_url(here), "{here}");
        }
        for elsewhere in [
            "http://127.0.0.1:7420@evil.example/mcp",
            "http://localhost:1@evil.example/",
            "http://evil.example\\@127.0.0.1/",
            "http://127.0.0.1.evil.example:1/",
            "http://localhost.evil.example/",
            "https://evil.example/?http://127.0.0.1:1/",
            "http://10.0.0.1:7420/mcp",
            "nonsense",
        ] {
            assert!(!is_loopback_url(elsewhere), "{elsewhere}");
        }
    }
}
