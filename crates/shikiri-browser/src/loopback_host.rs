//! Tells hosts of this machine from others.

use url::Host;

/// Whether a host of a URL is this machine.
pub(crate) fn is_loopback(host: Host<&str>) -> bool {
    match host {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(ip) => ip.is_loopback(),
        Host::Ipv6(ip) => ip.is_loopback(),
    }
}
