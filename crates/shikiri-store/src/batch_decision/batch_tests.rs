//! Commits that are settled together: each sees what the ones before it did, and the outcome is
//! that of settling them one by one.

use std::time::Duration;

use serde_json::json;
use shikiri_model::event::{NewEvent, StreamId};
use shikiri_model::lease::{LeaseChange, LeaseGuard};
use shikiri_model::record::{ExpectedVersion, RecordChange, RecordClaim, RecordColumns};
use shikiri_model::time::Timestamp;

use super::decide_batch;
use super::rows::{MemoryRows, append, claim, due, key, put, tenant, unique};
use crate::commit::{AppendedRange, Commit, StreamAppend};
use crate::error::CommitError;
use crate::hub::HubTopic;

fn acquire(name: &str, owner: &str) -> LeaseChange {
    let ttl = Duration::from_millis(100);
    LeaseChange::Acquire { name: name.into(), owner: owner.into(), ttl }
}

#[test]
fn numbers_go_on_from_one_commit_to_the_next() {
    let mut rows = MemoryRows::default();
    let outcomes = rows.settle(&[
        Commit::new().append(append("s", &["一", "二"])),
        Commit::new().append(append("s", &["三"])).append(append("t", &["甲"])),
    ]);
    let appended: Vec<_> = outcomes.into_iter().flat_map(|o| o.unwrap().appended).collect();
    let span = |first_seq, last_seq| AppendedRange { first_seq, last_seq };
    assert_eq!(appended, [span(1, 2), span(3, 3), span(1, 1)]);
    let outcomes = rows.settle(&[Commit::new().append(append("s", &["四"]))]);
    assert_eq!(outcomes[0].as_ref().unwrap().appended, [span(4, 4)]);
}

