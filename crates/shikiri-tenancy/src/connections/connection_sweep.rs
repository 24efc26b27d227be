//! Ends connections that were idle for too long.

use async_trait::async_trait;
use shikiri_runtime::run::BackgroundTask;
use tokio_util::sync::CancellationToken;

use crate::Tenancy;

/// Ends connections that were idle for too long. Every node does it.
pub struct ConnectionSweep(pub Tenancy);

#[async_trait]
impl BackgroundTask for ConnectionSweep {
    async fn run(&self, stop: CancellationToken) {
        let pause = self.0.runtime.options().node_lease / 5;
        while !stop.is_cancelled() {
            if let Err(error) = self.0.sweep_connections().await {
                tracing::warn!(%error, "connections cannot be swept; trying again");
            }
            let _ = tokio::time::timeout(pause, stop.cancelled()).await;
        }
    }
}
