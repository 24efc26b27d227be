//! The set-up that the product's HTTP clients share: certificates, proxies, checked addresses.

use std::net::{IpAddr, SocketAddr};

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, NoProxy, Proxy, Url};

use crate::transport::tls::tls_config;

/// A proxy cannot reach the loopback addresses of this machine, only its own.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

type MakeProxy = fn(String) -> reqwest::Result<Proxy>;

/// The proxies that an environment names in `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
/// Their URLs may hold passwords, so they are not printed.
#[derive(Clone, Default)]
pub struct ProxyRules {
    https: Option<String>,
    http: Option<String>,
    all: Option<String>,
    no_proxy: String,
}

impl ProxyRules {
    /// The rules in this process's environment.
    pub fn from_environment() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Reads each variable by its upper-case name, else by its lower-case name.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let either = |name: &str| {
            let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
            set(name).or_else(|| set(&name.to_ascii_lowercase()))
        };
        let except = either("NO_PROXY").map(|hosts| format!(",{hosts}")).unwrap_or_default();
        Self {
            https: either("HTTPS_PROXY"),
            http: either("HTTP_PROXY"),
            all: either("ALL_PROXY"),
            no_proxy: format!("{LOOPBACK}{except}"),
        }
    }

    /// Whether requests to a URL go through a proxy, which then resolves the host.
    pub fn covers(&self, url: &str) -> bool {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let rules = Matcher::builder().https(text(&self.https)).http(text(&self.http));
        let rules = rules.all(text(&self.all)).no(self.no_proxy.clone()).build();
        url.parse().is_ok_and(|uri| rules.intercept(&uri).is_some())
    }

    fn apply(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, String> {
        let ways: [(&str, MakeProxy, &Option<String>); 3] = [
            ("HTTPS_PROXY", Proxy::https, &self.https),
            ("HTTP_PROXY", Proxy::http, &self.http),
            ("ALL_PROXY", Proxy::all, &self.all),
        ];
        // Otherwise reqwest would read this process's environment.
        builder = builder.no_proxy();
        for (name, make, url) in ways {
            let Some(url) = url else { continue };
            // The URL is not repeated: it may hold a password.
            let proxy = make(url.clone()).map_err(|_| format!("{name} is not a URL"))?;
            builder = builder.proxy(proxy.no_proxy(NoProxy::from_string(&self.no_proxy)));
        }
        Ok(builder)
    }
}

/// A client with the product's certificates. It follows no redirects, since they would carry the
/// headers and the secrets in them to another host.
pub fn http_client_builder(proxies: &ProxyRules) -> Result<ClientBuilder, String> {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls_config()?)
        .redirect(Policy::none())
        .tcp_nodelay(true);
    proxies.apply(builder)
}

/// Connects to the host of `url` at these addresses only, which the caller has checked. The name is
/// not resolved again. Without addresses, it is resolved as usual.
pub fn pin_addresses(
    builder: ClientBuilder,
    url: &str,
    addresses: &[SocketAddr],
) -> Result<ClientBuilder, String> {
    if addresses.is_empty() {
        return Ok(builder);
    }
    let url = Url::parse(url).map_err(|error| format!("the url cannot be read: {error}"))?;
    let host = url.host_str().ok_or("the url names no host")?;
    // A literal address is not resolved, so the pinned addresses would not apply to it.
    if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>()
        && !addresses.iter().any(|checked| checked.ip() == address)
    {
        return Err(format!("{host} is not the address that was checked"));
    }
    Ok(builder.resolve_to_addrs(host, addresses))
}

/// The error text without the URL, which may hold a secret.
pub fn describe_http_error(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let text = cause.to_string();
    if error.is_timeout() { "it took too long".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(variables: &[(&str, &str)]) -> ProxyRules {
        ProxyRules::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn no_proxy_excepts_its_hosts_and_loopback_is_never_behind_a_proxy() {
        let proxies =
            rules(&[("HTTPS_PROXY", "http://p:1"), ("no_proxy", "inside.test,10.0.0.0/8")]);
        assert!(proxies.covers("https://outside.test/mcp"));
        for direct in [
            "http://outside.test/",
            "https://inside.test/",
            "https://a.inside.test/",
            "https://10.1.2.3/",
            "https://localhost:1/",
            "https://127.8.9.1/",
            "https://[::1]/",
        ] {
            assert!(!proxies.covers(direct), "{direct}");
        }
        assert!(rules(&[("all_proxy", "http://p:1")]).covers("http://outside.test/"));
        assert!(!rules(&[]).covers("https://outside.test/"));
        let none = rules(&[("ALL_PROXY", "http://p:1"), ("NO_PROXY", "*")]);
        assert!(!none.covers("https://outside.test/"));
    }

    #[test]
    fn a_proxy_that_is_no_url_is_an_error_that_does_not_repeat_it() {
        let refused = http_client_builder(&rules(&[("HTTPS_PROXY", "http://秘密:x@[")])).err();
        assert_eq!(refused.as_deref(), Some("HTTPS_PROXY is not a URL"));
    }

    #[test]
    fn an_address_in_a_url_must_be_one_that_was_checked() {
        let checked = ["192.0.2.1:80".parse().unwrap()];
        let pin = |url: &str| {
            let builder = http_client_builder(&ProxyRules::default()).unwrap();
            pin_addresses(builder, url, &checked).map(drop)
        };
        assert_eq!(pin("http://192.0.2.1/"), Ok(()));
        assert_eq!(pin("http://name.test/"), Ok(()));
        // One spelling of 127.0.0.1.
        for other in ["http://127.1/", "http://0x7f000001/", "http://[::1]/"] {
            assert!(pin(other).is_err(), "{other}");
        }
    }
}
