//! Claims: due records handed out once, and again if no claimant confirms.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use shikiri_model::record::{ExpectedVersion, Record, RecordChange, RecordClaim, RecordColumns};
use shikiri_store::{Commit, CommitError, Store};

use crate::words::{SECOND, change, claim, claimed, ids, key, put, put_for, tenant};
use crate::world::{World, on_both};

/// A record that is due `seconds` after the world's beginning.
async fn make_due(world: &World, store: &dyn Store, id: &str, seconds: u32) {
    let columns =
        RecordColumns { due_at: Some(world.now() + seconds * SECOND), ..RecordColumns::default() };
    change(store, put(id, ExpectedVersion::New, columns)).await.unwrap();
}

/// Confirms: the work is done and the record not due again.
fn done(record: &Record) -> RecordChange {
    put(&record.key.id, ExpectedVersion::Version(record.version), RecordColumns::default())
}

#[tokio::test]
async fn due_records_are_handed_out_oldest_due_first() {
    on_both(async |world| {
        let store = world.open().await;
        for (id, seconds) in [("三", 3), ("一", 1), ("四", 4), ("二", 2)] {
            make_due(&world, &*store, id, seconds).await;
        }
        change(&*store, put("never", ExpectedVersion::New, RecordColumns::default()))
            .await
            .unwrap();
        assert!(claimed(&*store, claim("甲", 9)).await.is_empty());
        world.clock.advance(3 * SECOND);
        let first = claimed(&*store, claim("甲", 2)).await;
        assert_eq!(ids(&first), ["一", "二"]);
        assert_eq!(ids(&claimed(&*store, claim("乙", 9)).await), ["三"]);
        assert_eq!(claimed(&*store, claim("丙", 9)).await, []);

        let stored = store.get(&key("一")).await.unwrap().unwrap();
        assert_eq!(stored, first[0], "the claimer has the record as it lies in the store");
        assert_eq!(stored.columns.owner.as_deref(), Some("甲"));
        assert_eq!(stored.columns.due_at, Some(world.now() + 10 * SECOND));
    })
    .await;
}

#[tokio::test]
async fn an_unconfirmed_claim_comes_back_after_its_hold() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        make_due(&world, &*one, "仕事", 0).await;
        for attempt in 1..=3 {
            let claim_by = if attempt % 2 == 0 { &two } else { &one };
            let taken = claimed(&**claim_by, claim("甲", 5)).await;
            assert_eq!(ids(&taken), ["仕事"]);
            assert_eq!((taken[0].attempts, taken[0].version), (attempt, u64::from(attempt) + 1));
            world.clock.advance(10 * SECOND - SECOND / 1000);
            assert_eq!(claimed(&*two, claim("乙", 5)).await, [], "still held");
            world.clock.advance(SECOND / 1000);
        }
        let last = claimed(&*one, claim("甲", 5)).await.remove(0);
        change(&*one, done(&last)).await.unwrap();
        world.clock.advance(3600 * SECOND);
        assert_eq!(claimed(&*two, claim("乙", 5)).await, []);
        let confirmed = one.get(&key("仕事")).await.unwrap().unwrap();
        assert_eq!((confirmed.attempts, confirmed.columns.due_at), (0, None));
    })
    .await;
}

#[tokio::test]
async fn a_claimer_that_was_too_slow_cannot_confirm() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        make_due(&world, &*one, "仕事", 0).await;
        let slow = claimed(&*one, claim("遅い人", 1)).await.remove(0);
        world.clock.advance(10 * SECOND);
        let quick = claimed(&*two, claim("速い人", 1)).await.remove(0);
        let refused = change(&*one, done(&slow)).await;
        assert!(matches!(refused, Err(CommitError::Conflict(k)) if k == key("仕事")));
        change(&*two, done(&quick)).await.unwrap();
        let refused = change(&*one, done(&slow)).await;
        assert!(matches!(refused, Err(CommitError::Conflict(_))));
    })
    .await;
}

#[tokio::test]
async fn claims_are_filtered_by_tenant_parent_and_kind() {
    on_both(async |world| {
        let store = world.open().await;
        let due = |parent: Option<&str>| RecordColumns {
            parent: parent.map(str::to_owned),
            due_at: Some(world.now()),
            ..RecordColumns::default()
        };
        for (owner, id, parent) in [
            ("acme", "a1", Some("親一")),
            ("acme", "a2", Some("親二")),
            ("acme", "a3", None),
            ("other", "o1", Some("親一")),
        ] {
            change(&*store, put_for(owner, id, ExpectedVersion::New, due(parent))).await.unwrap();
        }
        let of = |owner: Option<&str>, parent: Option<&str>| RecordClaim {
            tenant: owner.map(tenant),
            parent: parent.map(str::to_owned),
            ..claim("甲", 9)
        };
        assert_eq!(claimed(&*store, RecordClaim { kind: "else", ..claim("甲", 9) }).await, []);
        assert_eq!(claimed(&*store, of(Some("absent"), None)).await, []);
        assert_eq!(ids(&claimed(&*store, of(Some("acme"), Some("親一"))).await), ["a1"]);
        assert_eq!(ids(&claimed(&*store, of(Some("other"), None)).await), ["o1"]);
        let mut rest = claimed(&*store, of(None, None)).await;
        rest.sort_by(|a, b| a.key.cmp(&b.key));
        assert_eq!(ids(&rest), ["a2", "a3"]);
    })
    .await;
}

#[tokio::test]
async fn one_commit_may_claim_twice_and_gets_distinct_records() {
    on_both(async |world| {
        let store = world.open().await;
        for (seconds, id) in ["一", "二", "三"].into_iter().enumerate() {
            make_due(&world, &*store, id, u32::try_from(seconds).unwrap()).await;
        }
        world.clock.advance(5 * SECOND);
        let both = Commit::new().claim(claim("甲", 1)).claim(claim("乙", 2));
        let taken = store.commit(both).await.unwrap().claimed;
        assert_eq!(ids(&taken), ["一", "二", "三"]);
        let owners: Vec<_> = taken.iter().filter_map(|r| r.columns.owner.as_deref()).collect();
        assert_eq!(owners, ["甲", "乙", "乙"]);
    })
    .await;
}

/// Claims until all are taken.
async fn claim_until(store: Arc<dyn Store>, claimer: usize, all: usize) -> Vec<String> {
    let mut mine = Vec::new();
    // Another claimer's rows may be locked for a moment: an empty hand is no proof of an end.
    let mut empty_hands = 0;
    while mine.len() < all && empty_hands < 20 {
        let taken = claimed(&*store, claim(&format!("取る人{claimer}"), 3)).await;
        if taken.is_empty() {
            empty_hands += 1;
            tokio::time::sleep(SECOND / 200).await;
        }
        mine.extend(taken.into_iter().map(|record| record.key.id));
    }
    mine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_claimers_on_two_handles_never_get_the_same_record() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        let all = 150;
        for n in 0..all {
            make_due(&world, &*one, &format!("仕事{n}"), 0).await;
        }
        let claimers = (0..16).map(|claimer| {
            let store = if claimer % 2 == 0 { one.clone() } else { two.clone() };
            tokio::spawn(claim_until(store, claimer, all))
        });
        let mut taken = BTreeMap::new();
        for claimer in join_all(claimers).await {
            for id in claimer.unwrap() {
                *taken.entry(id).or_insert(0) += 1;
            }
        }
        assert_eq!(taken.len(), all, "none is left");
        assert!(taken.values().all(|times| *times == 1), "{taken:?}");
    })
    .await;
}
