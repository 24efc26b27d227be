//! The state that all handlers share.

use std::sync::Arc;

use shikiri_app::App;
use shikiri_tenancy::gate::AccessGate;

use crate::metrics::WebMetrics;
use crate::readiness::ReadinessCheck;
use crate::web_options::WebOptions;

pub(crate) type SharedWebState = Arc<WebState>;

pub(crate) struct WebState {
    pub(crate) app: App,
    pub(crate) gate: Arc<AccessGate>,
    pub(crate) options: WebOptions,
    pub(crate) metrics: WebMetrics,
    pub(crate) readiness: ReadinessCheck,
}

impl WebState {
    pub(crate) fn new(app: App, gate: Arc<AccessGate>, options: WebOptions) -> Self {
        Self {
            metrics: WebMetrics::new(Arc::clone(app.runtime.metrics())),
            readiness: ReadinessCheck::default(),
            app,
            gate,
            options,
        }
    }
}
