//! All of a commit or nothing of it; and what concerns the store as a whole.

use std::time::Duration;

use shikiri_model::lease::{LeaseChange, LeaseGuard};
use shikiri_model::record::{ExpectedVersion, RecordColumns, RecordQuery};
use shikiri_store::{Commit, Store, StoreExt as _, StreamAppend};

use crate::words::{
    KIND, SECOND, acme, append, change, claim, event, key, numbered, put, put_for, read_after,
    stream, tenant, unique, write,
};
use crate::world::on_both;

fn acquire(name: &str) -> LeaseChange {
    LeaseChange::Acquire { name: name.into(), owner: "甲".into(), ttl: 60 * SECOND }
}

/// A commit with a good part of every kind.
fn good() -> Commit {
    Commit::new()
        .lease(acquire("新しい権利"))
        .record(put("new", ExpectedVersion::New, unique("新しい鍵")))
        .append(append("新", &["一"]))
        .append(append("旧", &["二"]))
        .claim(claim("甲", 5))
}

/// Everything that the stories of this file can see of a store.
async fn seen(store: &dyn Store) -> String {
    let query = RecordQuery { kind: KIND, limit: 100, ..RecordQuery::default() };
    format!(
        "{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
        store.list(query).await.unwrap(),
        store.stream(&acme(), &stream("新")).await.unwrap(),
        store.stream(&acme(), &stream("旧")).await.unwrap(),
        store.lease("新しい権利").await.unwrap(),
        store.lease("他人の権利").await.unwrap(),
    )
}

