//! Random steps of stories: small worlds, so that they meet often. A version or fence of
//! [`CURRENT`] stands for the one that the writer has just read; most writers have.

use std::time::Duration;

use proptest::prelude::*;
use shikiri_model::lease::{LeaseChange, LeaseGuard};
use shikiri_model::record::{
    ExpectedVersion, RecordChange, RecordClaim, RecordColumns, RecordKey, RecordQuery,
};
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, StreamAppend};

use crate::agreement::Step;
use crate::words::{KIND, claim, doc, event, key, stream, tenant};

pub(crate) const CURRENT: u64 = 0;

fn owner() -> impl Strategy<Value = &'static str> {
    prop_oneof![9 => Just("acme"), 1 => Just("other")]
}

fn version() -> impl Strategy<Value = u64> {
    prop_oneof![9 => Just(CURRENT), 1 => 1..4u64]
}

fn stream_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["流/一", "流/二", "流/三", "流/四", "流/五"])
}

fn lease_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["鍵_一", "鍵X一"])
}

fn guard() -> impl Strategy<Value = LeaseGuard> {
    (lease_name(), version()).prop_map(|(name, fence)| LeaseGuard { name: name.into(), fence })
}

fn lease_change() -> impl Strategy<Value = LeaseChange> {
    let ttl = (0..60u64).prop_map(Duration::from_millis);
    prop_oneof![
        (lease_name(), 0..3u8, ttl.clone()).prop_map(|(name, n, ttl)| LeaseChange::Acquire {
            name: name.into(),
            owner: format!("者{n}"),
            ttl
        }),
        (guard(), ttl).prop_map(|(guard, ttl)| LeaseChange::Renew { guard, ttl }),
        guard().prop_map(|guard| LeaseChange::Release { guard }),
    ]
}

fn columns() -> impl Strategy<Value = RecordColumns> {
    (
        0..2u8,
        prop::option::of(0..2u8),
        prop::option::weighted(0.3, 0..3u8),
        prop::option::of(0..5i64),
    )
        .prop_map(|(state, parent, unique, due)| RecordColumns {
            state: format!("状態{state}"),
            parent: parent.map(|n| format!("親{n}")),
            owner: None,
            unique: unique.map(|n| format!("値{n}")),
            due_at: due.map(Timestamp::from_millis),
        })
}

fn record_key() -> impl Strategy<Value = RecordKey> {
    (owner(), prop::sample::select(vec!["B", "a", "c", "記"]))
        .prop_map(|(owner, id)| RecordKey { tenant: tenant(owner), ..key(id) })
}

fn record_change() -> impl Strategy<Value = RecordChange> {
    let expect = prop_oneof![1 => Just(ExpectedVersion::New), 9 => version().prop_map(ExpectedVersion::Version)];
    prop_oneof![
        7 => (record_key(), expect, columns()).prop_map(|(key, expect, columns)| {
            let doc = doc(&key.id);
            RecordChange::Put { key, expect, columns, doc }
        }),
        1 => (record_key(), version()).prop_map(|(key, version)| RecordChange::Delete { key, version }),
    ]
}

fn append() -> impl Strategy<Value = StreamAppend> {
    let texts = prop::collection::vec(prop::sample::select(vec!["一", "二\n", "三 四"]), 0..4);
    (owner(), stream_name(), texts, prop::option::of(0..9u8), prop::bool::weighted(0.08)).prop_map(
        |(owner, name, texts, note, close)| StreamAppend {
            note: note.map(|n| format!("覚え{n}")),
            close,
            ..StreamAppend::new(
                tenant(owner),
                stream(name),
                texts.iter().map(|text| event(text)).collect(),
            )
        },
    )
}

fn any_claim() -> impl Strategy<Value = RecordClaim> {
    (prop::option::of(owner()), prop::option::of(0..2u8), 0..60u64, 0..4u32).prop_map(
        |(owner, parent, hold, limit)| RecordClaim {
            tenant: owner.map(tenant),
            parent: parent.map(|n| format!("親{n}")),
            hold: Duration::from_millis(hold),
            ..claim("取る人", limit)
        },
    )
}

fn commit() -> impl Strategy<Value = Commit> {
    use prop::collection::vec;
    (
        prop_oneof![4 => Just(vec![]), 1 => vec(guard(), 1)],
        prop_oneof![3 => Just(vec![]), 1 => vec(lease_change(), 1..3)],
        vec(record_change(), 0..3),
        vec(append(), 0..2),
        vec(any_claim(), 0..3),
    )
        .prop_map(|(guards, leases, records, appends, claims)| Commit {
            guards,
            leases,
            records,
            appends,
            claims,
            ..Commit::default()
        })
}

fn query() -> impl Strategy<Value = RecordQuery> {
    (owner(), prop::option::of(0..2u8), prop::option::of(0..2u8), any::<bool>(), 1..6u32).prop_map(
        |(owner, state, parent, newest_first, limit)| RecordQuery {
            kind: KIND,
            tenant: Some(tenant(owner)),
            state: state.map(|n| format!("状態{n}")),
            parent: parent.map(|n| format!("親{n}")),
            newest_first,
            limit,
            ..RecordQuery::default()
        },
    )
}

pub(crate) fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => commit().prop_map(Step::Commit),
        2 => (0..50u64).prop_map(Step::Wait),
        3 => (owner(), stream_name(), 0..8u64)
            .prop_map(|(owner, name, after)| Step::Read(tenant(owner), stream(name), after)),
        2 => query().prop_map(Step::List),
        1 => prop::sample::select(vec!["値0", "値1", "値2", "無い"]).prop_map(Step::Find),
        1 => Just(Step::NextDue),
        1 => prop::sample::select(vec!["", "鍵", "鍵_", "無い"]).prop_map(Step::Lapsed),
        1 => guard().prop_map(Step::Forget),
        1 => (0..100u64).prop_map(Step::Purge),
        1 => owner().prop_map(|owner| Step::Erase(tenant(owner))),
    ]
}
