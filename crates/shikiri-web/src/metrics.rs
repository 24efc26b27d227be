//! Counters for operators, in the OpenMetrics text form.

use std::fmt;
use std::sync::Arc;

use axum::http::StatusCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use shikiri_runtime::ProcessMetrics;

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) struct WebMetrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    open_streams: Gauge,
    pub(crate) open_connections: Gauge,
    pub(crate) refused_connections: Counter,
    pub(crate) cut_slow_readers: Counter,
}

// Templates and statuses are few; a raw path could be anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

impl WebMetrics {
    pub(crate) fn new(done: Arc<ProcessMetrics>) -> Self {
        let mut registry = Registry::with_prefix("shikiri");
        let metrics = Self {
            requests: Family::default(),
            open_streams: Gauge::default(),
            open_connections: Gauge::default(),
            refused_connections: Counter::default(),
            cut_slow_readers: Counter::default(),
            registry: Registry::default(),
        };
        registry.register("requests", "Answered requests", metrics.requests.clone());
        registry.register("open_streams", "Open SSE streams", metrics.open_streams.clone());
        let connections = metrics.open_connections.clone();
        registry.register("open_connections", "Open connections", connections);
        let refused = metrics.refused_connections.clone();
        registry.register("refused_connections", "Connections over the cap", refused);
        let cut = metrics.cut_slow_readers.clone();
        registry.register("cut_slow_readers", "Readers that took nothing for 30 s", cut);
        registry.register_collector(Box::new(AppCounterCollector(done)));
        Self { registry, ..metrics }
    }

    pub(crate) fn count(&self, method: &str, route: &str, status: StatusCode) {
        let labels = RequestLabels {
            method: method.to_owned(),
            route: route.to_owned(),
            status: status.as_u16(),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// The gate counts the open streams; its number is reported with the rest.
    pub(crate) fn text(&self, open_streams: usize) -> String {
        self.open_streams.set(i64::try_from(open_streams).unwrap_or(i64::MAX));
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

/// The use cases' own counters, read at each scrape.
#[derive(Debug)]
struct AppCounterCollector(Arc<ProcessMetrics>);

impl Collector for AppCounterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let done = &self.0;
        for (name, help, count) in [
            ("commits", "Commits that are durable", &done.commits),
            ("commit_failures", "Commits that the store could not do", &done.commit_failures),
            ("fence_rejections", "Writes of lost leases", &done.fence_rejections),
            ("events", "Events that were committed", &done.events),
            ("runs_started", "Runs that were started", &done.runs_started),
            ("runs_completed", "Runs that ended with a result", &done.runs_completed),
            ("runs_failed", "Runs that ended with an error", &done.runs_failed),
            ("runs_cancelled", "Runs that were cancelled", &done.runs_cancelled),
        ] {
            let counter = ConstCounter::new(count.get());
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        let (name, help) = ("agents_at_work", "Agents of teams that were started here");
        let gauge = ConstGauge::new(i64::try_from(done.agents_at_work.get()).unwrap_or(i64::MAX));
        let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(metric)
    }
}
