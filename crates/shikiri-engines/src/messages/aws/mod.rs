//! AWS credentials for requests to Bedrock: variables, profiles (keys, roles, SSO, programs), web
//! identity, container and instance roles. A source caches its credentials, refreshes them before they
//! expire, and fetches once for any number of waiting requests.
//!
//! `credential_chain` uses AWS's own library (ADR 17), which sends its requests through
//! `http_connector`.

mod credential_chain;
mod http_connector;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use credential_chain::CredentialChain;
use http_connector::AwsHttp;
use shikiri_model::key::SecretToken;
use shikiri_model::time::Timestamp;

use super::aws_signature::AwsKeys;
use super::http_clients::HttpClients;
use super::model_api_error::ModelApiError;
use super::model_provider::env_value;

type Env = BTreeMap<String, String>;

/// Credentials are refreshed this long before they expire, or in the last quarter of a short lifetime.
const REFRESH_BEFORE_MS: i64 = 5 * 60 * 1_000;
/// Credentials without an expiry are read again after this: a file may have been edited.
const UNDATED_MS: i64 = 60 * 1_000;
/// How long a failure answers further requests, so that waiting ones do not fetch again.
const FAILURE_MS: i64 = 2 * 1_000;
/// The same while the cached credentials are still valid.
const FAILED_REFRESH_MS: i64 = 30 * 1_000;
/// Secrets that are kept for redaction. Open requests may hold those of earlier fetches.
const MAX_REMEMBERED: usize = 8;
/// Environments whose source is cached.
const MAX_SOURCES: usize = 64;

/// The sources of an engine by their environment, so that its runs and titles share credentials.
#[derive(Default)]
pub struct AwsCredentialSources {
    home: Option<PathBuf>,
    clients: HttpClients,
    sources: Mutex<BTreeMap<Env, Arc<AwsCredentialSource>>>,
}

impl AwsCredentialSources {
    /// With the profiles and the SSO logins in this home.
    pub fn at_home(home: Option<PathBuf>) -> Self {
        Self { home, ..Self::default() }
    }

    /// The source of an environment, and the region to call, which is `region` if that is known.
    pub(super) async fn source(
        &self,
        env: &Env,
        region: Option<String>,
    ) -> Result<(Arc<AwsCredentialSource>, Option<String>), ModelApiError> {
        let mut own = self.own_env(env);
        let region = match region {
            Some(region) => Some(region),
            None => credential_chain::profile_region(&own).await?,
        };
        if let Some(region) = &region {
            own.insert("AWS_REGION".to_owned(), region.clone());
        }
        let known = self.sources().get(&own).cloned();
        if let Some(source) = known {
            return Ok((source, region));
        }
        let http = AwsHttp::new(self.clients.own(env)?, self.clients.own(&Env::new())?);
        let chain = CredentialChain::new(own.clone(), http);
        let mut sources = self.sources();
        if sources.len() >= MAX_SOURCES {
            sources.clear();
        }
        let source = sources.entry(own).or_insert_with(|| Arc::new(AwsCredentialSource::of(chain)));
        Ok((Arc::clone(source), region))
    }

    /// The variables that affect credentials and how they are fetched.
    fn own_env(&self, env: &Env) -> Env {
        let is_own = |name: &str| {
            name.starts_with("AWS_") || name == "HOME" || name.to_lowercase().ends_with("_proxy")
        };
        let own = env.keys().filter(|name| is_own(name));
        let mut own: Env =
            own.filter_map(|name| Some((name.clone(), env_value(env, name)?))).collect();
        if let Some(home) = &self.home {
            own.insert("HOME".to_owned(), home.to_string_lossy().into_owned());
        }
        own
    }

    fn sources(&self) -> MutexGuard<'_, BTreeMap<Env, Arc<AwsCredentialSource>>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AwsCredentialSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsCredentialSources").field("home", &self.home).finish_non_exhaustive()
    }
}

/// The credentials of one environment.
pub struct AwsCredentialSource {
    chain: CredentialChain,
    held: Mutex<CredentialCache>,
    /// Held by the request that fetches.
    fetching: tokio::sync::Mutex<()>,
}

