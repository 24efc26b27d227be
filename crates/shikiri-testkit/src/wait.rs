//! Waits for conditions without events, and cleans up when a test ends.
//!
//! A test waits for an event, an exit or a channel where there is one. Other conditions are polled
//! here, in an async and a blocking form with the same time limit.

use std::panic::Location;
use std::time::{Duration, Instant};

/// The limit of a wait. It is generous, because other builds may share the machine; only a failing
/// test reaches it. Times that the product promises are checked with [`until_within`].
const PATIENCE: Duration = Duration::from_secs(120);

/// Short enough not to slow a test down, long enough to leave the processor to other work.
const PAUSE: Duration = Duration::from_millis(5);

/// The result of a check: `true`, or the awaited value.
pub trait Condition {
    type Found;

    fn found(self) -> Option<Self::Found>;
}

impl Condition for bool {
    type Found = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Condition for Option<T> {
    type Found = T;

    fn found(self) -> Option<T> {
        self
    }
}

/// The deadline of a wait, and the caller to report when it is reached.
struct Deadline<'a> {
    what: &'a str,
    caller: &'static Location<'static>,
    start: Instant,
    patience: Duration,
}

impl<'a> Deadline<'a> {
    #[track_caller]
    fn new(what: &'a str, patience: Duration) -> Self {
        Self { what, caller: Location::caller(), start: Instant::now(), patience }
    }

    fn check(&self) {
        let Self { what, caller, patience, .. } = self;
        assert!(self.start.elapsed() < *patience, "{caller}: waited {patience:?} until {what}");
    }
}

/// Polls until the condition holds, and returns what it found. Fails the test after the limit.
#[track_caller]
pub fn until<C: Condition>(
    what: &str,
    look: impl AsyncFnMut() -> C,
) -> impl Future<Output = C::Found> {
    poll(Deadline::new(what, PATIENCE), look)
}

/// Like [`until`], for a condition that must hold within this time.
#[track_caller]
pub fn until_within<C: Condition>(
    limit: Duration,
    what: &str,
    look: impl AsyncFnMut() -> C,
) -> impl Future<Output = C::Found> {
    poll(Deadline::new(what, limit), look)
}

async fn poll<C: Condition>(deadline: Deadline<'_>, mut look: impl AsyncFnMut() -> C) -> C::Found {
    loop {
        if let Some(found) = look().await.found() {
            return found;
        }
        deadline.check();
        tokio::time::sleep(PAUSE).await;
    }
}

/// [`until`] for a test without a runtime.
#[track_caller]
pub fn until_blocking<C: Condition>(what: &str, mut look: impl FnMut() -> C) -> C::Found {
    let deadline = Deadline::new(what, PATIENCE);
    loop {
        if let Some(found) = look().found() {
            return found;
        }
        deadline.check();
        std::thread::sleep(PAUSE);
    }
}

/// Runs a function on drop, also while a failed test unwinds.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn until_looks_again_and_gives_what_it_found() {
        let mut looks = 0;
        let found = until("the third look", async || {
            looks += 1;
            (looks == 3).then_some("found")
        })
        .await;
        assert_eq!((found, looks), ("found", 3));
        assert_eq!(until_blocking("at once", || Some(1)), 1);
    }

    #[tokio::test]
    #[should_panic(expected = "until it rains")]
    async fn until_within_fails_the_test_at_its_limit() {
        until_within(Duration::from_millis(20), "it rains", async || false).await;
    }
}
