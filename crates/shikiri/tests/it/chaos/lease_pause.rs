//! A writer is paused past its lease's end, another takes the lease, the first goes on: nothing
//! that it then writes is accepted. Fences in the log never go down.
//!
//! A pause may catch the writer inside a write. On SQLite no one else can write until it goes on, on
//! PostgreSQL until the server ends its transaction: the taker waits, and order holds.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use shikiri_model::event::{NewEvent, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::Lease;
use shikiri_store::{Commit, CommitError, Store, StoreExt as _, StreamAppend};
use shikiri_testkit::{Rng, long, until};
use tokio::time::{Instant, sleep, timeout};

use super::child::{Child, Role, in_noise};
use super::place::{Home, Place};

const LEASE: &str = "chat/会話";
const TTL: Duration = Duration::from_millis(300);
/// Pairs of writer and taker that are at it at once, each in a store of its own.
const LANES: u64 = 4;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Writer {
    place: Place,
    /// False leaves the fence out of its writes: it then trusts its last renewal, as a lease
    /// without a fence makes one do.
    guarded: bool,
    seed: u64,
}

/// What every writer puts in the log.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    fence: u64,
    who: String,
    /// How often the writer has been refused by now, and so learnt that it had lost the lease.
    refused: u64,
}

/// The child: has the lease whenever it can, and writes as fast as it can while it has it.
pub(crate) async fn write(task: Writer) {
    let store = task.place.open().await;
    let mut rng = Rng::new(task.seed);
    let mut refused = 0;
    loop {
        match store.acquire(LEASE, "writer", TTL, Duration::from_secs(60)).await {
            Ok(lease) => {
                write_under(&*store, &lease, &task, refused, &mut rng).await;
                refused += 1;
            }
            Err(_) => sleep(TTL / 10).await,
        }
    }
}

/// Until a write or a renewal is refused.
async fn write_under(store: &dyn Store, lease: &Lease, task: &Writer, refused: u64, rng: &mut Rng) {
    let mut renewed = Instant::now();
    loop {
        let burst = (0..3).map(|_| {
            let commit = Commit::new().append(entry("writer", lease, refused));
            let guard = task.guarded.then(|| lease.guard());
            store.commit(Commit { guards: guard.into_iter().collect(), ..commit })
        });
        let lost = |outcome: &Result<_, _>| matches!(outcome, Err(CommitError::Lease(_)));
        if join_all(burst).await.iter().any(lost) {
            return;
        }
        if renewed.elapsed() >= TTL / 3 {
            match store.renew(&lease.guard(), TTL).await {
                Err(CommitError::Lease(_)) => return,
                _ => renewed = Instant::now(),
            }
        }
        sleep(Duration::from_micros(rng.range(0, 4_000))).await;
    }
}

fn stream() -> StreamId {
    StreamId::new(LEASE)
}

fn entry(who: &str, lease: &Lease, refused: u64) -> StreamAppend {
    let entry = Entry { fence: lease.fence, who: who.to_owned(), refused };
    let event = NewEvent::new("entry", &entry).unwrap();
    StreamAppend::new(TenantId::local(), stream(), vec![event])
}

/// One writer, and the taker that pauses it.
struct Lane {
    store: Arc<dyn Store>,
    writer: Child,
    /// How long a taker waits before it lets the writer go on: on SQLite a paused write
    /// holds everybody up.
    patience: Duration,
    rng: Rng,
}

#[derive(Debug, Default)]
struct Tally {
    taken: u64,
    inside_a_write: u64,
}

impl Lane {
    async fn start(home: &Home, guarded: bool, seed: u64) -> Self {
        let place = home.place();
        let patience = match place {
            Place::File(_) => Duration::from_millis(600),
            Place::Database(_) => Duration::from_secs(8),
        };
        let store = place.open().await;
        let writer = Child::spawn(&Role::WriteUnderLease(Writer { place, guarded, seed }));
        Self { store, writer, patience, rng: Rng::new(!seed) }
    }

