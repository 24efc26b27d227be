//! What is special to SQLite; what every store must do is told in `tests/it`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use rusqlite::config::DbConfig;
use serde_json::json;
use shikiri_model::event::NewEvent;
use shikiri_model::record::{ExpectedVersion, RecordChange, RecordColumns};
use shikiri_sqlite::maintenance;
use shikiri_testkit::until;
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::commit::StreamAppend;
use crate::hub::{HubTopic, HubWake};
use crate::store::StoreExt as _;

const SECOND: Duration = Duration::from_secs(1);

struct Place {
    _folder: TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    Place { _folder: folder, path }
}

impl Place {
    fn open(&self) -> Arc<SqliteStore> {
        Arc::new(SqliteStore::open(&self.path, SqliteOptions::default()).unwrap())
    }

    /// Another process's connection.
    fn other(&self) -> SqliteDatabase {
        SqliteDatabase::open(&self.path, &DatabaseOptions::default()).unwrap()
    }
}

fn stream(name: &str) -> StreamId {
    StreamId::new(name)
}

fn append(name: &str, text: &str) -> Commit {
    let event = NewEvent::from_value("log", &json!({ "text": text }));
    Commit::new().append(StreamAppend::new(TenantId::local(), stream(name), vec![event]))
}

fn put(kind: &'static str, id: &str) -> Commit {
    let key = RecordKey { kind, tenant: TenantId::local(), id: id.to_owned() };
    let (columns, doc) = (RecordColumns::default(), "{}".to_owned());
    Commit::new().record(RecordChange::Put { key, expect: ExpectedVersion::New, columns, doc })
}

async fn head(store: &SqliteStore, name: &str) -> Seq {
    let found = store.stream(&TenantId::local(), &stream(name)).await.unwrap();
    found.map_or(0, |state| state.extent.head)
}

#[tokio::test]
async fn no_caller_is_answered_or_woken_before_the_commit() {
    let place = place();
    let store = place.open();
    let mut news = store.hub().subscribe(HubTopic::Stream(stream("流")));
    let other = place.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let commits: Vec<_> = (0..20)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.commit(append("流", &n.to_string())).await })
        })
        .collect();
    tokio::time::sleep(SECOND / 5).await;
    assert!(commits.iter().all(|commit| !commit.is_finished()));
    assert!(news.take().is_empty());

    other.execute_batch("COMMIT").unwrap();
    let mut seqs = Vec::new();
    for commit in commits {
        seqs.push(commit.await.unwrap().unwrap().appended[0].first_seq);
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=20).collect::<Vec<_>>());
    assert!(matches!(news.next().await[0], HubWake::Chunk { .. }));
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_they_go_on_when_there_is_room() {
    let place = place();
    let store = place.open();
    store.commit(append("流", "前")).await.unwrap();
    let limit = |pages: u32| {
        store.write(move |c| c.execute_batch(&format!("PRAGMA max_page_count = {pages}")))
    };
    limit(1).await.unwrap(); // SQLite takes this as "as many as there are".
    let big = "大".repeat(100_000);
    for _ in 0..3 {
        let refused = store.commit(append("流", &big)).await.unwrap_err();
        let CommitError::Store(StoreError::Unavailable(cause)) = &refused else {
            panic!("{refused:?}")
        };
        assert!(cause.contains("full"), "{cause}");
    }
    assert_eq!(head(&store, "流").await, 1, "nothing of it is there");

    limit(1_000_000).await.unwrap();
    store.probe().await.unwrap();
    let committed = store.commit(append("流", &big)).await.unwrap();
    assert_eq!(committed.appended[0].first_seq, 2, "no number was used up");
    drop(store);
    assert_eq!(maintenance::check(&place.path).unwrap().problems, [""; 0]);
}

