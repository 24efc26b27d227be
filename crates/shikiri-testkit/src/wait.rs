//! Waiting for what tells nobody when it happens, and tidying up whatever happens.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(20);

/// Looks again and again until the condition holds; fails the test when `patience` is over. For
/// things that tell of themselves (events, exits), wait for those instead.
pub async fn wait_until(what: &str, patience: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < patience, "waited {patience:?} until {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Does something when dropped, also while a failed test unwinds.
pub struct Cleanup<F: FnMut()>(F);

impl<F: FnMut()> Cleanup<F> {
    pub fn new(work: F) -> Self {
        Self(work)
    }
}

impl<F: FnMut()> Drop for Cleanup<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
