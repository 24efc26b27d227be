//! Random batches: settled together they end as they do one by one.

use std::time::Duration;

use proptest::prelude::*;
use shikiri_model::lease::{LeaseChange, LeaseGuard};
use shikiri_model::record::{ExpectedVersion, RecordChange, RecordClaim, RecordColumns};
use shikiri_model::time::Timestamp;
use shikiri_model::total::TotalChange;

use super::rows::{MemoryRows, append, claim, key, put, sum, tenant, told};
use crate::commit::{Commit, StreamAppend};

/// Stands for the version or fence that the writer has just read; most writers have.
const CURRENT: u64 = 0;

fn any_version() -> impl Strategy<Value = u64> {
    prop_oneof![9 => Just(CURRENT), 1 => 1..4u64]
}

fn informed(rows: &MemoryRows, mut commit: Commit) -> Commit {
    let fence = |guard: &mut LeaseGuard| {
        if guard.fence == CURRENT {
            guard.fence = rows.leases.get(&guard.name).map_or(1, |lease| lease.fence);
        }
    };
    commit.guards.iter_mut().for_each(fence);
    for change in &mut commit.leases {
        if let LeaseChange::Renew { guard, .. } | LeaseChange::Release { guard } = change {
            fence(guard);
        }
    }
    for change in &mut commit.records {
        let found = rows.records.get(change.key()).map(|record| record.version);
        match change {
            RecordChange::Put { expect, .. } if *expect == ExpectedVersion::Version(CURRENT) => {
                *expect = found.map_or(ExpectedVersion::New, ExpectedVersion::Version);
            }
            RecordChange::Delete { version, .. } if *version == CURRENT => {
                *version = found.unwrap_or(1);
            }
            _ => {}
        }
    }
    commit
}

fn any_change() -> impl Strategy<Value = RecordChange> {
    let id = prop::sample::select(vec!["a", "b", "c", "d"]);
    let expect = prop_oneof![1 => Just(ExpectedVersion::New), 9 => any_version().prop_map(ExpectedVersion::Version)];
    let state = prop::sample::select(vec!["", "waiting", "failed"]);
    let columns =
        (prop::option::of(0..3u8), prop::option::of(0..30i64), prop::option::of(0..2u8), state)
            .prop_map(|(unique, due, parent, state)| RecordColumns {
                state: state.to_owned(),
                unique: unique.map(|n| format!("鍵{n}")),
                due_at: due.map(Timestamp::from_millis),
                parent: parent.map(|n| format!("親{n}")),
                ..RecordColumns::default()
            });
    prop_oneof![
        4 => (id.clone(), expect, columns).prop_map(|(id, expect, columns)| put(id, expect, columns)),
        1 => (id, any_version()).prop_map(|(id, version)| RecordChange::Delete { key: key(id), version }),
    ]
}

fn any_append() -> impl Strategy<Value = StreamAppend> {
    let texts = prop::collection::vec(prop::sample::select(vec!["一", "二", "三"]), 0..4);
    let stream = prop::sample::select(vec!["s", "t"]);
    let rare = prop::bool::weighted(0.1);
    let flags = (prop::bool::weighted(0.05), rare, prop::bool::weighted(0.8));
    (stream, texts, prop::option::of(0..9u8), flags).prop_map(
        |(stream, texts, note, (close, foreign, create))| StreamAppend {
            create,
            tenant: tenant(if foreign { "other" } else { "acme" }),
            note: note.map(|n| format!("覚え{n}")),
            close,
            ..append(stream, &texts)
        },
    )
}

fn any_guard() -> impl Strategy<Value = LeaseGuard> {
    ("[mn]", any_version()).prop_map(|(name, fence)| LeaseGuard { name, fence })
}

fn any_lease() -> impl Strategy<Value = LeaseChange> {
    let ttl = (0..100u64).prop_map(Duration::from_millis);
    prop_oneof![
        ("[mn]", 0..3u8, ttl.clone()).prop_map(|(name, owner, ttl)| LeaseChange::Acquire {
            name,
            owner: format!("者{owner}"),
            ttl
        }),
        (any_guard(), ttl).prop_map(|(guard, ttl)| LeaseChange::Renew { guard, ttl }),
        any_guard().prop_map(|guard| LeaseChange::Release { guard }),
    ]
}

fn any_claim() -> impl Strategy<Value = RecordClaim> {
    (prop::option::of(0..2u8), 0..3u32, 0..20u64).prop_map(|(parent, limit, hold)| RecordClaim {
        parent: parent.map(|n| format!("親{n}")),
        hold: Duration::from_millis(hold),
        ..claim("甲", limit)
    })
}

fn any_sum() -> impl Strategy<Value = TotalChange> {
    ("[xy]", -3..9i128, prop::option::of(0..5i64))
        .prop_map(|(name, amount, note)| sum(&name, amount, note))
}

fn any_commit() -> impl Strategy<Value = Commit> {
    use prop::collection::vec;
    (
        prop_oneof![4 => Just(vec![]), 1 => vec(any_guard(), 1)],
        prop_oneof![6 => Just(vec![]), 1 => (1..3u64).prop_map(|n| vec![(key("a"), n)])],
        prop_oneof![2 => Just(vec![]), 1 => vec(any_lease(), 1..3)],
        vec(any_change(), 0..3),
        vec(any_append(), 0..2),
        vec(any_claim(), 0..2),
        vec(any_sum(), 0..2),
    )
        .prop_map(|(guards, requires, leases, records, appends, claims, totals)| Commit {
            guards,
            requires,
            leases,
            records,
            appends,
            claims,
            totals,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_ends_as_its_commits_one_by_one(
        batches in prop::collection::vec(prop::collection::vec(any_commit(), 1..8), 1..6),
    ) {
        let mut together = MemoryRows::default();
        let mut apart = MemoryRows::default();
        for commits in batches {
            let mut batch = Vec::new();
            let mut singly = Vec::new();
            for commit in commits {
                batch.push(informed(&apart, commit));
                singly.push(apart.settle_one(batch[batch.len() - 1].clone()));
            }
            prop_assert_eq!(told(&together.settle(&batch)), told(&singly));
            prop_assert_eq!(&together, &apart);
            for rows in [&mut together, &mut apart] {
                rows.now = rows.now + Duration::from_millis(7);
                rows.lease_now += 30;
            }
        }
    }
}