    /// Pauses the writer until the lease has been taken from it `takes` times.
    async fn pause(&mut self, takes: u64) -> Tally {
        let mut tally = Tally::default();
        while tally.taken < takes {
            self.writer_holds().await;
            sleep(Duration::from_micros(self.rng.range(0, 50_000))).await;
            self.writer.stop();
            sleep(TTL + Duration::from_millis(self.rng.range(0, 100))).await;
            let wait = self.patience + Duration::from_secs(1);
            let mut taking = Box::pin(self.store.acquire(LEASE, "taker", 4 * TTL, wait));
            let taken = match timeout(self.patience, &mut taking).await {
                Ok(taken) => taken,
                Err(_) => {
                    tally.inside_a_write += 1;
                    self.writer.go_on();
                    taking.await
                }
            };
            // The writer may have been quicker to take it again.
            if let Ok(lease) = taken {
                tally.taken += u64::from(self.write_as_taker(&lease).await);
            }
            self.writer.go_on();
        }
        tally
    }

    async fn writer_holds(&self) {
        let lease = async || self.store.lease(LEASE).await;
        until(
            "the writer has its lease back",
            async || matches!(lease().await, Ok(Some((lease, false))) if lease.owner == "writer"),
        )
        .await;
    }

    /// Writes once, lets the writer go on, and writes on beside its attempts. False if this
    /// process itself was too slow to keep the lease so long.
    async fn write_as_taker(&self, lease: &Lease) -> bool {
        let write = || {
            let commit = Commit::new().append(entry("taker", lease, 0));
            self.store.commit(commit.guarded_by(lease.guard()))
        };
        let first = write().await;
        self.writer.go_on();
        let mut written = first.is_ok();
        for _ in 0..10 {
            sleep(Duration::from_millis(5)).await;
            written &= write().await.is_ok();
        }
        self.store.release(&lease.guard()).await.is_ok() && written
    }

    async fn log(&self) -> Vec<Entry> {
        let (mut log, mut after) = (Vec::new(), 0);
        loop {
            let page = self.store.read(&TenantId::local(), &stream(), after, 1 << 20).await;
            let page = page.unwrap();
            for event in page.chunks.iter().flat_map(|chunk| chunk.events_after(after)) {
                log.push(serde_json::from_str(event.data).unwrap());
            }
            match page.chunks.last() {
                Some(chunk) => after = chunk.last_seq(),
                None => return log,
            }
        }
    }
}

/// Entries that were accepted after one with a higher fence.
fn stale(log: &[Entry]) -> Vec<&Entry> {
    let mut highest = 0;
    let too_low = |entry: &&Entry| {
        highest = highest.max(entry.fence);
        entry.fence < highest
    };
    log.iter().filter(too_low).collect()
}

/// Tells the story in one store, and returns what was written and how.
async fn lane(home: &Home, guarded: bool, takes: u64, seed: u64) -> (Vec<Entry>, Tally) {
    let mut lane = Lane::start(home, guarded, seed).await;
    let tally = lane.pause(takes).await;
    // A writer that tried nothing stale would prove nothing.
    let told = async || lane.log().await.iter().any(|entry| entry.refused >= takes);
    until("the writer was refused after each pause", told).await;
    lane.writer.kill();
    (lane.log().await, tally)
}

async fn nothing_stale_is_accepted(homes: Vec<Home>, mut rng: Rng) {
    let takes = if long() { 250 } else { 5 };
    let lanes = homes.iter().map(|home| lane(home, true, takes, rng.next()));
    for (log, tally) in join_all(lanes.collect::<Vec<_>>()).await {
        assert_eq!(stale(&log), Vec::<&Entry>::new(), "written under a lease that was lost");
        eprintln!("{tally:?}, {} entries, none stale", log.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_a_paused_writer_is_refused() {
    let _guard = in_noise().await;
    let rng = Rng::seeded("lease_pause on SQLite");
    nothing_stale_is_accepted((0..LANES).map(|_| Home::with_file()).collect(), rng).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_paused_writer_is_refused() {
    let _guard = in_noise().await;
    let rng = Rng::seeded("lease_pause on PostgreSQL");
    let mut homes = Vec::new();
    for _ in 0..LANES {
        let Some(home) = Home::with_database("lease_pause on PostgreSQL").await else { return };
        homes.push(home);
    }
    nothing_stale_is_accepted(homes, rng).await;
}

/// The stories above can fail: without the fence in its writes, the same writer does harm.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_fence_stale_writes_are_found() {
    let _guard = in_noise().await;
    let mut rng = Rng::seeded("lease_pause without the fence");
    let (log, tally) = lane(&Home::with_file(), false, 4, rng.next()).await;
    let found = stale(&log).len();
    eprintln!("{tally:?}: {found} stale writes among {}", log.len());
    assert!(found > 0);
}
