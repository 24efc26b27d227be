//! Limits wrong passkeys, so that they cannot be guessed by trying.
//!
//! They are counted for each agent and client. Counted for the agent alone, any client that can
//! connect could lock an agent out by sending wrong passkeys in its name. A refused try is not
//! counted, so a locked-out client waits a minute at most, however often it asks in between. Agents
//! that this server starts itself need no passkey. Each process counts for itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shikiri_model::team::{RefusalCode, TeamRefusal};
use shikiri_model::time::Timestamp;
use tokio::sync::OwnedMutexGuard;

#[derive(Default)]
pub(crate) struct LoginThrottle(
    Mutex<HashMap<String, Arc<tokio::sync::Mutex<FailedLoginAttempts>>>>,
);

/// The times of one client's wrong passkeys for one agent.
#[derive(Default)]
pub(super) struct FailedLoginAttempts(Vec<Timestamp>);

const MAX_WRONG: usize = 10;
const WRONG_WITHIN: Duration = Duration::from_secs(60);
/// Past this many entries all are forgotten.
const MAX_COUNTED: usize = 10_000;

impl LoginThrottle {
    /// Locks one counter, so that parallel tries cannot get around the limit.
    pub(super) async fn of(&self, key: String) -> OwnedMutexGuard<FailedLoginAttempts> {
        let wrong = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= MAX_COUNTED && !all.contains_key(&key) {
                all.clear();
            }
            Arc::clone(all.entry(key).or_default())
        };
        wrong.lock_owned().await
    }
}

impl FailedLoginAttempts {
    pub(super) fn add(&mut self, now: Timestamp) {
        self.0.push(now);
    }

    /// Refuses a client that was wrong too often, and says how long that lasts.
    pub(super) fn check(&mut self, now: Timestamp) -> Result<(), TeamRefusal> {
        self.0.retain(|at| now < *at + WRONG_WITHIN);
        let Some(first) = self.0.first().filter(|_| self.0.len() >= MAX_WRONG) else {
            return Ok(());
        };
        let seconds = (*first + WRONG_WITHIN).since(now).as_millis().div_ceil(1_000);
        let message = format!(
            "too many wrong passkeys for this agent from you: no passkey is tried for another \
             {seconds} s, then try again with the right one"
        );
        Err(RefusalCode::NotAuthenticated.because(message))
    }
}
