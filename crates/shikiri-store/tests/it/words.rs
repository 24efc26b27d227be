//! The words that stories are told in.

use std::time::Duration;

use serde_json::json;
use shikiri_model::event::{NewEvent, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::record::{
    ExpectedVersion, Record, RecordChange, RecordClaim, RecordColumns, RecordKey,
};
use shikiri_store::{Commit, CommitError, CommitReceipt, Store, StreamAppend};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const KIND: &str = "thing";

pub(crate) fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

pub(crate) fn acme() -> TenantId {
    tenant("acme")
}

pub(crate) fn stream(name: &str) -> StreamId {
    StreamId::new(name)
}

pub(crate) fn event(text: &str) -> NewEvent {
    NewEvent::from_value("log", &json!({ "文": text }))
}

pub(crate) fn append(name: &str, texts: &[&str]) -> StreamAppend {
    StreamAppend::new(acme(), stream(name), texts.iter().map(|text| event(text)).collect())
}

pub(crate) fn closing(append: StreamAppend) -> StreamAppend {
    StreamAppend { close: true, ..append }
}

/// Appends to one stream of acme's in a commit of its own.
pub(crate) async fn write(store: &dyn Store, name: &str, texts: &[&str]) -> (Seq, Seq) {
    let committed = store.commit(Commit::new().append(append(name, texts))).await.unwrap();
    (committed.appended[0].first_seq, committed.appended[0].last_seq)
}

pub(crate) fn key(id: &str) -> RecordKey {
    RecordKey { kind: KIND, tenant: acme(), id: id.to_owned() }
}

pub(crate) fn put_for(
    owner: &str,
    id: &str,
    expect: ExpectedVersion,
    columns: RecordColumns,
) -> RecordChange {
    let key = RecordKey { tenant: tenant(owner), ..key(id) };
    RecordChange::Put { key, expect, columns, doc: doc(id) }
}

pub(crate) fn put(id: &str, expect: ExpectedVersion, columns: RecordColumns) -> RecordChange {
    put_for("acme", id, expect, columns)
}

pub(crate) fn doc(id: &str) -> String {
    json!({ "名前": id, "説明": "「引用」と\n改行" }).to_string()
}

pub(crate) fn unique(value: &str) -> RecordColumns {
    RecordColumns { unique: Some(value.to_owned()), ..RecordColumns::default() }
}

pub(crate) async fn change(
    store: &dyn Store,
    change: RecordChange,
) -> Result<CommitReceipt, CommitError> {
    store.commit(Commit::new().record(change)).await
}

pub(crate) fn claim(owner: &str, limit: u32) -> RecordClaim {
    let hold = 10 * SECOND;
    RecordClaim {
        kind: KIND,
        tenant: None,
        parent: None,
        owner: Some(owner.to_owned()),
        hold,
        limit,
    }
}

pub(crate) async fn claimed(store: &dyn Store, claim: RecordClaim) -> Vec<Record> {
    store.commit(Commit::new().claim(claim)).await.unwrap().claimed
}

pub(crate) fn ids(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.key.id.as_str()).collect()
}

/// All of a stream of acme's after a cursor, page by page: (seq, data).
pub(crate) async fn read_after(store: &dyn Store, name: &str, after: Seq) -> Vec<(Seq, String)> {
    let mut events = Vec::new();
    let mut cursor = after;
    loop {
        let page = store.read(&acme(), &stream(name), cursor, 64 * 1024).await.unwrap();
        for chunk in &page.chunks {
            events.extend(chunk.events_after(cursor).map(|e| (e.seq, e.data.to_owned())));
            cursor = chunk.last_seq();
        }
        if cursor >= page.extent.head {
            return events;
        }
        assert!(!page.chunks.is_empty(), "an empty page at {cursor} before the head");
    }
}

/// What `read_after` gives for events made by `event`, numbered from `first`.
pub(crate) fn numbered(first: Seq, texts: &[&str]) -> Vec<(Seq, String)> {
    (first..).zip(texts.iter().map(|text| event(text).data().to_owned())).collect()
}
