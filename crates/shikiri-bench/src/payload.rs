//! The event that is written and sent everywhere: about 200 bytes of JSON.

use shikiri_model::event::{NewEvent, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_store::{Commit, StreamAppend};

use crate::machine::monotonic_ns;

const TEXT: &str = "The quick brown fox jumps over the lazy dog while the band plays on and on, \
                    and nobody in the whole wide town sees it";

/// The text of one `log` event.
pub(crate) fn text() -> &'static str {
    TEXT
}

pub(crate) fn stream(number: u32) -> StreamId {
    StreamId::new(format!("run/run_{number:032}"))
}

/// An event that tells when it was handed in.
pub(crate) fn event() -> NewEvent {
    let data = serde_json::json!({ "at_ns": monotonic_ns(), "logger": "bench", "message": TEXT,
                                   "more": &TEXT[..40] });
    NewEvent::from_value("log", &data)
}

/// When the event was handed in.
pub(crate) fn handed_in(data: &str) -> Option<u64> {
    data.strip_prefix(r#"{"at_ns":"#)?.split(',').next()?.parse().ok()
}

/// One event for the end of one stream.
pub(crate) fn commit(stream: &StreamId) -> Commit {
    Commit::new().append(StreamAppend::new(TenantId::local(), stream.clone(), vec![event()]))
}

/// One event as it lies in a row.
pub(crate) fn stored_line() -> String {
    format!("1794772800000 log {}\n", event().data())
}

/// What a frame of Shikiri's carries for a `log` event of this text.
pub(crate) fn frame_data(seq: u64) -> String {
    format!(
        r#"{{"seq":{seq},"at":"2026-11-15T20:00:00.000Z","run_id":"run_0198{seq:028}","index":{seq},"level":"info","logger":"bench","message":"{TEXT}"}}"#
    )
}