#[tokio::test]
async fn a_commit_that_cannot_be_written_does_not_take_its_batch_with_it() {
    let place = place();
    let store = place.open();
    store
        .write(|c| {
            // Triggers are off in every store.
            c.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, true)?;
            c.execute_batch(
                "CREATE TRIGGER no_bad BEFORE INSERT ON records WHEN new.kind = 'bad'
                 BEGIN SELECT RAISE(ABORT, 'bad'); END",
            )
        })
        .await
        .unwrap();
    let other = place.other();
    // While the lock is held, all of them gather in one batch.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let release = async {
        tokio::time::sleep(SECOND / 10).await;
        other.execute_batch("COMMIT").unwrap();
    };
    let (first, bad, last, ()) = tokio::join!(
        store.commit(put("good", "a")),
        store.commit(put("bad", "b")),
        store.commit(put("good", "c")),
        release
    );
    assert!(first.is_ok() && last.is_ok());
    assert!(matches!(bad, Err(CommitError::Store(StoreError::Unavailable(_)))), "{bad:?}");
}

#[tokio::test]
async fn a_panic_in_the_writer_is_told_and_does_not_end_it() {
    let place = place();
    let store = place.open();
    let told = store.write::<()>(|_| panic!("on purpose")).await.unwrap_err();
    assert!(matches!(told, StoreError::Unknown(_)), "{told:?}");
    store.commit(append("流", "後")).await.unwrap();
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_with_the_writer_may_have_happened() {
    let place = place();
    let store = place.open();
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = oneshot::channel();
    let busy = Box::new(move |_: &mut SqliteWriter| {
        begin.send(()).unwrap();
        assert!(held.recv().is_err());
    });
    store.queue.push(SqliteWriteJob::Task(busy)).await.unwrap();
    // Or the thread would take both at once.
    begun.await.unwrap();
    let commit = store.commit(append("流", "一"));
    // As the thread does however it ends, after the commit was handed in.
    let ends = async { store.queue.abandon() };
    let (told, ()) = tokio::join!(commit, ends);
    drop(hold);
    let told = told.unwrap_err();
    assert!(matches!(told, CommitError::Store(StoreError::Unknown(_))), "{told:?}");
    let refused = store.commit(append("流", "一")).await.unwrap_err();
    assert!(matches!(refused, CommitError::Store(StoreError::Unavailable(_))), "{refused:?}");
}

#[tokio::test]
async fn opening_waits_for_no_writer_unless_the_machine_was_started_again() {
    let place = place();
    drop(place.open());
    let other = place.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let store = place.open();
    assert_eq!(head(&store, "流").await, 0);
    other.execute_batch("COMMIT").unwrap();
}

#[tokio::test]
async fn a_file_that_a_newer_program_migrated_meanwhile_fails_the_probe() {
    let place = place();
    let store = place.open();
    store.probe().await.unwrap();
    let sql = "INSERT INTO schema_version (version, applied_at) VALUES (999, 'later')";
    place.other().execute(sql, []).unwrap();
    let told = store.probe().await.unwrap_err();
    assert!(matches!(told, StoreError::Broken(_)), "{told:?}");
    let known = shikiri_sqlite::migrate::latest_version();
    let words = format!("made by a newer Shikiri (schema 999, this one knows {known})");
    assert!(told.to_string().contains(&words), "{told}");
}

#[tokio::test]
async fn a_write_that_waits_too_long_for_another_process_fails_and_changes_nothing() {
    let place = place();
    let store = place.open();
    store.write(|c| c.busy_timeout(Duration::from_millis(20))).await.unwrap();
    let other = place.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.commit(append("流", "一")).await.unwrap_err();
    assert!(matches!(&refused, CommitError::Store(StoreError::Unavailable(_))), "{refused:?}");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(store.commit(append("流", "一")).await.unwrap().appended[0].first_seq, 1);
}

#[tokio::test]
async fn a_submitted_commit_is_written_although_its_caller_left() {
    let place = place();
    let store = place.open();
    // Polled once, then dropped.
    let _ = store.commit(append("流", "一")).now_or_never();
    store.probe().await.unwrap();
    assert_eq!(head(&store, "流").await, 1);
}

#[tokio::test]
async fn another_handle_hears_of_a_write_within_50_ms() {
    let place = place();
    let (writer, reader) = (place.open(), place.open());
    // Long enough for an idle writer to have gone to its long sleep.
    tokio::time::sleep(SECOND / 20).await;
    let mut news = reader.hub().subscribe(HubTopic::Stream(stream("流")));
    let mut freed = reader.hub().subscribe(HubTopic::Lease("席".to_owned()));
    let mut medians = Vec::new();
    // The worst of them say more of the machine than of the store, as does a round among others.
    while medians.last().is_none_or(|median| *median > Duration::from_millis(50)) {
        assert!(medians.len() < 5, "{medians:?}");
        let mut waits = Vec::new();
        for n in 0..15 {
            writer.commit(append("流", &n.to_string())).await.unwrap();
            let committed = Instant::now();
            let wakes = timeout(20 * SECOND, news.next()).await.unwrap();
            waits.push(committed.elapsed());
            assert!(matches!(wakes[..], [HubWake::Behind]), "{wakes:?}");
        }
        waits.sort_unstable();
        medians.push(waits[7]);
    }
    freed.take();
    writer.try_acquire("席", "甲", SECOND).await.unwrap();
    timeout(20 * SECOND, freed.next()).await.unwrap();
}

#[tokio::test]
async fn what_others_wrote_is_seen_by_the_next_commit_of_a_remembered_stream() {
    let place = place();
    let (one, two) = (place.open(), place.open());
    for round in 0..20 {
        let store = if round % 2 == 0 { &one } else { &two };
        let committed = store.commit(append("流", "行")).await.unwrap();
        assert_eq!(committed.appended[0].first_seq, round + 1);
    }
    one.erase(&TenantId::local()).await.unwrap();
    assert_eq!(two.commit(append("流", "新")).await.unwrap().appended[0].first_seq, 1);
}

#[tokio::test]
async fn the_number_of_an_erased_chunk_is_not_given_again() {
    let place = place();
    let watcher = place.open();
    let newest = || {
        let sql = "SELECT max(id) FROM events";
        place.other().query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).unwrap()
    };
    for _ in 0..3 {
        watcher.commit(append("流", "行")).await.unwrap();
    }
    place.open().erase(&TenantId::local()).await.unwrap();
    assert_eq!(newest(), None);
    let mut news = watcher.hub().subscribe(HubTopic::Stream(stream("流")));
    // One that was not there when the three were written.
    place.open().commit(append("流", "新")).await.unwrap();
    assert_eq!(newest(), Some(4));
    timeout(5 * SECOND, news.next()).await.unwrap();
}