#[test]
fn a_refused_commit_between_two_others_changes_nothing_for_them() {
    let mut rows = MemoryRows::default();
    let outcomes = rows.settle(&[
        Commit::new().append(append("s", &["一"])),
        Commit::new().append(append("s", &["失"])).record(put(
            "a",
            ExpectedVersion::Version(7),
            RecordColumns::default(),
        )),
        Commit::new().append(append("s", &["二"])),
    ]);
    assert!(matches!(outcomes[1], Err(CommitError::Conflict(_))));
    let texts: Vec<_> =
        rows.streams[&StreamId::new("s")].events.iter().map(|event| event.3.as_str()).collect();
    assert_eq!(texts, [r#"{"文":"一"}"#, r#"{"文":"二"}"#]);
}

#[test]
fn only_the_first_of_two_gets_the_lease_the_id_and_the_unique_value() {
    let mut rows = MemoryRows::default();
    let outcomes = rows.settle(&[
        Commit::new().lease(acquire("n", "甲")),
        Commit::new().lease(acquire("n", "乙")),
        Commit::new().record(put("a", ExpectedVersion::New, unique("鍵"))),
        Commit::new().record(put("a", ExpectedVersion::New, unique("別"))),
        Commit::new().record(put("b", ExpectedVersion::New, unique("鍵"))),
        Commit::new().record(put("a", ExpectedVersion::Version(1), unique("別"))),
        Commit::new().record(put("b", ExpectedVersion::New, unique("鍵"))),
    ]);
    let told: Vec<_> =
        outcomes.iter().map(|o| o.as_ref().map(|_| ()).map_err(ToString::to_string)).collect();
    let refused = |text: &str| Err(text.to_owned());
    assert_eq!(
        told,
        [
            Ok(()),
            refused("n is held by 甲"),
            Ok(()),
            refused("run a exists already"),
            refused("run a has the same unique value"),
            Ok(()),
            Ok(()),
        ]
    );
}

#[test]
fn a_guard_lost_earlier_in_the_batch_is_lost() {
    let mut rows = MemoryRows::default();
    let guard = LeaseGuard { name: "n".into(), fence: 1 };
    let write = || Commit::new().guarded_by(guard.clone()).append(append("s", &["書"]));
    let outcomes = rows.settle(&[
        Commit::new().lease(acquire("n", "甲")),
        write(),
        Commit::new().lease(LeaseChange::Release { guard: guard.clone() }),
        write(),
    ]);
    assert!(outcomes[1].is_ok());
    assert!(matches!(outcomes[3], Err(CommitError::Lease(_))));
    assert_eq!(rows.streams[&StreamId::new("s")].row.head, 1);
}

#[test]
fn claims_of_one_batch_are_distinct_and_oldest_due_first() {
    let mut rows = MemoryRows { now: Timestamp::from_millis(50), ..MemoryRows::default() };
    for (id, ms) in [("a", 30), ("b", 10), ("c", 20), ("d", 51)] {
        rows.settle_one(Commit::new().record(put(id, ExpectedVersion::New, due(ms)))).unwrap();
    }
    let outcomes = rows.settle(&[
        Commit::new().claim(claim("甲", 2)),
        Commit::new().claim(claim("乙", 2)),
        Commit::new().claim(claim("丙", 2)),
    ]);
    let got: Vec<Vec<_>> = outcomes
        .into_iter()
        .map(|o| o.unwrap().claimed.into_iter().map(|r| r.key.id).collect())
        .collect();
    assert_eq!(got, [vec!["b", "c"], vec!["a"], vec![]]);
}

#[test]
fn a_claim_sees_what_became_due_earlier_in_the_batch() {
    let mut rows = MemoryRows::default();
    let outcomes = rows.settle(&[
        Commit::new().record(put("new", ExpectedVersion::New, due(0))),
        Commit::new().claim(claim("甲", 1)),
    ]);
    assert_eq!(outcomes[1].as_ref().unwrap().claimed[0].key, key("new"));
}

#[test]
fn records_settled_earlier_in_the_batch_do_not_cost_a_claim_its_share() {
    let mut rows = MemoryRows::default();
    for id in ["a", "b", "c"] {
        rows.settle_one(Commit::new().record(put(id, ExpectedVersion::New, due(0)))).unwrap();
    }
    let outcomes = rows.settle(&[
        Commit::new().record(RecordChange::Delete { key: key("a"), version: 1 }),
        Commit::new().record(put("b", ExpectedVersion::Version(1), RecordColumns::default())),
        Commit::new().claim(claim("甲", 1)),
    ]);
    assert_eq!(outcomes[2].as_ref().unwrap().claimed[0].key, key("c"));
}

#[test]
fn a_hold_of_zero_does_not_give_one_record_twice() {
    let mut rows = MemoryRows::default();
    rows.settle_one(Commit::new().record(put("a", ExpectedVersion::New, due(0)))).unwrap();
    let at_once = RecordClaim { hold: Duration::ZERO, ..claim("甲", 5) };
    assert_eq!(rows.settle_one(Commit::new().claim(at_once)).unwrap().claimed.len(), 1);
}

#[test]
fn a_batch_packs_each_stream_into_one_chunk() {
    let rows = MemoryRows::default();
    let batch: Vec<_> = (0..50)
        .map(|_| Commit::new().append(append("s", &["一"])).append(append("t", &["二", "三"])))
        .collect();
    let (_, writes) = decide_batch(&batch, rows.load(&batch));
    let packed: Vec<_> = writes
        .streams
        .iter()
        .map(|w| (w.stream.as_str(), w.row.head, w.is_new, w.chunks.len()))
        .collect();
    assert_eq!(packed, [("s", 50, true, 1), ("t", 100, true, 1)]);
    assert_eq!(writes.streams[0].chunks[0].events().count(), 50);
}

#[test]
fn a_large_batch_is_cut_into_chunks_of_256_kib_without_gaps() {
    let mut rows = MemoryRows::default();
    rows.settle_one(Commit::new().append(append("s", &["前"]))).unwrap();
    let text = "字".repeat(10_000);
    let batch: Vec<_> = (0..40).map(|_| Commit::new().append(append("s", &[&text]))).collect();
    let (_, writes) = decide_batch(&batch, rows.load(&batch));
    let chunks = &writes.streams[0].chunks;
    let spans: Vec<_> = chunks.iter().map(|c| (c.first_seq(), c.last_seq())).collect();
    assert_eq!(spans, [(2, 10), (11, 19), (20, 28), (29, 37), (38, 41)]);
    let sizes: Vec<_> = chunks.iter().map(|c| c.body().len()).collect();
    assert!(sizes[..4].iter().all(|size| (256 * 1024..300 * 1024).contains(size)), "{sizes:?}");

    // An event larger than a chunk is a chunk.
    let huge = NewEvent::from_value("log", &json!("大".repeat(100_000)));
    let small = NewEvent::from_value("log", &json!("小"));
    let events = vec![huge, small];
    let batch =
        [Commit::new().append(StreamAppend::new(tenant("acme"), StreamId::new("s"), events))];
    let (_, writes) = decide_batch(&batch, rows.load(&batch));
    assert_eq!(writes.streams[0].chunks.len(), 2);
}

#[test]
fn the_last_note_of_a_batch_wins_and_none_keeps_the_old_one() {
    let mut rows = MemoryRows::default();
    let noted = |note: Option<&str>| {
        Commit::new()
            .append(StreamAppend { note: note.map(str::to_owned), ..append("s", &["一"]) })
    };
    let note = |rows: &MemoryRows| rows.streams[&StreamId::new("s")].note.clone();
    rows.settle(&[noted(Some("半分")), noted(Some("八割")), noted(None)]);
    assert_eq!(note(&rows).as_deref(), Some("八割"));
    rows.settle(&[noted(None)]);
    assert_eq!(note(&rows).as_deref(), Some("八割"));
}

#[test]
fn closing_without_an_event_is_written() {
    let rows = MemoryRows::default();
    let batch = [Commit::new().append(StreamAppend { close: true, ..append("s", &[]) })];
    let (outcomes, writes) = decide_batch(&batch, rows.load(&batch));
    let appended = &outcomes[0].as_ref().unwrap().appended;
    assert_eq!(appended, &[AppendedRange { first_seq: 1, last_seq: 0 }]);
    let write = &writes.streams[0];
    assert!(write.is_new && write.row.closed && write.chunks.is_empty());
}

#[test]
fn whoever_waits_for_a_freed_lease_or_due_records_is_woken_once() {
    let mut rows = MemoryRows::default();
    let held = rows.settle_one(Commit::new().lease(acquire("n", "甲"))).unwrap().leases.remove(0);
    let batch = [
        Commit::new().record(put("a", ExpectedVersion::New, due(0))),
        Commit::new().lease(LeaseChange::Release { guard: held.guard() }),
        Commit::new().lease(acquire("m", "乙")),
        Commit::new().record(put("b", ExpectedVersion::New, due(5))),
        Commit::new().record(put("c", ExpectedVersion::New, RecordColumns::default())),
        Commit::new().claim(claim("丙", 1)),
    ];
    let (_, writes) = decide_batch(&batch, rows.load(&batch));
    assert_eq!(writes.wakes, [HubTopic::Due("run"), HubTopic::Lease("n".into())]);
}
