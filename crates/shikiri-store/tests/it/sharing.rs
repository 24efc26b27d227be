//! Several handles on one store: processes on one SQLite file, nodes on one PostgreSQL.

use std::sync::Arc;

use futures_util::future::join_all;
use shikiri_model::event::Seq;
use shikiri_store::{Commit, Store};

use crate::words::{SECOND, append, event, numbered, read_after, write};
use crate::world::on_both;

const WRITERS: usize = 4;
const EACH: usize = 40;

/// Appends one event after the other; the seqs that the store gave them.
async fn write_in_turn(store: Arc<dyn Store>, writer: usize) -> Vec<(Seq, String)> {
    let mut given = Vec::new();
    for n in 0..EACH {
        let text = format!("作家{writer}の第{n}");
        let (seq, _) = write(&*store, "共", &[&text]).await;
        given.push((seq, event(&text).data().to_owned()));
    }
    given
}

#[tokio::test]
async fn two_handles_append_to_one_stream_without_gaps() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        let writers = (0..WRITERS).map(|writer| {
            let store = if writer % 2 == 0 { one.clone() } else { two.clone() };
            tokio::spawn(write_in_turn(store, writer))
        });
        let mut given = Vec::new();
        for writer in join_all(writers).await {
            let own = writer.unwrap();
            assert!(own.is_sorted_by_key(|(seq, _)| *seq), "a writer's own order is kept");
            given.extend(own);
        }
        given.sort();
        let stored = read_after(&*one, "共", 0).await;
        assert_eq!(stored, given, "every event lies where its writer was told");
        let seqs: Vec<_> = stored.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(seqs, (1..=(WRITERS * EACH) as u64).collect::<Vec<_>>());
        assert_eq!(read_after(&*two, "共", 0).await, stored);
    })
    .await;
}

#[tokio::test]
async fn commits_that_run_ahead_keep_the_order_in_which_they_were_handed_in() {
    on_both(async |world| {
        let store = world.open().await;
        let texts: Vec<_> = (0..200).map(|n| format!("第{n}")).collect();
        let commits =
            texts.iter().map(|text| store.commit(Commit::new().append(append("先", &[text]))));
        let first: Vec<_> =
            join_all(commits).await.into_iter().map(|c| c.unwrap().appended[0].first_seq).collect();
        assert_eq!(first, (1..=200).collect::<Vec<_>>());
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        assert_eq!(read_after(&*store, "先", 0).await, numbered(1, &texts));
    })
    .await;
}

#[tokio::test]
async fn a_commit_whose_caller_went_away_is_not_taken_back() {
    on_both(async |world| {
        let store = world.open().await;
        let mut commit = Box::pin(store.commit(Commit::new().append(append("s", &["残る"]))));
        // Handed in, and mostly not written yet.
        let _ = futures_util::poll!(&mut commit);
        drop(commit);
        assert_eq!(write(&*store, "s", &["次"]).await, (2, 2));
        assert_eq!(read_after(&*store, "s", 0).await, numbered(1, &["残る", "次"]));
    })
    .await;
}

#[tokio::test]
async fn what_one_handle_committed_the_other_reads_at_once() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        for n in 1..=30 {
            let (writer, reader) = if n % 2 == 0 { (&one, &two) } else { (&two, &one) };
            write(&**writer, "s", &["間"]).await;
            assert_eq!(read_after(&**reader, "s", 0).await.len(), n);
        }
    })
    .await;
}

#[tokio::test]
async fn two_handles_open_one_fresh_store_at_the_same_time() {
    on_both(async |world| {
        let handles = tokio::time::timeout(30 * SECOND, join_all((0..6).map(|_| world.open())));
        for (n, store) in handles.await.unwrap().iter().enumerate() {
            assert_eq!(write(&**store, "s", &["開"]).await.0, n as u64 + 1);
        }
    })
    .await;
}
