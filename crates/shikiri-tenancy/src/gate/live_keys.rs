//! Ends open streams whose key was revoked, or whose session ended.
//!
//! A stream may live for hours, so checking its key at the start is not enough. One sweep looks
//! at every key that has open streams, however many streams it has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use shikiri_model::key::SecretToken;
use tokio_util::sync::CancellationToken;

use crate::Tenancy;

const SWEEP_EVERY: Duration = Duration::from_secs(2);

/// A key that has open streams.
pub(super) struct LiveKey {
    secret: SecretToken,
    /// Cancelled when the key is revoked, and when the process drains.
    pub(super) cancellation: CancellationToken,
}

pub(super) struct LiveKeys {
    draining: CancellationToken,
    by_hash: Mutex<HashMap<String, Weak<LiveKey>>>,
}

impl LiveKeys {
    pub(super) fn new(draining: CancellationToken) -> Self {
        Self { draining, by_hash: Mutex::default() }
    }

    pub(super) fn hold(&self, secret: &SecretToken) -> Arc<LiveKey> {
        let hash = secret.hash().as_str().to_owned();
        let mut keys = self.by_hash.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = keys.get(&hash).and_then(Weak::upgrade)
            && !live.cancellation.is_cancelled()
        {
            return live;
        }
        let cancellation = self.draining.child_token();
        let live = Arc::new(LiveKey { secret: secret.clone(), cancellation });
        keys.insert(hash, Arc::downgrade(&live));
        live
    }

    /// Sweeps until the process drains.
    pub(super) async fn sweep(&self, tenancy: &Tenancy) {
        let mut pause = tokio::time::interval(SWEEP_EVERY);
        while self.draining.run_until_cancelled(pause.tick()).await.is_some() {
            for live in self.in_use() {
                // If the store cannot answer, no stream ends: it has no events to send either.
                if let Ok(false) = tenancy.is_valid_secret(&live.secret).await {
                    live.cancellation.cancel();
                }
            }
        }
    }

    fn in_use(&self) -> Vec<Arc<LiveKey>> {
        let mut keys = self.by_hash.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|_, live| live.strong_count() > 0);
        keys.values().filter_map(Weak::upgrade).collect()
    }
}
