//! Ends open streams whose key was revoked, or whose session ended.
//!
//! A stream may live for hours, so checking its key at the start is not enough. One sweep looks
//! at every key that has open streams, however many streams it has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use shikiri_model::key::Secret;
use tokio_util::sync::CancellationToken;

use crate::app::App;

const SWEEP_EVERY: Duration = Duration::from_secs(2);

/// A key that has open streams.
pub(super) struct LiveKey {
    secret: Secret,
    /// Cancelled when the key is revoked, and when the process drains.
    pub(super) over: CancellationToken,
}

pub(super) struct LiveKeys {
    draining: CancellationToken,
    by_hash: Mutex<HashMap<String, Weak<LiveKey>>>,
}

impl LiveKeys {
    pub(super) fn new(draining: CancellationToken) -> Self {
        Self { draining, by_hash: Mutex::default() }
    }

    pub(super) fn hold(&self, secret: &Secret) -> Arc<LiveKey> {
        let hash = secret.hash().as_str().to_owned();
        let mut keys = self.by_hash.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = keys.get(&hash).and_then(Weak::upgrade)
            && !live.over.is_cancelled()
        {
            return live;
        }
        let over = self.draining.child_token();
        let live = Arc::new(LiveKey { secret: secret.clone(), over });
        keys.insert(hash, Arc::downgrade(&live));
        live
    }

    /// Sweeps until the process drains.
    pub(super) async fn sweep(&self, app: &App) {
        let mut pause = tokio::time::interval(SWEEP_EVERY);
        while self.draining.run_until_cancelled(pause.tick()).await.is_some() {
            for live in self.in_use() {
                // A store that cannot answer ends nothing: it has nothing to send either.
                if let Ok(false) = app.opens_something(&live.secret).await {
                    live.over.cancel();
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
