//! Readiness: whether the server can still write to a database whose schema it knows.

use std::time::{Duration, Instant};

use serde::Serialize;
use shikiri_app::App;
use shikiri_runtime::AppError;
use tokio::sync::Mutex;
use utoipa::ToSchema;

/// A probe costs a write, and any client may request one.
const REMEMBER: Duration = Duration::from_secs(1);
const TIME_LIMIT: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct ReadinessCheck(Mutex<Option<StoreProbe>>);

#[derive(Clone, Copy)]
struct StoreProbe {
    at: Instant,
    found: StoreHealth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreHealth {
    Good,
    Unwritable,
    Unusable,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Readiness)]
pub(crate) struct ReadinessJson {
    /// `ready` or `unready`.
    pub(crate) status: &'static str,
    pub(crate) checks: ReadinessChecksJson,
    /// How far programs of engines are kept from the machine: `namespaces`, `landlock` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) confinement: Option<&'static str>,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Checks)]
pub(crate) struct ReadinessChecksJson {
    /// `ok` if a write reaches the disk, else `unwritable`.
    store: &'static str,
    /// `ok`, or `unusable` if the database is a newer Shikiri's or damaged; the log says which.
    schema: &'static str,
    /// `ok`, or `draining` when the server is about to stop.
    server: &'static str,
}

impl ReadinessCheck {
    pub(crate) async fn check(&self, app: &App, draining: bool) -> ReadinessJson {
        // A draining server is unready whatever the store says, and says so at once.
        let found = if draining { None } else { Some(self.probe_store(app).await) };
        ReadinessJson {
            status: if found == Some(StoreHealth::Good) { "ready" } else { "unready" },
            checks: ReadinessChecksJson {
                store: if found == Some(StoreHealth::Unwritable) { "unwritable" } else { "ok" },
                schema: if found == Some(StoreHealth::Unusable) { "unusable" } else { "ok" },
                server: if draining { "draining" } else { "ok" },
            },
            confinement: app.executions.confinement().await.map(|reached| reached.level.as_str()),
        }
    }

    async fn probe_store(&self, app: &App) -> StoreHealth {
        // Held while probing, so that requests at the same time share one probe.
        let mut last = self.0.lock().await;
        if let Some(probe) = *last
            && probe.at.elapsed() < REMEMBER
        {
            return probe.found;
        }
        let probed = match tokio::time::timeout(TIME_LIMIT, app.runtime.store().probe()).await {
            Ok(probed) => probed.map_err(AppError::from),
            Err(_) => Err(AppError::Unavailable("no answer within 2 s".to_owned())),
        };
        let found = match &probed {
            Ok(()) => StoreHealth::Good,
            Err(AppError::Broken(_)) => StoreHealth::Unusable,
            Err(_) => StoreHealth::Unwritable,
        };
        if last.map_or(StoreHealth::Good, |probe| probe.found) != found {
            match probed {
                Ok(()) => tracing::info!("the store can be written again"),
                Err(cause) => tracing::error!(%cause, "the store cannot be written"),
            }
        }
        *last = Some(StoreProbe { at: Instant::now(), found });
        found
    }
}
