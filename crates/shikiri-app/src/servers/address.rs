//! Which addresses are the world's, and which are this machine's or this network's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hyper::Uri;

/// Reads the URL of a server.
pub(super) fn uri(url: &str) -> Result<Uri, String> {
    url.parse().map_err(|error| format!("the url cannot be read: {error}"))
}

/// The addresses of a URL's host. If it has any that is not public, that is refused unless allowed:
/// whoever may name a URL must not reach what only this machine can.
pub(super) async fn resolve(uri: &Uri, allow_private: bool) -> Result<Vec<SocketAddr>, String> {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(if is_secure(uri) { 443 } else { 80 });
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::net::lookup_host((bare, port)).await;
    let found: Vec<SocketAddr> =
        found.map_err(|error| format!("{host} has no address: {error}"))?.collect();
    if found.is_empty() {
        return Err(format!("{host} has no address"));
    }
    match found.iter().find(|address| !allow_private && !is_public(address.ip())) {
        Some(private) => Err(format!(
            "{host} is at {}, which is a private address: an admin can set allow_private if that \
             is meant",
            private.ip()
        )),
        None => Ok(found),
    }
}

pub(super) fn is_secure(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b) {
        // "This network", and what carriers keep to themselves.
        (0, _) | (100, 64..=127) => true,
        // Protocol assignments, benchmarks, reserved.
        (192, 0) => c == 0,
        (198, 18 | 19) | (240.., _) => true,
        _ => false,
    };
    !(is_special
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // An IPv4 address in another dress: mapped, translated (NAT64) or 6to4.
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b) {
        (0, 0) if (c, d, e) == (0, 0, 0) && f == 0xffff => is_public_v4(v4(g, h)),
        (0x64, 0xff9b) => (c, d, e, f) == (0, 0, 0, 0) && is_public_v4(v4(g, h)),
        (0x2002, _) => is_public_v4(v4(b, c)),
        // Of the rest only 2000::/3 is the world's, without tunnels and what is for books.
        (0x2001, 0 | 0xdb8) => false,
        _ => a & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_worlds_addresses_are_public() {
        for public in ["1.1.1.1", "100.128.0.1", "172.32.0.1", "192.0.1.1", "2606:4700::1111"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::127.0.0.1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[tokio::test]
    async fn a_private_address_is_refused_unless_allowed() {
        let at = async |url, allow_private| resolve(&uri(url).unwrap(), allow_private).await;
        let refused = at("https://[::1]/mcp", false).await.unwrap_err();
        assert!(refused.contains("allow_private"), "{refused}");
        let allowed = at("http://127.0.0.1", true).await.unwrap();
        assert_eq!(allowed, ["127.0.0.1:80".parse().unwrap()]);
        // Spelt so that it does not look like what it is.
        assert!(at("http://127.1/", false).await.is_err());
    }
}
