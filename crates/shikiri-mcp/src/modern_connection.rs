//! Connections for callers of the newer era, which open none: one per caller and day, to record
//! their calls on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use shikiri_app::App;
use shikiri_model::connection::{ClientInfo, McpConnection};
use shikiri_model::ids::TenantId;
use shikiri_runtime::AppError;
use shikiri_tenancy::connections::NewConnection;

use crate::mcp_caller::MODERN;

const DAY_MS: i64 = 24 * 3_600_000;
const REMEMBERED: Duration = Duration::from_secs(600);
/// More callers than this are forgotten all at once: only a lookup is lost.
const MAX_REMEMBERED: usize = 20_000;

/// Today's connections, each until it is to be looked up again.
#[derive(Default)]
pub(crate) struct ModernConnections(Mutex<HashMap<String, (Instant, Arc<McpConnection>)>>);

impl ModernConnections {
    pub(crate) async fn get(
        &self,
        app: &App,
        tenant: &TenantId,
        principal: &str,
    ) -> Result<Arc<McpConnection>, AppError> {
        let known = self.lock().get(principal).cloned();
        if let Some((_, connection)) = known.filter(|(until, _)| Instant::now() < *until) {
            return Ok(connection);
        }
        let now = app.runtime.store().now().await?;
        let left = u64::try_from(DAY_MS - now.as_millis().rem_euclid(DAY_MS)).unwrap_or(0);
        // Not to the day's end in one go: this clock stands still while a machine sleeps.
        let until = Instant::now() + Duration::from_millis(left).min(REMEMBERED);
        let new = NewConnection {
            tenant: tenant.clone(),
            principal: principal.to_owned(),
            protocol: MODERN.to_owned(),
            client: ClientInfo::default(),
            capabilities: Value::Null,
        };
        let connection = Arc::new(app.tenancy.daily_connection(new).await?);
        let mut known = self.lock();
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert(principal.to_owned(), (until, Arc::clone(&connection)));
        Ok(connection)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Instant, Arc<McpConnection>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