#[tokio::test]
async fn a_commit_with_one_bad_part_writes_nothing() {
    on_both(async |world| {
        let store = world.open().await;
        write(&*store, "旧", &["前"]).await;
        store
            .commit(Commit::new().append(StreamAppend { close: true, ..append("閉", &[]) }))
            .await
            .unwrap();
        let due = RecordColumns { due_at: Some(world.now()), ..unique("古い鍵") };
        change(&*store, put("old", ExpectedVersion::New, due)).await.unwrap();
        store.try_acquire("他人の権利", "他人", 60 * SECOND).await.unwrap();
        let before = seen(&*store).await;

        let theirs = StreamAppend::new(tenant("other"), stream("旧"), vec![event("侵")]);
        let bad = [
            good().guarded_by(LeaseGuard { name: "無い権利".into(), fence: 1 }),
            good().guarded_by(LeaseGuard { name: "他人の権利".into(), fence: 2 }),
            good().lease(acquire("他人の権利")),
            good().record(put("old", ExpectedVersion::New, RecordColumns::default())),
            good().record(put("old", ExpectedVersion::Version(9), RecordColumns::default())),
            good().record(put("other", ExpectedVersion::New, unique("古い鍵"))),
            good().append(append("閉", &["遅"])),
            good().append(theirs),
            good().append(StreamAppend { create: false, ..append("無い", &["遅"]) }),
            good().requiring(key("old"), 2),
            good().requiring(key("absent"), 1),
        ];
        for commit in bad {
            let told = format!("{commit:?}");
            assert!(store.commit(commit).await.is_err(), "{told}");
            assert_eq!(seen(&*store).await, before, "{told}");
        }

        let committed = store.commit(good().requiring(key("old"), 1)).await.unwrap();
        assert_eq!((committed.versions, committed.claimed.len()), (vec![1], 1));
        assert_eq!(read_after(&*store, "旧", 0).await, numbered(1, &["前", "二"]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_refused_commit_does_not_spoil_those_beside_it() {
    on_both(async |world| {
        let store = world.open().await;
        change(&*store, put("taken", ExpectedVersion::New, unique("鍵"))).await.unwrap();
        let tasks: Vec<_> = (0..60)
            .map(|n| {
                let store = store.clone();
                tokio::spawn(async move {
                    let commit = Commit::new().append(append("s", &["並"]));
                    let refused = n % 3 == 0;
                    let commit = if refused {
                        commit.record(put(&format!("r{n}"), ExpectedVersion::New, unique("鍵")))
                    } else {
                        commit
                    };
                    assert_eq!(store.commit(commit).await.is_err(), refused);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let seqs: Vec<_> = read_after(&*store, "s", 0).await.into_iter().map(|e| e.0).collect();
        assert_eq!(seqs, (1..=40).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn an_empty_commit_is_a_commit() {
    on_both(async |world| {
        let store = world.open().await;
        let committed = store.commit(Commit::new()).await.unwrap();
        assert_eq!(committed.at, world.now());
        assert!(committed.appended.is_empty() && committed.claimed.is_empty());
    })
    .await;
}

#[tokio::test]
async fn erased_streams_are_gone_and_others_are_whole() {
    on_both(async |world| {
        let store = world.open().await;
        for (owner, name) in [("acme", "一"), ("acme", "二"), ("acme", "三"), ("other", "四")] {
            for _ in 0..3 {
                let log = StreamAppend::new(tenant(owner), stream(name), vec![event("x")]);
                store.commit(Commit::new().append(log)).await.unwrap();
            }
        }
        // Of another tenant, and one that never was.
        let named = ["一", "三", "四", "none"].map(stream);
        store.erase_streams(&acme(), &named).await.unwrap();
        for gone in ["一", "三"] {
            assert_eq!(store.stream(&acme(), &stream(gone)).await.unwrap(), None);
        }
        assert_eq!(read_after(&*store, "二", 0).await.len(), 3);
        let other = store.read(&tenant("other"), &stream("四"), 0, 1000).await.unwrap();
        assert_eq!(other.chunks.iter().map(|chunk| chunk.events().count()).sum::<usize>(), 3);
        // A late writer does not bring one back, and a new one begins at 1.
        let late = StreamAppend::to_existing(acme(), stream("一"), vec![event("late")]);
        store.commit(Commit::new().append(late)).await.unwrap_err();
        assert_eq!(write(&*store, "一", &["再"]).await, (1, 1));
        store.erase_streams(&acme(), &[]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn erasing_a_tenant_leaves_the_others_whole() {
    on_both(async |world| {
        let store = world.open().await;
        for owner in ["acme", "other"] {
            let events = vec![event("一"), event("二")];
            let log = StreamAppend::new(tenant(owner), stream(&format!("{owner}の流")), events);
            let record = put_for(owner, "r", ExpectedVersion::New, unique("鍵"));
            store.commit(Commit::new().append(log).record(record)).await.unwrap();
        }
        store.erase(&acme()).await.unwrap();
        assert_eq!(store.stream(&acme(), &stream("acmeの流")).await.unwrap(), None);
        assert_eq!(store.get(&key("r")).await.unwrap(), None);
        assert_eq!(store.find(KIND, &acme(), "鍵").await.unwrap(), None);

        let other = tenant("other");
        let page = store.read(&other, &stream("otherの流"), 0, 1000).await.unwrap();
        assert_eq!(page.chunks[0].events().count(), 2);
        assert!(store.find(KIND, &other, "鍵").await.unwrap().is_some());

        // What comes afterwards under the same names is new.
        assert_eq!(write(&*store, "acmeの流", &["再"]).await, (1, 1));
        assert_eq!(read_after(&*store, "acmeの流", 0).await, numbered(1, &["再"]));
        store.erase(&tenant("absent")).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_healthy_store_proves_that_it_writes_and_tells_the_time() {
    on_both(async |world| {
        let store = world.open().await;
        store.probe().await.unwrap();
        store.probe().await.unwrap();
        assert_eq!(store.now().await.unwrap(), world.now());
        world.clock.advance(Duration::from_millis(1_234));
        assert_eq!(store.now().await.unwrap(), world.now());
        assert_eq!(store.backend(), world.backend());
    })
    .await;
}
