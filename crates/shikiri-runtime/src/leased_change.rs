//! Changes of several writes that must run to their end.

use std::future::Future;
use std::pin::pin;
use std::slice;
use std::time::Duration;

use shikiri_model::lease::LeaseGuard;

use crate::error::AppError;
use crate::lease_keeper::keep_leases;
use crate::runtime::Runtime;

/// The time after which the lease of a change expires if its process dies.
pub const HOLD: Duration = Duration::from_secs(5);

/// Runs a change to its end, even if the caller hangs up. Half a change, or a lease that is not
/// given back, would block other callers.
pub async fn run_to_completion<T: Send + 'static>(
    change: impl Future<Output = Result<T, AppError>> + Send + 'static,
) -> Result<T, AppError> {
    let ended = tokio::spawn(change).await;
    ended.unwrap_or_else(|error| Err(AppError::Broken(format!("a change broke off: {error}"))))
}

impl Runtime {
    /// Renews a lease until the change is done. If the lease is lost, the next write under it
    /// fails.
    pub async fn with_renewed_lease<T>(
        &self,
        guard: &LeaseGuard,
        change: impl Future<Output = T>,
    ) -> T {
        let mut change = pin!(change);
        tokio::select! {
            done = &mut change => done,
            () = keep_leases(self.store.as_ref(), slice::from_ref(guard), HOLD, HOLD) => change.await,
        }
    }
}
