//! Wrong passkeys of late, so that nobody tries all of them.
//!
//! They are counted for each agent and each that asks. If they were counted for the agent alone,
//! anybody who is let in at the door could keep an agent out for as long as they like, by being
//! wrong in its name. A try that is refused for its number is not counted, so whoever was wrong too
//! often waits a minute at most, however often they asked in between. Agents that this server starts
//! itself need no passkey. Each process counts for itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shikiri_model::team::{Refusal, RefusalCode};
use shikiri_model::time::Timestamp;
use tokio::sync::OwnedMutexGuard;

#[derive(Default)]
pub(crate) struct Tries(Mutex<HashMap<String, Arc<tokio::sync::Mutex<Wrong>>>>);

/// When somebody was wrong about one agent.
#[derive(Default)]
pub(super) struct Wrong(Vec<Timestamp>);

const MAX_WRONG: usize = 10;
const WRONG_WITHIN: Duration = Duration::from_secs(60);
/// More than these are forgotten all at once.
const MAX_COUNTED: usize = 10_000;

impl Tries {
    /// One after another for each, so that many at once are no way around the count.
    pub(super) async fn of(&self, key: String) -> OwnedMutexGuard<Wrong> {
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

impl Wrong {
    pub(super) fn add(&mut self, now: Timestamp) {
        self.0.push(now);
    }

    /// Refuses whoever was wrong too often, and tells how long that lasts.
    pub(super) fn check(&mut self, now: Timestamp) -> Result<(), Refusal> {
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
