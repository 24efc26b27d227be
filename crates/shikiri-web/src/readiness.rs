//! Whether this server can do its work: can it still write, to a database that it knows?

use std::time::{Duration, Instant};

use serde::Serialize;
use shikiri_app::{App, AppError};
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
    found: Found,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Good,
    Unwritable,
    Unusable,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Readiness)]
pub(crate) struct ReadinessJson {
    /// `ready` or `unready`.
    pub(crate) status: &'static str,
    pub(crate) checks: Checks,
    /// How far programs of engines are kept from the machine: `namespaces`, `landlock` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) confinement: Option<&'static str>,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Checks {
    /// `ok` if a write reaches the disk, else `unwritable`.
    store: &'static str,
    /// `ok`, or `unusable` if the database is a newer Shikiri's or damaged; the log says which.
    schema: &'static str,
    /// `ok`, or `draining` when the server is about to stop.
    server: &'static str,
}

impl Readiness {
    pub(crate) async fn check(&self, app: &App, draining: bool) -> ReadinessJson {
        // A draining server is unready whatever the store says, and says so at once.
        let found = if draining { None } else { Some(self.look(app).await) };
        ReadinessJson {
            status: if found == Some(Found::Good) { "ready" } else { "unready" },
            checks: Checks {
                store: if found == Some(Found::Unwritable) { "unwritable" } else { "ok" },
                schema: if found == Some(Found::Unusable) { "unusable" } else { "ok" },
                server: if draining { "draining" } else { "ok" },
            },
            confinement: app.confinement().await.map(|reached| reached.level.as_str()),
        }
    }

    async fn look(&self, app: &App) -> Found {
        // Held while probing: those who ask meanwhile share one probe.
        let mut last = self.0.lock().await;
        if let Some(probe) = *last
            && probe.at.elapsed() < REMEMBER
        {
            return probe.found;
        }
        let probed = match tokio::time::timeout(TIME_LIMIT, app.store().probe()).await {
            Ok(probed) => probed.map_err(AppError::from),
            Err(_) => Err(AppError::Unavailable("no answer within 2 s".to_owned())),
        };
        let found = match &probed {
            Ok(()) => Found::Good,
            Err(AppError::Broken(_)) => Found::Unusable,
            Err(_) => Found::Unwritable,
        };
        if last.map_or(Found::Good, |probe| probe.found) != found {
            match probed {
                Ok(()) => tracing::info!("the store can be written again"),
                Err(cause) => tracing::error!(%cause, "the store cannot be written"),
            }
        }
        *last = Some(Probe { at: Instant::now(), found });
        found
    }
}
