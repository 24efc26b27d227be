//! What each kind of commit is refused for, and that a refused one leaves no trace.

use std::time::Duration;

use shikiri_model::event::StreamId;
use shikiri_model::lease::{LeaseChange, LeaseGuard, LeaseRefusal};
use shikiri_model::record::{ExpectedVersion, RecordChange, RecordColumns};
use shikiri_model::time::Timestamp;

use super::rows::{MemoryRows, append, due, key, put, tenant, unique};
use crate::commit::{Commit, StreamAppend};
use crate::error::CommitError;

fn acquire(name: &str, owner: &str) -> LeaseChange {
    let ttl = Duration::from_millis(100);
    LeaseChange::Acquire { name: name.into(), owner: owner.into(), ttl }
}

/// Hands in the commit together with parts of every other kind, and checks that none of them is
/// written either.
fn refusal(rows: &MemoryRows, commit: Commit) -> CommitError {
    let mut after = rows.clone();
    let everything = commit
        .lease(acquire("other lease", "私"))
        .record(put("other record", ExpectedVersion::New, due(0)))
        .append(append("other stream", &["無"]));
    let batch = [everything];
    let (mut outcomes, writes) = super::decide_batch(&batch, after.load(&batch));
    assert!(writes.is_empty(), "{writes:?}");
    assert!(writes.wakes.is_empty(), "{writes:?}");
    after.settle(&batch);
    assert_eq!(after, *rows);
    outcomes.remove(0).unwrap_err()
}

#[test]
fn a_commit_that_requires_a_record_is_refused_when_it_changed_or_is_gone() {
    let mut rows = MemoryRows::default();
    let needing = |version| Commit::new().append(append("s", &["一"])).requiring(key("a"), version);
    assert!(matches!(refusal(&rows, needing(1)), CommitError::Conflict(k) if k == key("a")));
    rows.settle_one(Commit::new().record(put("a", ExpectedVersion::New, RecordColumns::default())))
        .unwrap();
    assert!(matches!(refusal(&rows, needing(2)), CommitError::Conflict(_)));
    rows.settle_one(needing(1)).unwrap();
    // An earlier commit of the same batch counts, too.
    let change =
        Commit::new().record(put("a", ExpectedVersion::Version(1), RecordColumns::default()));
    let batch = [change, needing(1)];
    let (outcomes, _) = super::decide_batch(&batch, rows.load(&batch));
    assert!(outcomes[0].is_ok() && matches!(outcomes[1], Err(CommitError::Conflict(_))));
}

#[test]
fn a_stream_that_should_exist_is_not_made() {
    let mut rows = MemoryRows::default();
    let late = || Commit::new().append(StreamAppend { create: false, ..append("s", &["遅"]) });
    assert!(matches!(refusal(&rows, late()), CommitError::Closed(_)));
    rows.settle_one(Commit::new().append(append("s", &["一"]))).unwrap();
    rows.settle_one(late()).unwrap();
}

#[test]
fn a_writer_without_its_lease_is_refused() {
    let mut rows = MemoryRows::default();
    let never = LeaseGuard { name: "会話/1".into(), fence: 1 };
    let lost = LeaseRefusal::Lost { name: "会話/1".into() };
    let guarded =
        |guard: &LeaseGuard| Commit::new().guarded_by(guard.clone()).append(append("s", &["x"]));

    let error = refusal(&rows, guarded(&never));
    assert!(matches!(error, CommitError::Lease(refusal) if refusal == lost));

    let held =
        rows.settle_one(Commit::new().lease(acquire("会話/1", "甲"))).unwrap().leases.remove(0);
    rows.settle_one(guarded(&held.guard())).unwrap();

    rows.lease_now = 100;
    let error = refusal(&rows, guarded(&held.guard()));
    assert!(matches!(error, CommitError::Lease(refusal) if refusal == lost), "expired");

    rows.settle_one(Commit::new().lease(acquire("会話/1", "乙"))).unwrap();
    let error = refusal(&rows, guarded(&held.guard()));
    assert!(matches!(error, CommitError::Lease(refusal) if refusal == lost), "taken");

    for stale in [
        LeaseChange::Renew { guard: held.guard(), ttl: Duration::from_secs(9) },
        LeaseChange::Release { guard: held.guard() },
    ] {
        let error = refusal(&rows, Commit::new().lease(stale));
        assert!(matches!(error, CommitError::Lease(refusal) if refusal == lost));
    }
}

