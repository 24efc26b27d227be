//! The URL of a server: `http://host:port` or `https://host[:port]`.

/// A server's address as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    pub is_secure: bool,
    /// Host and port as written.
    pub authority: String,
    port: u16,
}

/// The port of https if none is written.
const SECURE_PORT: u16 = 443;

impl ServerUrl {
    /// None if it is no server's URL. Without a scheme, http is assumed.
    pub fn parse(url: &str) -> Option<Self> {
        let (is_secure, rest) = match url.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, url.strip_prefix("http://").unwrap_or(url)),
        };
        let authority = rest.trim_end_matches('/');
        let port = match authority.rsplit_once(':') {
            // The colons of an IPv6 address in brackets.
            Some((_, port)) if !port.ends_with(']') => Some(port.parse().ok()?),
            _ => None,
        };
        let port = port.or(is_secure.then_some(SECURE_PORT))?;
        let is_plain = !authority.contains(['/', '@', '?', '#', ' ']);
        let url = Self { is_secure, authority: authority.to_owned(), port };
        (is_plain && !url.bare_host().is_empty()).then_some(url)
    }

    /// The host without port and brackets.
    pub fn bare_host(&self) -> &str {
        let host = match self.authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => host,
            _ => &self.authority,
        };
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The host and port to look up.
    pub fn place(&self) -> (&str, u16) {
        (self.bare_host(), self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_scheme_host_and_port() {
        for (url, is_secure, place) in [
            ("http://127.0.0.1:7420/", false, ("127.0.0.1", 7420)),
            ("localhost:7420", false, ("localhost", 7420)),
            ("http://[::1]:1", false, ("::1", 1)),
            ("https://host", true, ("host", 443)),
            ("https://host:8443/", true, ("host", 8443)),
            ("https://[2001:db8::1]", true, ("2001:db8::1", 443)),
        ] {
            let parsed = ServerUrl::parse(url).unwrap_or_else(|| panic!("{url}"));
            assert_eq!((parsed.is_secure, parsed.place()), (is_secure, place), "{url}");
        }
        for bad in [
            "",
            "http://",
            "https://",
            "http://host",
            "http://a:1/v1",
            "http://u@a:1",
            "https://:1",
        ] {
            assert_eq!(ServerUrl::parse(bad), None, "{bad}");
        }
    }
}
