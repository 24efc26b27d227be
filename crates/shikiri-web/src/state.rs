//! What all handlers share.

use std::sync::Arc;

use shikiri_app::App;
use shikiri_app::gate::Gate;

use crate::metrics::Metrics;
use crate::options::WebOptions;
use crate::readiness::Readiness;

pub(crate) type Shared = Arc<Web>;

pub(crate) struct Web {
    pub(crate) app: App,
    pub(crate) gate: Arc<Gate>,
    pub(crate) options: WebOptions,
    pub(crate) metrics: Metrics,
    pub(crate) readiness: Readiness,
}

impl Web {
    pub(crate) fn new(gate: Arc<Gate>, options: WebOptions) -> Self {
        let app = gate.app().clone();
        Self {
            metrics: Metrics::new(Arc::clone(app.counters())),
            readiness: Readiness::default(),
            app,
            gate,
            options,
        }
    }
}