#[test]
fn a_held_lease_is_refused_with_its_holder() {
    let mut rows = MemoryRows::default();
    rows.settle_one(Commit::new().lease(acquire("n", "甲"))).unwrap();
    rows.lease_now = 30;
    let held = LeaseRefusal::Held { name: "n".into(), owner: "甲".into(), for_ms: 70 };
    let error = refusal(&rows, Commit::new().lease(acquire("n", "乙")));
    assert!(matches!(error, CommitError::Lease(refusal) if refusal == held));
}

#[test]
fn a_record_is_changed_only_with_the_version_that_was_read() {
    let mut rows = MemoryRows::default();
    let new = || Commit::new().record(put("a", ExpectedVersion::New, RecordColumns::default()));
    let change = |version| {
        Commit::new().record(put("a", ExpectedVersion::Version(version), RecordColumns::default()))
    };
    let delete = |version| Commit::new().record(RecordChange::Delete { key: key("a"), version });

    assert!(matches!(refusal(&rows, change(1)), CommitError::Conflict(k) if k == key("a")));
    assert!(matches!(refusal(&rows, delete(1)), CommitError::Conflict(k) if k == key("a")));
    assert_eq!(rows.settle_one(new()).unwrap().versions, [1]);
    assert!(matches!(refusal(&rows, new()), CommitError::Exists(k) if k == key("a")));
    assert_eq!(rows.settle_one(change(1)).unwrap().versions, [2]);
    for stale in [0, 1, 3] {
        assert!(matches!(refusal(&rows, change(stale)), CommitError::Conflict(_)));
        assert!(matches!(refusal(&rows, delete(stale)), CommitError::Conflict(_)));
    }
    assert_eq!(rows.settle_one(delete(2)).unwrap().versions, [0]);
    assert_eq!(rows.settle_one(new()).unwrap().versions, [1]);
}

#[test]
fn a_change_keeps_the_birthday_and_forgets_the_attempts() {
    let mut rows = MemoryRows::default();
    rows.settle_one(Commit::new().record(put("a", ExpectedVersion::New, due(0)))).unwrap();
    rows.now = Timestamp::from_millis(5);
    let claimed =
        rows.settle_one(Commit::new().claim(super::rows::claim("甲", 1))).unwrap().claimed;
    assert_eq!((claimed[0].version, claimed[0].attempts), (2, 1));
    rows.settle_one(Commit::new().record(put("a", ExpectedVersion::Version(2), due(9)))).unwrap();
    let record = &rows.records[&key("a")];
    assert_eq!((record.version, record.attempts), (3, 0));
    assert_eq!((record.created_at.as_millis(), record.updated_at.as_millis()), (0, 5));
}

#[test]
fn a_unique_value_belongs_to_one_record_of_its_kind_and_tenant() {
    let mut rows = MemoryRows::default();
    rows.settle_one(Commit::new().record(put("a", ExpectedVersion::New, unique("鍵")))).unwrap();
    let taken = || Commit::new().record(put("b", ExpectedVersion::New, unique("鍵")));
    assert!(matches!(refusal(&rows, taken()), CommitError::NotUnique(k) if k == key("a")));

    // Its own value is no obstacle, and another tenant has its own values.
    rows.settle_one(Commit::new().record(put("a", ExpectedVersion::Version(1), unique("鍵"))))
        .unwrap();
    let RecordChange::Put { key: mut theirs, expect, columns, doc } =
        put("z", ExpectedVersion::New, unique("鍵"))
    else {
        unreachable!()
    };
    theirs.tenant = tenant("other");
    rows.settle_one(Commit::new().record(RecordChange::Put { key: theirs, expect, columns, doc }))
        .unwrap();

    // Given up, it is free for others.
    rows.settle_one(Commit::new().record(put("a", ExpectedVersion::Version(2), unique("別"))))
        .unwrap();
    rows.settle_one(taken()).unwrap();
    let delete = RecordChange::Delete { key: key("b"), version: 1 };
    rows.settle_one(Commit::new().record(delete)).unwrap();
    rows.settle_one(Commit::new().record(put("c", ExpectedVersion::New, unique("鍵")))).unwrap();
}

#[test]
fn nothing_follows_a_close() {
    let mut rows = MemoryRows::default();
    let close = StreamAppend { close: true, ..append("s", &["終"]) };
    rows.settle_one(Commit::new().append(close)).unwrap();
    for late in [append("s", &["遅"]), append("s", &[])] {
        let error = refusal(&rows, Commit::new().append(late));
        assert!(matches!(error, CommitError::Closed(stream) if stream == StreamId::new("s")));
    }
}

