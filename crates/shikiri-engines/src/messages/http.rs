//! The HTTP client: proxies as the environment of the execution says, not that of this process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{NoProxy, Proxy};
use shikiri_client::tls;

use super::failure::Failure;
use super::provider::set;

const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Between two pieces of an answer, for calls without a limit of their own.
const READ_LIMIT: Duration = Duration::from_secs(90);

type MakeProxy = fn(String) -> reqwest::Result<Proxy>;

/// For a forwarded request: its sender has limits of its own.
const FORWARDED_READ_LIMIT: Duration = Duration::from_secs(600);

/// Clients by the proxies that they go through and the time they wait: runs share connections.
#[derive(Debug, Default)]
pub(crate) struct HttpClients(Mutex<BTreeMap<(Vec<String>, Duration), reqwest::Client>>);

impl HttpClients {
    /// For requests of ours.
    pub(crate) fn own(&self, env: &BTreeMap<String, String>) -> Result<reqwest::Client, Failure> {
        self.get(env, READ_LIMIT)
    }

    /// For requests that others sent.
    pub(crate) fn forwarding(
        &self,
        env: &BTreeMap<String, String>,
    ) -> Result<reqwest::Client, Failure> {
        self.get(env, FORWARDED_READ_LIMIT)
    }

    fn get(
        &self,
        env: &BTreeMap<String, String>,
        read_limit: Duration,
    ) -> Result<reqwest::Client, Failure> {
        let proxies = env.iter().filter(|(name, _)| name.to_lowercase().ends_with("_proxy"));
        let proxies = proxies.map(|(name, value)| format!("{name}={value}")).collect();
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match clients.entry((proxies, read_limit)) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(place) => Ok(place.insert(build(env, read_limit)?).clone()),
        }
    }
}

pub(crate) fn client(env: &BTreeMap<String, String>) -> Result<reqwest::Client, Failure> {
    build(env, READ_LIMIT)
}

fn build(env: &BTreeMap<String, String>, read_limit: Duration) -> Result<reqwest::Client, Failure> {
    let broken = |error: reqwest::Error| Failure::NotConfigured(error.without_url().to_string());
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls().map_err(Failure::NotConfigured)?)
        .connect_timeout(CONNECT_LIMIT)
        .read_timeout(read_limit)
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
