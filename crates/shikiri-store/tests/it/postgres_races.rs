//! Nodes that want the same thing at the same moment.

use std::collections::BTreeSet;
use std::sync::Arc;

use shikiri_model::record::{ExpectedVersion, RecordColumns};
use shikiri_store::postgres::PostgresStore;
use shikiri_store::{Commit, CommitError, CommitReceipt, Store, StoreError, StoreExt as _};
use sqlx::Connection as _;

use crate::postgres_world::{Database, database};
use crate::words::{SECOND, append, claim, claimed, put, read_after, stream, unique, write};
use crate::world::connect;

async fn nodes(database: &Database, count: usize) -> Vec<Arc<PostgresStore>> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(Arc::new(database.node().await));
    }
    nodes
}

/// The same commit on every node at once.
async fn at_once(
    nodes: &[Arc<PostgresStore>],
    commit: impl Fn(usize) -> Commit,
) -> Vec<Result<CommitReceipt, CommitError>> {
    let tasks: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(n, node)| {
            let (node, commit) = (Arc::clone(node), commit(n));
            tokio::spawn(async move { node.commit(commit).await })
        })
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_stream_that_all_nodes_begin_is_one_stream() {
    let Some(database) = database().await else { return };
    let nodes = nodes(&database, 4).await;
    for round in 0..20 {
        let name = format!("run/{round}");
        let outcomes = at_once(&nodes, |_| Commit::new().append(append(&name, &["x"]))).await;
        let seqs: BTreeSet<u64> =
            outcomes.iter().map(|o| o.as_ref().unwrap().appended[0].first_seq).collect();
        assert_eq!(seqs, (1..=4).collect());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_all_nodes_one_makes_the_record_and_one_gets_the_unique_value() {
    let Some(database) = database().await else { return };
    let nodes = nodes(&database, 4).await;
    for round in 0..20 {
        let id = format!("t{round}");
        let same =
            |_| Commit::new().record(put(&id, ExpectedVersion::New, RecordColumns::default()));
        let outcomes = at_once(&nodes, same).await;
        assert_eq!(outcomes.iter().filter(|o| o.is_ok()).count(), 1);
        let exists = |o: &&Result<_, _>| matches!(o, Err(CommitError::Exists(_)));
        assert_eq!(outcomes.iter().filter(exists).count(), 3, "{outcomes:?}");

        let value = format!("u{round}");
        let rivals = |n| {
            Commit::new().record(put(&format!("{id}-{n}"), ExpectedVersion::New, unique(&value)))
        };
        let outcomes = at_once(&nodes, rivals).await;
        assert_eq!(outcomes.iter().filter(|o| o.is_ok()).count(), 1);
        let taken = |o: &&Result<_, _>| matches!(o, Err(CommitError::NotUnique(_)));
        assert_eq!(outcomes.iter().filter(taken).count(), 3, "{outcomes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_all_nodes_one_gets_the_lease_and_fences_rise() {
    let Some(database) = database().await else { return };
    let nodes = nodes(&database, 4).await;
    for round in 1..=20 {
        let tasks: Vec<_> = nodes
            .iter()
            .map(|node| {
                let node = Arc::clone(node);
                tokio::spawn(async move { node.try_acquire("l", "node", 60 * SECOND).await })
            })
            .collect();
        let mut got = Vec::new();
        for task in tasks {
            got.extend(task.await.unwrap().ok());
        }
        assert_eq!(got.iter().map(|lease| lease.fence).collect::<Vec<_>>(), [round]);
        nodes[0].release(&got[0].guard()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_record_is_claimed_by_two_nodes() {
    let Some(database) = database().await else { return };
    let nodes = nodes(&database, 4).await;
    let now = nodes[0].now().await.unwrap();
    let due = RecordColumns { due_at: Some(now), ..RecordColumns::default() };
    let commit = (0..200).fold(Commit::new(), |commit, n| {
        commit.record(put(&format!("t{n:03}"), ExpectedVersion::New, due.clone()))
    });
    nodes[0].commit(commit).await.unwrap();
    let tasks: Vec<_> = nodes
        .iter()
        .map(|node| {
            let node = Arc::clone(node);
            tokio::spawn(async move {
                let mut mine = Vec::new();
                // What another node looked at in that moment is skipped: look until nothing is due.
                while node.next_due("thing").await.unwrap().is_some_and(|due| due <= now) {
                    mine.extend(claimed(&*node, claim("node", 7)).await);
                }
                mine
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap().into_iter().map(|record| record.key.id));
    }
    assert_eq!(all.len(), 200);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_commit_leaves_no_stream_behind() {
    let Some(database) = database().await else { return };
    let store = database.node().await;
    let refused = Commit::new()
        .record(put("missing", ExpectedVersion::Version(3), RecordColumns::default()))
        .append(append("run/1", &["x"]));
    assert!(matches!(store.commit(refused).await, Err(CommitError::Conflict(_))));
    assert_eq!(store.stream(&crate::words::acme(), &stream("run/1")).await.unwrap(), None);
}

/// The server takes no NUL in a text. The commits beside it must not suffer.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_server_cannot_take_fails_alone() {
    let Some(database) = database().await else { return };
    let store = Arc::new(database.node().await);
    write(&*store, "s", &["first"]).await;
    // While a row is held, the next commits gather to one batch.
    let mut holder = connect(database.url()).await;
    let mut tx = holder.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM streams FOR UPDATE").execute(&mut *tx).await.unwrap();
    let hand_in = |commit: Commit| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.commit(commit).await })
    };
    let waiting = hand_in(Commit::new().append(append("s", &["waits"])));
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let good = hand_in(Commit::new().append(append("s", &["good"])));
    let bad = hand_in(Commit::new().append(append("s\0", &["bad"])));
    let also_good = hand_in(Commit::new().append(append("t", &["good"])));
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    tx.rollback().await.unwrap();

    for task in [waiting, good, also_good] {
        task.await.unwrap().unwrap();
    }
    let refused = bad.await.unwrap();
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Broken(_)))), "{refused:?}");
    assert_eq!(read_after(&*store, "s", 0).await.len(), 3);
}
