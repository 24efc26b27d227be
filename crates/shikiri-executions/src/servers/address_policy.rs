//! Which addresses are public, and which belong to this machine or this network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hyper::Uri;
use shikiri_client::ProxyRules;

/// Reads the URL of a server.
pub(super) fn uri(url: &str) -> Result<Uri, String> {
    url.parse().map_err(|error| format!("the url cannot be read: {error}"))
}

/// Resolves the host of a URL. A host with a non-public address is refused unless that is allowed:
/// a tenant's URL must not reach what only this machine can reach. The refusal is the same for an
/// unknown name and does not reveal the addresses, since they describe the internal network. An
/// unknown name that is reached through a proxy has no addresses: the proxy checks them.
pub(super) async fn resolve(
    uri: &Uri,
    allow_private: bool,
    proxies: &ProxyRules,
) -> Result<Vec<SocketAddr>, String> {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::net::lookup_host((bare, port)).await;
    let found = match found.map(Vec::from_iter) {
        Err(_) if proxies.covers(&uri.to_string()) => return Ok(Vec::new()),
        Err(error) if allow_private => return Err(format!("{host} has no address: {error}")),
        Err(_) => Vec::new(),
        Ok(found) => found,
    };
    let is_open = allow_private || found.iter().all(|address| is_public(address.ip()));
    match found.is_empty() {
        false if is_open => Ok(found),
        true if allow_private => Err(format!("{host} has no address")),
        _ => Err(format!(
            "{host} has no public address: an admin can set allow_private if a private address is \
             meant"
        )),
    }
}

/// Whether the host of a URL is written as an address that is not public.
pub(super) fn is_private_literal(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse().is_ok_and(|address| !is_public(address))
}

pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Whether an address belongs to another machine, private networks included. Loopback, link-local
/// (cloud metadata services), multicast and unspecified addresses do not.
pub fn is_other_machine(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_other_machine_v4(v4),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => is_other_machine_v4(v4),
            None => {
                let is_link_local = v6.segments()[0] & 0xffc0 == 0xfe80;
                !(v6.is_loopback() || v6.is_unspecified() || v6.is_multicast() || is_link_local)
            }
        },
    }
}

fn is_other_machine_v4(address: Ipv4Addr) -> bool {
    let [a, ..] = address.octets();
    !(address.is_loopback() || address.is_link_local() || a == 0 || a >= 224)
}

/// The IPv4 address inside an IPv6 address: mapped, compatible, translated (NAT64) or 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        // `::` and `::1` are not IPv4 addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, g, h] | [0x64, 0xff9b, .., g, h] => Some(v4(g, h)),
        [0x2002, b, c, ..] => Some(v4(b, c)),
        _ => None,
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b) {
        // "This network", and carrier-grade NAT.
        (0, _) | (100, 64..=127) => true,
        // Protocol assignments; the former 6to4 relays.
        (192, 0) => c == 0,
        (192, 88) => c == 99,
        // Benchmarking, reserved.
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
    // IPv4 addresses inside IPv6: mapped, translated (NAT64) or 6to4.
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b) {
        (0, 0) if (c, d, e) == (0, 0, 0) && f == 0xffff => is_public_v4(v4(g, h)),
        (0x64, 0xff9b) => (c, d, e, f) == (0, 0, 0, 0) && is_public_v4(v4(g, h)),
        (0x2002, _) => is_public_v4(v4(b, c)),
        // Of the rest only 2000::/3 is public, except protocol assignments (2001::/23: tunnels,
        // benchmarking, identifiers) and documentation (2001:db8::/32, 3fff::/20).
        (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff) => false,
        _ => a & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_worlds_addresses_are_public() {
        for public in ["1.1.1.1", "100.128.0.1", "172.32.0.1", "192.0.1.1", "2606:4700::1111"]
            .into_iter()
            .chain([
                "192.88.98.1",
                "192.88.100.1",
                "2001:200::1",
                "3fff:1000::1",
                "64:ff9b::1.1.1.1",
            ])
        {
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
            // Non-public entries of IANA's special-purpose address registries.
            "192.88.99.1",
            "192.0.0.9",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "240.0.0.1",
            "64:ff9b:1::1",
            "100::1",
            "100:0:0:1::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:30::1",
            "2002:c058:6301::",
            "::ffff:192.88.99.1",
            "3fff::1",
            "3fff:fff::1",
            "5f00::1",
            "fec0::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[test]
    fn private_networks_are_other_machines_and_this_host_is_not() {
        for other in ["1.1.1.1", "10.1.2.3", "192.168.0.1", "100.64.0.1", "fd12::1", "2606::1"] {
            assert!(is_other_machine(other.parse().unwrap()), "{other}");
        }
        for own in [
            "127.0.0.1",
            "127.8.9.1",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::127.0.0.1",
            "2002:7f00:1::",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!is_other_machine(own.parse().unwrap()), "{own}");
        }
    }

    #[tokio::test]
    async fn a_private_address_is_refused_unless_allowed() {
        let direct = ProxyRules::default();
        let at =
            async |url, allow_private| resolve(&uri(url).unwrap(), allow_private, &direct).await;
        let refused = at("https://[::1]/mcp", false).await.unwrap_err();
        assert!(refused.contains("allow_private"), "{refused}");
        let allowed = at("http://127.0.0.1", true).await.unwrap();
        assert_eq!(allowed, ["127.0.0.1:80".parse().unwrap()]);
        // The refusal reveals neither the addresses nor whether the name exists.
        let (inside, nowhere) =
            (at("http://localhost/", false).await, at("http://nowhere.invalid/", false).await);
        let text = inside.unwrap_err().replace("localhost", "nowhere.invalid");
        assert_eq!(text, nowhere.unwrap_err());
        assert!(!text.contains("127.0.0.1") && !text.contains("::1"), "{text}");
        // An obscured spelling of 127.0.0.1.
        assert!(at("http://127.1/", false).await.is_err());
    }

    #[tokio::test]
    async fn a_name_that_is_unknown_here_is_left_to_a_proxy_and_a_private_one_is_not() {
        let proxies = ProxyRules::read(|name| {
            (name == "HTTPS_PROXY").then(|| "http://192.0.2.1:3128".to_owned())
        });
        let at = async |url| resolve(&uri(url).unwrap(), false, &proxies).await;
        assert_eq!(at("https://nowhere.invalid/").await, Ok(Vec::new()));
        for refused in ["https://10.0.0.1/", "https://localhost/", "http://nowhere.invalid/"] {
            assert!(at(refused).await.unwrap_err().contains("allow_private"), "{refused}");
        }
    }
}