#[test]
fn a_stream_of_another_tenant_looks_closed() {
    let mut rows = MemoryRows::default();
    rows.settle_one(Commit::new().append(append("s", &["私"]))).unwrap();
    let foreign = StreamAppend { tenant: tenant("other"), ..append("s", &["侵"]) };
    let error = refusal(&rows, Commit::new().append(foreign));
    assert!(matches!(error, CommitError::Closed(stream) if stream == StreamId::new("s")));
}

/// The parts of one commit are checked in order, each on top of the ones before it.
mod within_one_commit {
    use super::*;

    #[test]
    fn one_lease_is_not_taken_twice() {
        let twice = Commit::new().lease(acquire("n", "甲")).lease(acquire("n", "乙"));
        let error = refusal(&MemoryRows::default(), twice);
        assert!(
            matches!(error, CommitError::Lease(LeaseRefusal::Held { owner, .. }) if owner == "甲")
        );
    }

    #[test]
    fn a_lease_is_handed_over() {
        let mut rows = MemoryRows::default();
        let first =
            rows.settle_one(Commit::new().lease(acquire("n", "甲"))).unwrap().leases.remove(0);
        let over = Commit::new()
            .guarded_by(first.guard())
            .lease(LeaseChange::Release { guard: first.guard() })
            .lease(acquire("n", "乙"));
        let leases = rows.settle_one(over).unwrap().leases;
        assert_eq!(leases.iter().map(|l| l.fence).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(rows.leases["n"].owner, "乙");
    }

    #[test]
    fn one_unique_value_is_not_taken_twice() {
        let twice = Commit::new().record(put("a", ExpectedVersion::New, unique("鍵"))).record(put(
            "b",
            ExpectedVersion::New,
            unique("鍵"),
        ));
        let error = refusal(&MemoryRows::default(), twice);
        assert!(matches!(error, CommitError::NotUnique(k) if k == key("a")));
    }

    #[test]
    fn a_unique_value_moves_from_one_record_to_another() {
        let mut rows = MemoryRows::default();
        rows.settle_one(Commit::new().record(put("b", ExpectedVersion::New, unique("鍵"))))
            .unwrap();
        let moved = Commit::new()
            .record(RecordChange::Delete { key: key("b"), version: 1 })
            .record(put("a", ExpectedVersion::New, unique("鍵")));
        assert_eq!(rows.settle_one(moved).unwrap().versions, [0, 1]);
    }

    #[test]
    fn two_records_exchange_their_unique_values() {
        let mut rows = MemoryRows::default();
        for (id, value) in [("a", "東"), ("b", "西")] {
            rows.settle_one(Commit::new().record(put(id, ExpectedVersion::New, unique(value))))
                .unwrap();
        }
        let exchange = Commit::new()
            .record(put("a", ExpectedVersion::Version(1), RecordColumns::default()))
            .record(put("b", ExpectedVersion::Version(1), unique("東")))
            .record(put("a", ExpectedVersion::Version(2), unique("西")));
        assert_eq!(rows.settle_one(exchange).unwrap().versions, [2, 2, 3]);
        let has = |id| rows.records[&key(id)].columns.unique.as_deref();
        assert_eq!((has("a"), has("b")), (Some("西"), Some("東")));
    }

    #[test]
    fn one_record_is_not_made_twice() {
        let twice = Commit::new()
            .record(put("a", ExpectedVersion::New, RecordColumns::default()))
            .record(put("a", ExpectedVersion::New, RecordColumns::default()));
        let error = refusal(&MemoryRows::default(), twice);
        assert!(matches!(error, CommitError::Exists(k) if k == key("a")));
    }

    #[test]
    fn a_record_is_changed_step_by_step() {
        let mut rows = MemoryRows::default();
        let steps = Commit::new()
            .record(put("a", ExpectedVersion::New, RecordColumns::default()))
            .record(put("a", ExpectedVersion::Version(1), RecordColumns::default()))
            .record(RecordChange::Delete { key: key("a"), version: 2 });
        assert_eq!(rows.settle_one(steps).unwrap().versions, [1, 2, 0]);
        assert!(rows.records.is_empty());
    }

    #[test]
    fn nothing_follows_a_close() {
        let late = Commit::new()
            .append(StreamAppend { close: true, ..append("s", &["終"]) })
            .append(append("s", &["遅"]));
        assert!(matches!(refusal(&MemoryRows::default(), late), CommitError::Closed(_)));
    }

    #[test]
    fn a_new_stream_has_one_tenant() {
        let mixed = Commit::new()
            .append(append("s", &["私"]))
            .append(StreamAppend { tenant: tenant("other"), ..append("s", &["侵"]) });
        assert!(matches!(refusal(&MemoryRows::default(), mixed), CommitError::Closed(_)));
    }
}
