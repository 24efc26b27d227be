//! Whether this server can do its work: can it still write?

use std::time::{Duration, Instant};

use serde::Serialize;
use shikiri_app::App;
use tokio::sync::Mutex;
use utoipa::ToSchema;

/// Probing costs a write, and anybody may ask.
const REMEMBER: Duration = Duration::from_secs(1);
const TIME_LIMIT: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct Readiness(Mutex<Option<Probe>>);

#[derive(Clone, Copy)]
struct Probe {
    at: Instant,
    writable: bool,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Readiness)]
pub(crate) struct ReadinessJson {
    /// `ready` or `unready`.
    pub(crate) status: &'static str,
    pub(crate) checks: Checks,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Checks {
    /// `ok` if a write reaches the disk, else `unwritable`.
    store: &'static str,
    /// `ok`, or `draining` when the server is about to stop.
    server: &'static str,
}

impl Readiness {
    pub(crate) async fn check(&self, app: &App, draining: bool) -> ReadinessJson {
        // A draining server is unready whatever the store says, and says so at once.
        let writable = if draining { None } else { Some(self.is_writable(app).await) };
        ReadinessJson {
            status: if writable == Some(true) { "ready" } else { "unready" },
            checks: Checks {
                store: if writable == Some(false) { "unwritable" } else { "ok" },
                server: if draining { "draining" } else { "ok" },
            },
        }
    }

    async fn is_writable(&self, app: &App) -> bool {
        // Held while probing: those who ask meanwhile share one probe.
        let mut last = self.0.lock().await;
        if let Some(probe) = *last
            && probe.at.elapsed() < REMEMBER
        {
            return probe.writable;
        }
        let failure = match tokio::time::timeout(TIME_LIMIT, app.store().probe()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("no answer within 2 s".to_owned()),
        };
        let was_writable = last.is_none_or(|probe| probe.writable);
        match &failure {
            Some(cause) if was_writable => tracing::error!(%cause, "the store cannot be written"),
            None if !was_writable => tracing::info!("the store can be written again"),
            _ => {}
        }
        *last = Some(Probe { at: Instant::now(), writable: failure.is_none() });
        failure.is_none()
    }
}
