//! Waiting for a lease that another process has: whoever waits gets it, or the refusal, within
//! its wait, give or take 250 ms, whatever becomes of the holder.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shikiri_model::lease::LeaseRefusal;
use shikiri_store::{CommitError, Store, StoreExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::child::{Child, Role, in_quiet};
use super::place::{Home, Place};

const LEASE: &str = "chat/待つ";
const SLACK: Duration = Duration::from_millis(250);
const LONG: Duration = Duration::from_secs(30);

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
        let held = async {
            while !matches!(store.lease(LEASE).await, Ok(Some((lease, false))) if lease.owner == "holder")
            {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(LONG, held).await.expect("the child takes the lease");
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
}

#[track_caller]
fn assert_about(took: Duration, expected: Duration, what: &str) {
    eprintln!("{what}: after {took:?}, expected about {expected:?}");
    assert!(took + SLACK >= expected && took <= expected + SLACK, "{what} took {took:?}");
}

async fn every_wait_ends_in_time(home: Home) {
    let mut story = Story::begin(&home, LONG).await;
    for wait_ms in [0, 400, 1_000] {
        let wait = Duration::from_millis(wait_ms);
        let (took, had) = story.wait(wait).await;
        assert!(!had);
        assert_about(took, wait, "refused");
    }

    let middle = Duration::from_millis(400);
    let holder = &mut story.holder;
    let releasing = async {
        sleep(middle).await;
        holder.order("release");
    };
    let begun = Instant::now();
    let (_, lease) =
        tokio::join!(releasing, story.store.acquire(LEASE, "waiter", LONG, Duration::from_secs(5)));
    let lease = lease.unwrap();
    assert_about(begun.elapsed(), middle, "released by the other process");
    story.store.release(&lease.guard()).await.unwrap();
    drop(story);

    let mut story = Story::begin(&home, Duration::from_millis(900)).await;
    story.holder.kill();
    let refusal = story.store.try_acquire(LEASE, "waiter", LONG).await.unwrap_err();
    let CommitError::Lease(LeaseRefusal::Held { for_ms, .. }) = refusal else {
        panic!("{refusal}")
    };
    let left = Duration::from_millis(u64::try_from(for_ms).unwrap());
    let (took, had) = story.wait(Duration::from_secs(5)).await;
    assert!(had);
    assert_about(took, left, "lapsed after its holder was killed");
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
