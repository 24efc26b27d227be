//! The server restarts under load. Whatever was acknowledged is there afterwards, in place; what
//! was refused is not; what is unknown is either.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use shikiri_store::postgres::PostgresStore;
use shikiri_store::{Commit, CommitError, Store, StoreError};
use shikiri_testkit::until;
use shikiri_testpg::{Cluster, Installed};
use sqlx::Connection as _;
use tokio::time::{Instant, sleep};

use crate::postgres_world::{Follower, database, node};
use crate::words::{append, event, read_after};
use crate::world::connect;

const STREAMS: usize = 3;
const TASKS_PER_NODE: usize = 4;

/// So much is acknowledged at least, or there was hardly any load.
const ENOUGH: usize = 100;

/// What the tasks have in common.
#[derive(Default)]
struct Common {
    stop: AtomicBool,
    acknowledged: AtomicUsize,
}

#[derive(Default)]
struct History {
    acknowledged: Vec<(usize, u64, String)>,
    unknown: Vec<String>,
    refused: u64,
}

/// Appends to one stream after the other until told to stop.
async fn load(store: Arc<PostgresStore>, who: String, common: Arc<Common>) -> History {
    let mut history = History::default();
    for n in 0.. {
        if common.stop.load(Ordering::Relaxed) {
            break;
        }
        let (stream, text) = (n % STREAMS, format!("{who} {n}"));
        let commit = Commit::new().append(append(&format!("s{stream}"), &[&text]));
        let data = event(&text).data().to_owned();
        match store.commit(commit).await {
            Ok(done) => {
                history.acknowledged.push((stream, done.appended[0].first_seq, data));
                common.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(CommitError::Store(StoreError::Unknown(_))) => history.unknown.push(data),
            Err(CommitError::Store(StoreError::Unavailable(_))) => history.refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    history
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_under_load_lose_nothing_that_was_acknowledged() {
    let Some(installed) = Installed::find_or_skip("restarts_under_load") else { return };
    let cluster = tokio::task::spawn_blocking(move || Cluster::start(&installed)).await.unwrap();
    let cluster = Arc::new(cluster.unwrap());
    let (one, two) = (Arc::new(node(&cluster.url()).await), Arc::new(node(&cluster.url()).await));
    let watcher = node(&cluster.url()).await;
    let common = Arc::new(Common::default());
    let mut tasks = Vec::new();
    for (name, store) in [("one", &one), ("two", &two)] {
        for task in 0..TASKS_PER_NODE {
            let who = format!("{name}.{task}");
            tasks.push(tokio::spawn(load(Arc::clone(store), who, Arc::clone(&common))));
        }
    }
    for crash in [false, true, false, true] {
        sleep(Duration::from_millis(400)).await;
        let cluster = Arc::clone(&cluster);
        let restart = move || if crash { cluster.restart_immediate() } else { cluster.restart() };
        tokio::task::spawn_blocking(restart).await.unwrap().unwrap();
    }
    sleep(Duration::from_millis(400)).await;
    // Slow machines get there, too.
    let acknowledged = async || common.acknowledged.load(Ordering::Relaxed);
    until("enough writes are acknowledged", async || acknowledged().await > ENOUGH).await;
    common.stop.store(true, Ordering::Relaxed);
    let mut history = History::default();
    for task in tasks {
        let mut part = task.await.unwrap();
        history.acknowledged.append(&mut part.acknowledged);
        history.unknown.append(&mut part.unknown);
        history.refused += part.refused;
    }
    check(&history, &*one, &watcher).await;
}

async fn check(history: &History, store: &dyn Store, watcher: &dyn Store) {
    let mut found = 0;
    for stream in 0..STREAMS {
        let name = format!("s{stream}");
        let log = read_after(store, &name, 0).await;
        found += log.len();
        assert!(log.iter().map(|(seq, _)| *seq).eq(1..=log.len() as u64), "a gap in {name}");
        for (_, seq, data) in history.acknowledged.iter().filter(|(s, ..)| *s == stream) {
            assert_eq!(log.get(*seq as usize - 1), Some(&(*seq, data.clone())), "lost from {name}");
        }
        // A watcher that was there all the time has been woken over every restart.
        let mut follower = Follower::of(watcher, &name);
        follower.reach(log.len() as u64).await;
        assert_eq!(follower.seen, log);
    }
    let (acknowledged, unknown) = (history.acknowledged.len(), history.unknown.len());
    eprintln!(
        "4 restarts: {acknowledged} acknowledged, {unknown} unknown, {} refused, {found} in the log",
        history.refused
    );
    assert!((acknowledged..=acknowledged + unknown).contains(&found), "refused ones were written");
}

/// A reader that follows while the server goes away and comes back misses nothing and needs
/// no one to wake it.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_on_another_node_goes_on_after_a_restart() {
    let Some(installed) = Installed::find_or_skip("a_follower_on_another_node") else { return };
    let cluster = tokio::task::spawn_blocking(move || Cluster::start(&installed)).await.unwrap();
    let cluster = Arc::new(cluster.unwrap());
    let (writer, reader) = (node(&cluster.url()).await, node(&cluster.url()).await);
    let mut follower = Follower::of(&reader, "s");
    for round in 0..3 {
        let restarting = Arc::clone(&cluster);
        let restart = tokio::task::spawn_blocking(move || restarting.restart().unwrap());
        let write = async {
            restart.await.unwrap();
            // The reader's own ears may still be away: it must hear of this one later.
            crate::words::write(&writer, "s", &[&round.to_string()]).await;
        };
        let follow = tokio::time::timeout(Duration::from_secs(60), follower.reach(round + 1));
        let (_, followed) = tokio::join!(write, follow);
        followed.expect("the event is seen");
    }
    assert_eq!(follower.seen.len(), 3);
    drop((writer, reader));
}

/// While the server is down a commit is refused within seconds, not held for ever; and the store
/// works again when the server does.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_is_told_in_time() {
    let Some(installed) = Installed::find_or_skip("a_server_that_is_down") else { return };
    let cluster = tokio::task::spawn_blocking(move || Cluster::start(&installed)).await.unwrap();
    let cluster = Arc::new(cluster.unwrap());
    let store = node(&cluster.url()).await;
    let stopping = Arc::clone(&cluster);
    tokio::task::spawn_blocking(move || stopping.stop().unwrap()).await.unwrap();

    let start = Instant::now();
    let refused = store.commit(Commit::new().append(append("s", &["x"]))).await;
    let first = start.elapsed();
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_)))), "{refused:?}");
    let refused = store.commit(Commit::new().append(append("s", &["x"]))).await;
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_)))), "{refused:?}");
    let second = start.elapsed() - first;
    assert!(matches!(store.probe().await, Err(StoreError::Unavailable(_))));
    eprintln!("server down: first commit refused after {first:?}, the next after {second:?}");
    assert!(first < Duration::from_secs(15) && second < Duration::from_secs(5));

    let starting = Arc::clone(&cluster);
    tokio::task::spawn_blocking(move || starting.restart().unwrap()).await.unwrap();
    store.probe().await.unwrap();
    crate::words::write(&store, "s", &["x"]).await;
    assert_eq!(read_after(&store, "s", 0).await.len(), 1);
}