#[tokio::test]
async fn a_write_that_failed_leaves_no_wrong_number_behind() {
    let place = place();
    let store = place.open();
    store.commit(append("流", "一")).await.unwrap();
    // As if the commit had been written although it was reported as failed.
    let sql = "INSERT INTO events SELECT 2, stream, 2, 2, at, body FROM events;
               UPDATE streams SET head = 2";
    {
        let mut writer = store.writer.lock().unwrap();
        writer.database.execute_batch(sql).unwrap();
        writer.roll_back();
    }
    assert_eq!(store.commit(append("流", "三")).await.unwrap().appended[0].first_seq, 3);
}

#[tokio::test]
async fn leases_of_another_start_of_the_machine_have_run_out() {
    let place = place();
    let store = place.open();
    let held = store.try_acquire("席", "甲", 3600 * SECOND).await.unwrap();
    drop(store);
    let again = place.open();
    assert_eq!(again.lease("席").await.unwrap(), Some((held.clone(), false)));
    drop(again);
    place.other().execute("UPDATE facts SET value = 'before' WHERE name = 'boot'", []).unwrap();
    let store = place.open();
    let taken = store.try_acquire("席", "乙", SECOND).await.unwrap();
    assert_eq!(taken.fence, held.fence + 1);
}

#[tokio::test]
async fn a_dropped_store_has_written_what_was_handed_in_and_closed_the_file() {
    let place = place();
    let store = place.open();
    let copy = place.path.with_file_name("copy.db");
    store.probe().await.unwrap();
    maintenance::backup(&place.path, &copy).unwrap();
    let _ = store.commit(append("流", "終")).now_or_never();
    assert_eq!(head(&store, "なし").await, 0);
    drop(store);
    assert!(!place.path.with_file_name("state.db-wal").exists(), "the log is in the file");
    assert_eq!(maintenance::check(&place.path).unwrap().events, 1);
    maintenance::restore(&copy, &place.path).unwrap();
}

