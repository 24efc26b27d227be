//! The HTTP client: proxies as the environment of the execution says, not that of this process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shikiri_client::{ProxyRules, http_client_builder};

use super::model_api_error::ModelApiError;
use super::model_provider::env_value;

const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Between two pieces of an answer, for calls without a limit of their own.
const READ_LIMIT: Duration = Duration::from_secs(90);

/// For a forwarded request: its sender has limits of its own.
const FORWARDED_READ_LIMIT: Duration = Duration::from_secs(600);

/// Clients by the proxies that they go through and the time they wait: runs share connections.
#[derive(Debug, Default)]
pub(crate) struct HttpClients(Mutex<BTreeMap<(Vec<String>, Duration), reqwest::Client>>);

impl HttpClients {
    /// For requests of ours.
    pub(crate) fn own(
        &self,
        env: &BTreeMap<String, String>,
    ) -> Result<reqwest::Client, ModelApiError> {
        self.get(env, READ_LIMIT)
    }

    /// For requests that others sent.
    pub(crate) fn forwarding(
        &self,
        env: &BTreeMap<String, String>,
    ) -> Result<reqwest::Client, ModelApiError> {
        self.get(env, FORWARDED_READ_LIMIT)
    }

    fn get(
        &self,
        env: &BTreeMap<String, String>,
        read_limit: Duration,
    ) -> Result<reqwest::Client, ModelApiError> {
        let proxies = env.iter().filter(|(name, _)| name.to_lowercase().ends_with("_proxy"));
        let proxies = proxies.map(|(name, value)| format!("{name}={value}")).collect();
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match clients.entry((proxies, read_limit)) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(place) => Ok(place.insert(build(env, read_limit)?).clone()),
        }
    }
}

pub(crate) fn client(env: &BTreeMap<String, String>) -> Result<reqwest::Client, ModelApiError> {
    build(env, READ_LIMIT)
}

fn build(
    env: &BTreeMap<String, String>,
    read_limit: Duration,
) -> Result<reqwest::Client, ModelApiError> {
    let proxies = ProxyRules::read(|name| env_value(env, name));
    let builder = http_client_builder(&proxies).map_err(ModelApiError::NotConfigured)?;
    let built = builder.connect_timeout(CONNECT_LIMIT).read_timeout(read_limit).build();
    built.map_err(|error| ModelApiError::NotConfigured(error.without_url().to_string()))
}
