//! The HTTP client: TLS by rustls on ring, which the PostgreSQL driver links too, and proxies as
//! the environment of the execution says, not that of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{NoProxy, Proxy};
use rustls::{ClientConfig, RootCertStore};

use super::failure::Failure;
use super::provider::set;

const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Between two pieces of an answer, for calls without a limit of their own.
const READ_LIMIT: Duration = Duration::from_secs(60);

type MakeProxy = fn(String) -> reqwest::Result<Proxy>;

pub(super) fn client(env: &BTreeMap<String, String>) -> Result<reqwest::Client, Failure> {
    let broken = |error: reqwest::Error| Failure::NotConfigured(error.without_url().to_string());
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls()?)
        .connect_timeout(CONNECT_LIMIT)
        .read_timeout(READ_LIMIT)
        // A key must not follow to where somebody points.
        .redirect(Policy::none())
        .no_proxy();
    for proxy in proxies(env)? {
        builder = builder.proxy(proxy);
    }
    builder.build().map_err(broken)
}

fn proxies(env: &BTreeMap<String, String>) -> Result<Vec<Proxy>, Failure> {
    let either = |name: &str| set(env, name).or_else(|| set(env, &name.to_lowercase()));
    let except = either("NO_PROXY").and_then(|hosts| NoProxy::from_string(&hosts));
    let ways: [(&str, MakeProxy); 3] =
        [("HTTPS_PROXY", Proxy::https), ("HTTP_PROXY", Proxy::http), ("ALL_PROXY", Proxy::all)];
    let named = ways.into_iter().filter_map(|(name, make)| Some((name, make, either(name)?)));
    let made = named.map(|(name, make, url)| {
        // The URL is not repeated: it may hold a password.
        let proxy =
            make(url).map_err(|_| Failure::NotConfigured(format!("{name} is not a URL")))?;
        Ok(proxy.no_proxy(except.clone()))
    });
    made.collect()
}

fn tls() -> Result<ClientConfig, Failure> {
    static TLS: OnceLock<Result<ClientConfig, String>> = OnceLock::new();
    let made = TLS.get_or_init(|| make_tls().map_err(|error| error.to_string()));
    made.clone().map_err(Failure::NotConfigured)
}

fn make_tls() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    // The machine's own, so that a company's gateway is trusted where its machines trust it.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        // A bare container: the public ones.
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(ring).with_safe_default_protocol_versions()?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
