//! Waiting for a lease that another process has: a waiter gets it, or the refusal, within
//! its wait, give or take 250 ms, whatever becomes of the holder.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shikiri_model::lease::LeaseRefusal;
use shikiri_store::{CommitError, Store, StoreExt as _};
use shikiri_testkit::until;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::child::{Child, Role, in_quiet};
use super::place::{Home, Place};

const LEASE: &str = "chat/待つ";
const SLACK: Duration = Duration::from_millis(250);
const LONG: Duration = Duration::from_secs(30);
const TRIES: usize = 5;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Holder {
    place: Place,
    ttl: Duration,
}

/// The child: takes the lease and gives it up when told to.
pub(crate) async fn hold(task: Holder, mut orders: mpsc::Receiver<String>) {
    let store = task.place.open().await;
    let lease = store.acquire(LEASE, "holder", task.ttl, LONG).await.unwrap();
    if orders.recv().await.as_deref() == Some("release") {
        store.release(&lease.guard()).await.unwrap();
    }
    std::future::pending().await
}

struct Story {
    store: Arc<dyn Store>,
    holder: Child,
}

impl Story {
    async fn begin(home: &Home, ttl: Duration) -> Self {
        let place = home.place();
        let store = place.open().await;
        let holder = Child::spawn(&Role::HoldLease(Holder { place, ttl }));
        until("the child has the lease", async || {
            matches!(store.lease(LEASE).await, Ok(Some((lease, false))) if lease.owner == "holder")
        })
        .await;
        Self { store, holder }
    }

    /// How long it took, and whether the lease was had.
    async fn wait(&self, wait: Duration) -> (Duration, bool) {
        let begun = Instant::now();
        let outcome = self.store.acquire(LEASE, "waiter", LONG, wait).await;
        let took = begun.elapsed();
        match outcome {
            Ok(lease) => {
                self.store.release(&lease.guard()).await.unwrap();
                (took, true)
            }
            Err(CommitError::Lease(LeaseRefusal::Held { owner, .. })) => {
                assert_eq!(owner, "holder");
                (took, false)
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// How long it takes to get the lease from a holder that gives it up after this time.
    async fn hand_over(&mut self, after: Duration) -> Duration {
        let holder = &mut self.holder;
        let releasing = async {
            sleep(after).await;
            holder.order("release");
        };
        let begun = Instant::now();
        let (_, lease) = tokio::join!(releasing, self.store.acquire(LEASE, "waiter", LONG, LONG));
        let took = begun.elapsed();
        self.store.release(&lease.unwrap().guard()).await.unwrap();
        took
    }
}

async fn released(home: &Home) -> (Duration, Duration) {
    let middle = Duration::from_millis(400);
    let mut story = Story::begin(home, LONG).await;
    (story.hand_over(middle).await, middle)
}

async fn lapsed(home: &Home) -> (Duration, Duration) {
    // Long enough to be seen before it is over.
    let mut story = Story::begin(home, Duration::from_millis(2_500)).await;
    story.holder.kill();
    let begun = Instant::now();
    let for_ms = match story.store.try_acquire(LEASE, "waiter", LONG).await {
        Err(CommitError::Lease(LeaseRefusal::Held { for_ms, .. })) => for_ms,
        Err(other) => panic!("{other}"),
        Ok(lease) => {
            // We are late ourselves.
            story.store.release(&lease.guard()).await.unwrap();
            return (LONG, Duration::ZERO);
        }
    };
    let before = begun.elapsed();
    let (took, had) = story.wait(LONG).await;
    assert!(had);
    (before + took, Duration::from_millis(u64::try_from(for_ms).unwrap()))
}

/// A wait never ends too early. A busy machine may end it late, but not every time.
async fn in_time(what: &str, mut tell: impl AsyncFnMut() -> (Duration, Duration)) {
    let mut late = Duration::ZERO;
    for _ in 0..TRIES {
        let (took, expected) = tell().await;
        eprintln!("{what}: after {took:?}, expected about {expected:?}");
        assert!(took + SLACK >= expected, "{what} took only {took:?}");
        late = took.saturating_sub(expected);
        if late <= SLACK {
            return;
        }
    }
    panic!("{what} was {late:?} too late");
}

async fn every_wait_ends_in_time(home: Home) {
    let mut story = Story::begin(&home, 2 * LONG).await;
    for wait_ms in [0, 400, 1_000] {
        let wait = Duration::from_millis(wait_ms);
        in_time("refused", async || {
            let (took, had) = story.wait(wait).await;
            assert!(!had);
            (took, wait)
        })
        .await;
    }
    story.hand_over(Duration::ZERO).await;
    drop(story);
    in_time("released by the other process", async || released(&home).await).await;
    in_time("lapsed after its holder was killed", async || lapsed(&home).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_every_wait_ends_in_time() {
    let _guard = in_quiet().await;
    every_wait_ends_in_time(Home::with_file()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_every_wait_ends_in_time() {
    let _guard = in_quiet().await;
    if let Some(home) = Home::with_database("lease_wait on PostgreSQL").await {
        every_wait_ends_in_time(home).await;
    }
}
