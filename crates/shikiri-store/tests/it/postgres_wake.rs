//! Nodes wake each other.

use std::sync::Arc;
use std::time::Duration;

use shikiri_model::event::Seq;
use shikiri_model::record::{ExpectedVersion, RecordColumns};
use shikiri_store::postgres::PostgresStore;
use shikiri_store::{Commit, HubTopic, Store, StoreExt as _};
use tokio::time::{Instant, timeout};

use crate::postgres_world::{Follower, database};
use crate::words::{KIND, SECOND, append, put, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_on_another_node_sees_an_event_within_20_ms() {
    const EVENTS: u64 = 200;
    const ROUNDS: u64 = 5;
    let Some(database) = database().await else { return };
    let (writer, reader) = (database.node().await, database.node().await);
    let mut follower = Follower::of(&reader, "s");
    let mut medians = Vec::new();
    // A busy machine has its quiet moments; a store that is slow has none.
    for round in 0..ROUNDS {
        let mut waits = Vec::new();
        for seq in 1..=EVENTS {
            waits.push(wait_of_a_reader(&writer, &mut follower, round * EVENTS + seq).await);
        }
        waits.sort();
        let (median, p99) = (waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
        eprintln!("commit to a reader on another node: median {median:?}, 99 % {p99:?}");
        if median <= Duration::from_millis(20) {
            return;
        }
        medians.push(median);
    }
    panic!("{medians:?}");
}

/// From the end of a commit to the moment when the follower has it.
async fn wait_of_a_reader(writer: &dyn Store, follower: &mut Follower<'_>, seq: Seq) -> Duration {
    let committed = async {
        write(writer, "s", &["x"]).await;
        Instant::now()
    };
    let seen = async {
        follower.reach(seq).await;
        Instant::now()
    };
    let (committed, seen) = tokio::join!(committed, seen);
    seen.saturating_duration_since(committed)
}

/// While the connection holds, no waiter is woken without news: waiting longer hides nothing.
const HEARD: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn due_records_and_free_leases_are_heard_on_other_nodes() {
    let Some(database) = database().await else { return };
    let (one, two) = (database.node().await, database.node().await);
    let mut due = two.hub().subscribe(HubTopic::Due(KIND));
    let now = one.now().await.unwrap();
    let change = put(
        "t1",
        ExpectedVersion::New,
        RecordColumns { due_at: Some(now), ..RecordColumns::default() },
    );
    one.commit(Commit::new().record(change)).await.unwrap();
    timeout(HEARD, due.next()).await.expect("the news of a due record");

    let held = one.try_acquire("lease", "one", 60 * SECOND).await.unwrap();
    let mut free = two.hub().subscribe(HubTopic::Lease("lease".to_owned()));
    one.release(&held.guard()).await.unwrap();
    timeout(HEARD, free.next()).await.expect("the news of a free lease");
    assert_eq!(two.try_acquire("lease", "two", SECOND).await.unwrap().fence, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_on_very_many_streams_wakes_everybody() {
    let Some(database) = database().await else { return };
    let (one, two) = (database.node().await, database.node().await);
    let mut news = two.hub().subscribe(HubTopic::Stream(crate::words::stream("run/00042")));
    let commit = (0..3_000)
        .fold(Commit::new(), |commit, n| commit.append(append(&format!("run/{n:05}"), &["x"])));
    one.commit(commit).await.unwrap();
    timeout(HEARD, news.next()).await.expect("the news");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_appenders_share_their_commits() {
    const APPENDERS: usize = 64;
    const EACH: usize = 50;
    let Some(database) = database().await else { return };
    let store = Arc::new(database.node().await);
    let mut rates = Vec::new();
    // What else the machine does may fall on one of the two: the best of three counts.
    for _ in 0..3 {
        let (alone, together) =
            (rate_alone(&*store).await, rate_together(&store, APPENDERS, EACH).await);
        eprintln!("durable commits: one {alone:.0}/s, {APPENDERS} appenders {together:.0}/s");
        if together > alone * 4.0 {
            return;
        }
        rates.push((alone, together));
    }
    panic!("commits are not grouped: {rates:.0?}");
}

/// Commits in a second.
async fn rate_alone(store: &dyn Store) -> f64 {
    let start = Instant::now();
    for _ in 0..20 {
        write(store, "alone", &["x"]).await;
    }
    20.0 / start.elapsed().as_secs_f64()
}

async fn rate_together(store: &Arc<PostgresStore>, appenders: usize, each: usize) -> f64 {
    let start = Instant::now();
    let tasks: Vec<_> = (0..appenders)
        .map(|n| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for _ in 0..each {
                    write(&*store, &format!("s{n}"), &["x"]).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    (appenders * each) as f64 / start.elapsed().as_secs_f64()
}