impl fmt::Debug for AwsCredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsCredentialSource(…)")
    }
}

impl AwsCredentialSource {
    fn of(chain: CredentialChain) -> Self {
        Self { chain, held: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }

    /// Keys that are good at `now`.
    pub(super) async fn keys(&self, now: Timestamp) -> Result<AwsKeys, ModelApiError> {
        let at_hand = self.lock_cache().answer(now);
        if let Some(answer) = at_hand {
            return answer;
        }
        let still_good = self.lock_cache().good_keys(now);
        let _fetching = match still_good {
            // Another request is fetching, and the cached keys are still valid.
            Some(keys) => match self.fetching.try_lock() {
                Ok(fetching) => fetching,
                Err(_) => return Ok(keys),
            },
            None => self.fetching.lock().await,
        };
        let fetched_meanwhile = self.lock_cache().answer(now);
        if let Some(answer) = fetched_meanwhile {
            return answer;
        }
        let fetched = self.chain.fetch(now).await;
        self.lock_cache().take(fetched, now)
    }

    /// The secrets to redact.
    pub(super) fn secrets(&self) -> Vec<SecretToken> {
        self.lock_cache().secrets.iter().cloned().collect()
    }

    fn lock_cache(&self) -> MutexGuard<'_, CredentialCache> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keys, and how long they are good.
struct FetchedKeys {
    keys: AwsKeys,
    fetched_at: Timestamp,
    expires_at: Option<Timestamp>,
}

impl FetchedKeys {
    fn is_good(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        let fetched = self.fetched_at.as_millis();
        let until = match self.expires_at.map(Timestamp::as_millis) {
            Some(end) => end - REFRESH_BEFORE_MS.min(end.saturating_sub(fetched) / 4),
            None => fetched + UNDATED_MS,
        };
        now.as_millis() < until
    }
}

#[derive(Default)]
struct CredentialCache {
    fetched: Option<FetchedKeys>,
    /// The failure of the last fetch, and until when it answers.
    failure: Option<(Timestamp, ModelApiError)>,
    /// The most recent secrets, for redaction.
    secrets: VecDeque<SecretToken>,
}

impl CredentialCache {
    /// The cached answer, if no fetch is necessary.
    fn answer(&self, now: Timestamp) -> Option<Result<AwsKeys, ModelApiError>> {
        let fetched = self.fetched.as_ref();
        if let Some(fetched) = fetched.filter(|fetched| fetched.is_fresh(now)) {
            return Some(Ok(fetched.keys.clone()));
        }
        let (until, failure) = self.failure.as_ref()?;
        (now < *until).then(|| self.good_keys(now).ok_or_else(|| failure.clone()))
    }

    fn good_keys(&self, now: Timestamp) -> Option<AwsKeys> {
        let fetched = self.fetched.as_ref().filter(|fetched| fetched.is_good(now))?;
        Some(fetched.keys.clone())
    }

    fn take(
        &mut self,
        fetched: Result<FetchedKeys, ModelApiError>,
        now: Timestamp,
    ) -> Result<AwsKeys, ModelApiError> {
        let failure = match fetched {
            Ok(fetched) => {
                self.remember(&fetched.keys);
                self.failure = None;
                let keys = fetched.keys.clone();
                self.fetched = Some(fetched);
                return Ok(keys);
            }
            Err(failure) => failure,
        };
        let good = self.good_keys(now);
        let pause = if good.is_some() { FAILED_REFRESH_MS } else { FAILURE_MS };
        self.failure = Some((Timestamp::from_millis(now.as_millis() + pause), failure.clone()));
        let Some(keys) = good else { return Err(failure) };
        tracing::warn!(%failure, "AWS credentials could not be refreshed; the last ones are used");
        Ok(keys)
    }

    fn remember(&mut self, keys: &AwsKeys) {
        for secret in [Some(&keys.secret), keys.session_token.as_ref()].into_iter().flatten() {
            if self.secrets.iter().all(|known| known.reveal() != secret.reveal()) {
                self.secrets.push_back(secret.clone());
            }
        }
        let surplus = self.secrets.len().saturating_sub(MAX_REMEMBERED);
        self.secrets.drain(..surplus);
    }
}
