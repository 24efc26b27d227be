//! Transactions of two nodes that commit in another order than they began.

use std::sync::Arc;
use std::time::Duration;

use shikiri_store::{Commit, CommitError, Store};
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep};

use crate::postgres_world::{Follower, database};
use crate::words::{append, event, numbered, read_after, write};
use crate::world::connect;

/// Appends as our writer does, but leaves the commit to the caller.
async fn append_slowly(tx: &mut PgConnection, stream: &str, text: &str) {
    let (id, head): (i64, i64) =
        sqlx::query_as("SELECT id, head FROM streams WHERE name = $1 FOR UPDATE")
            .bind(stream)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
    sqlx::query("UPDATE streams SET head = $2 WHERE id = $1")
        .bind(id)
        .bind(head + 1)
        .execute(&mut *tx)
        .await
        .unwrap();
    sqlx::query(
        "INSERT INTO events (stream, first_seq, last_seq, at, body) VALUES ($1, $2, $2, 7, $3)",
    )
    .bind(id)
    .bind(head + 1)
    .bind(format!("7 log {}\n", event(text).data()))
    .execute(&mut *tx)
    .await
    .unwrap();
    sqlx::query("SELECT pg_notify('shikiri', $1)")
        .bind(format!(r#"["another","s:{stream}"]"#))
        .execute(tx)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_commit_is_neither_skipped_nor_overtaken() {
    let Some(database) = database().await else { return };
    let (writer, reader) = (Arc::new(database.node().await), database.node().await);
    write(&*writer, "s", &["first"]).await;
    let mut follower = Follower::of(&reader, "s");
    follower.reach(1).await;

    let mut slow = connect(database.url()).await;
    let mut tx = slow.begin().await.unwrap();
    append_slowly(&mut tx, "s", "began early, committed late").await;
    let fast = tokio::spawn({
        let writer = Arc::clone(&writer);
        async move { write(&*writer, "s", &["began late"]).await }
    });
    sleep(Duration::from_millis(300)).await;
    // Had the fast one committed as event 2 or 3, a reader would now stand behind the slow one.
    assert!(!fast.is_finished(), "it took a number while another held the stream");
    assert_eq!(read_after(&reader, "s", 0).await.len(), 1);

    tx.commit().await.unwrap();
    assert_eq!(fast.await.unwrap(), (3, 3));
    follower.reach(3).await;
    let expected = numbered(1, &["first", "began early, committed late", "began late"]);
    assert_eq!(follower.seen, expected);
    assert_eq!(read_after(&reader, "s", 1).await, expected[1..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_gives_up_leaves_no_gap() {
    let Some(database) = database().await else { return };
    let writer = database.node().await;
    write(&writer, "s", &["first"]).await;
    let mut slow = connect(database.url()).await;
    let mut tx = slow.begin().await.unwrap();
    append_slowly(&mut tx, "s", "never").await;
    let fast = write(&writer, "s", &["second"]);
    let give_up = async {
        sleep(Duration::from_millis(100)).await;
        tx.rollback().await.unwrap();
    };
    assert_eq!(tokio::join!(fast, give_up).0, (2, 2));
    assert_eq!(read_after(&writer, "s", 0).await, numbered(1, &["first", "second"]));
}

/// The state of a stream, too, is that of its latest commit and not the one that was read while
/// another node was about to change it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_being_closed_takes_no_more() {
    let Some(database) = database().await else { return };
    let writer = database.node().await;
    write(&writer, "s", &["first"]).await;
    let mut slow = connect(database.url()).await;
    let mut tx = slow.begin().await.unwrap();
    sqlx::query("UPDATE streams SET closed = TRUE").execute(&mut *tx).await.unwrap();
    let late = writer.commit(Commit::new().append(append("s", &["late"])));
    let close = async {
        sleep(Duration::from_millis(100)).await;
        tx.commit().await.unwrap();
    };
    let outcome = tokio::join!(late, close).0;
    assert!(matches!(outcome, Err(CommitError::Closed(_))), "{outcome:?}");
    assert_eq!(read_after(&writer, "s", 0).await, numbered(1, &["first"]));
}

/// Each node locks both streams in every commit; in whichever order they are named, they must
/// not wait for each other in a circle (the server would end one of them after a second).
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_write_the_same_streams_do_not_lock_each_other_out() {
    const ROUNDS: usize = 100;
    let Some(database) = database().await else { return };
    let (one, two) = (database.node().await, database.node().await);
    let start = Instant::now();
    let work = async |store: &dyn Store, first: &str, second: &str| {
        for _ in 0..ROUNDS {
            let commit = Commit::new().append(append(first, &["x"])).append(append(second, &["y"]));
            store.commit(commit).await.unwrap();
        }
    };
    tokio::join!(work(&one, "a", "b"), work(&two, "b", "a"));
    let took = start.elapsed();
    eprintln!("{ROUNDS} commits on each of two nodes, both on the same two streams: {took:?}");
    for name in ["a", "b"] {
        let seqs: Vec<u64> = read_after(&one, name, 0).await.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(seqs, (1..=2 * ROUNDS as u64).collect::<Vec<_>>());
    }
}
