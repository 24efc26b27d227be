//! What all handlers share.

use std::sync::Arc;

use shikiri_app::App;
use tokio_util::sync::CancellationToken;

use crate::caches::{KeyCache, TenantCache};
use crate::limits::{RateLimiter, StreamSlots};
use crate::live_keys::LiveKeys;
use crate::metrics::Metrics;
use crate::options::WebOptions;
use crate::readiness::Readiness;

pub(crate) type Shared = Arc<Web>;

pub(crate) struct Web {
    pub(crate) app: App,
    pub(crate) options: WebOptions,
    pub(crate) keys: KeyCache,
    pub(crate) tenants: TenantCache,
    pub(crate) live_keys: LiveKeys,
    pub(crate) rates: RateLimiter,
    pub(crate) streams: Arc<StreamSlots>,
    pub(crate) metrics: Metrics,
    pub(crate) readiness: Readiness,
    /// Cancelled when the server starts to drain.
    pub(crate) draining: CancellationToken,
}

impl Web {
    pub(crate) fn new(app: App, options: WebOptions) -> Self {
        let draining = CancellationToken::new();
        let metrics = Metrics::new(Arc::clone(app.counters()));
        Self {
            keys: KeyCache::default(),
            tenants: TenantCache::default(),
            live_keys: LiveKeys::new(draining.clone()),
            rates: RateLimiter::default(),
            streams: Arc::new(StreamSlots::new(options.max_streams, metrics.open_streams.clone())),
            readiness: Readiness::default(),
            metrics,
            draining,
            app,
            options,
        }
    }
}
