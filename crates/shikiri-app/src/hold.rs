//! Changes that take several writes and must not stop between them.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use shikiri_model::lease::Guard;
use shikiri_store::StoreExt;

use crate::app::App;
use crate::error::AppError;

/// How long a lease for a change outlives a process that died in the middle of it.
pub(crate) const HOLD: Duration = Duration::from_secs(5);

/// Does a change to its end, also if whoever asked for it hangs up: half a change, or a lease that
/// nobody gives back, would be in everybody's way.
pub(crate) async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, AppError>> + Send + 'static,
) -> Result<T, AppError> {
    let ended = tokio::spawn(change).await;
    ended.unwrap_or_else(|error| Err(AppError::Broken(format!("a change broke off: {error}"))))
}

impl App {
    /// Renews the lease of a change for as long as that takes. A lease that is lost is noticed by the
    /// next write under it.
    pub(crate) async fn holding<T>(&self, guard: &Guard, change: impl Future<Output = T>) -> T {
        let mut change = pin!(change);
        loop {
            match tokio::time::timeout(HOLD / 3, change.as_mut()).await {
                Ok(done) => return done,
                Err(_) => drop(self.store.renew(guard, HOLD).await),
            }
        }
    }
}