/// As an operator, a failover or a proxy's time limit does it.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_the_server_ended_are_replaced_unnoticed() {
    let Some(database) = database().await else { return };
    let (store, reader) = (database.node().await, database.node().await);
    let mut operator = connect(database.url()).await;
    let mut follower = Follower::of(&reader, "s");
    for n in 1..=3 {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        sqlx::query(sql).execute(&mut operator).await.unwrap();
        crate::words::write(&store, "s", &["x"]).await;
        store.probe().await.unwrap();
        tokio::time::timeout(Duration::from_secs(60), follower.reach(n)).await.expect("seen");
    }
}

/// A node that is paused inside a transaction holds its rows only until the server ends it.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_paused_node_come_free() {
    let Some(database) = database().await else { return };
    let store = database.node().await;
    crate::words::write(&store, "s", &["x"]).await;
    let mut paused = connect(database.url()).await;
    // What every session of ours begins with.
    let sql = "SET idle_in_transaction_session_timeout = '2s'";
    sqlx::query(sql).execute(&mut paused).await.unwrap();
    let mut tx = paused.begin().await.unwrap();
    // Before the pause begins, so that no less than all of it is measured.
    let start = Instant::now();
    sqlx::query("SELECT 1 FROM streams FOR UPDATE").execute(&mut *tx).await.unwrap();

    crate::words::write(&store, "s", &["x"]).await;
    let waited = start.elapsed();
    assert!(waited > Duration::from_secs(1) && waited < Duration::from_secs(9), "{waited:?}");
}