#[tokio::test]
async fn the_log_beside_the_file_does_not_grow_for_ever() {
    let place = place();
    let store = place.open();
    let text = "長".repeat(20_000);
    for _ in 0..800 {
        store.commit(append("流", &text)).await.unwrap();
    }
    store.probe().await.unwrap();
    let report = maintenance::check(&place.path).unwrap();
    assert!(report.is_sound());
    assert!(report.log_bytes < 40 * 1024 * 1024, "{} bytes", report.log_bytes);
}

#[test]
fn a_file_that_cannot_be_opened_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let error = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap_err();
    assert!(matches!(&error, StoreError::Broken(_)));
    assert!(error.to_string().contains("is a folder"), "{error}");
}

#[tokio::test]
async fn only_a_change_of_leases_is_not_synced() {
    let place = place();
    let store = place.open();
    let synchronous = |writer: &mut SqliteWriter| {
        writer.database.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap()
    };
    let set_to = async || {
        let (reply, answer) = oneshot::channel::<i64>();
        let task =
            Box::new(move |writer: &mut SqliteWriter| reply.send(synchronous(writer)).unwrap());
        store.queue.push(SqliteWriteJob::Task(task)).await.unwrap();
        answer.await.unwrap()
    };
    const NORMAL: i64 = 1;
    const FULL: i64 = 2;
    assert_eq!(set_to().await, FULL);
    let guard = store.try_acquire("席", "甲", SECOND).await.unwrap().guard();
    assert_eq!(set_to().await, NORMAL);
    store.commit(append("流", "一").guarded_by(guard.clone())).await.unwrap();
    assert_eq!(set_to().await, FULL);
    store.release(&guard).await.unwrap();
    store.probe().await.unwrap();
    assert_eq!(set_to().await, FULL);
}

/// Commits until the next one would be made on the caller's own thread, however slow the disk is.
async fn warm_up(store: &SqliteStore) {
    until("the writing thread sleeps", async || {
        store.commit(append("warm", "up")).await.unwrap();
        let writer = store.queue.try_borrow_writer(&store.writer);
        writer.map(|mut writer| writer.set_prompt())
    })
    .await;
}

#[tokio::test]
async fn a_lone_caller_writes_without_waking_the_thread() {
    let place = place();
    let store = place.open();
    let mut news = store.hub().subscribe(HubTopic::Stream(stream("流")));
    // The thread looks around now and then, and is not asleep at that moment.
    for _ in 0..50 {
        warm_up(&store).await;
        let Some(committed) = store.commit(append("流", "すぐに")).now_or_never() else {
            continue;
        };
        assert!(committed.unwrap().appended[0].last_seq >= 1);
        assert!(matches!(news.take()[..], [.., HubWake::Chunk { .. }]));
        return;
    }
    panic!("never written at its first poll, so always by another process");
}

#[tokio::test]
async fn a_lone_caller_never_waits_for_another_process() {
    let place = place();
    let store = place.open();
    warm_up(&store).await;
    let other = place.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = Instant::now();
    let mut commit = Box::pin(store.commit(append("流", "後で")));
    assert!(futures_util::poll!(&mut commit).is_pending(), "left to the thread");
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(commit.await.unwrap().appended[0].last_seq, 1);
}
