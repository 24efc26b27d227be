//! Writes events as SSE text.
//!
//! This runs for every event of every reader, so it only copies: the data is JSON already, the
//! number is printed once, and the middle part is rewritten only when the millisecond changes.

use shikiri_model::event::EventRef;
use shikiri_model::time::Timestamp;

/// How long a reader waits before it comes back.
pub(super) const RETRY: &[u8] = b"retry: 1000\n\n";
pub(super) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";
pub(super) const DRAINING: &[u8] = b": draining\n\n";
pub(super) const NO_ACCESS: &[u8] = b": access ended\n\n";
pub(super) const UNAVAILABLE: &[u8] = b": unavailable, come back\n\n";

pub(super) fn resync(kept_after: u64) -> String {
    format!("event: resync\ndata: {{\"kept_after\":{kept_after}}}\n\n")
}

pub(super) struct SseEventWriter {
    /// The id of the events' source, and its name.
    id: String,
    id_name: &'static str,
    /// `,"at":"…","run_id":"…"` for `at`.
    middle: String,
    at: Option<Timestamp>,
}

/// Bytes around the data of an event, roughly.
const OVERHEAD: usize = 160;

impl SseEventWriter {
    pub(super) fn new(id_name: &'static str, id: &str) -> Self {
        Self { id: id.to_owned(), id_name, middle: String::new(), at: None }
    }

    pub(super) fn write(&mut self, out: &mut Vec<u8>, event: EventRef<'_>) {
        if self.at != Some(event.at) {
            // Ids have no character that JSON would escape.
            self.middle = format!(r#","at":"{}","{}":"{}""#, event.at, self.id_name, self.id);
            self.at = Some(event.at);
        }
        let mut digits = [0; 20];
        let seq = decimal(event.seq, &mut digits);
        out.reserve(event.data.len() + OVERHEAD);
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(seq);
        out.extend_from_slice(b"\nevent: ");
        out.extend_from_slice(event.kind.as_bytes());
        out.extend_from_slice(b"\ndata: {\"seq\":");
        out.extend_from_slice(seq);
        out.extend_from_slice(self.middle.as_bytes());
        match event.data.strip_prefix('{') {
            Some("}") => out.push(b'}'),
            Some(fields) => {
                out.push(b',');
                out.extend_from_slice(fields.as_bytes());
            }
            // Our events are always objects. Another value would still give valid JSON.
            None => {
                out.extend_from_slice(b",\"data\":");
                out.extend_from_slice(event.data.as_bytes());
                out.push(b'}');
            }
        }
        out.extend_from_slice(b"\n\n");
    }
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        start -= 1;
        if number == 0 {
            break;
        }
    }
    &digits[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(events: &[(u64, i64, &str, &str)]) -> String {
        let mut writer = SseEventWriter::new("run_id", "run_1");
        let mut out = Vec::new();
        for (seq, ms, kind, data) in events.iter().copied() {
            writer.write(&mut out, EventRef { seq, at: Timestamp::from_millis(ms), kind, data });
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_is_one_frame_with_its_number_time_and_run() {
        assert_eq!(
            text(&[
                (9, 0, "log", r#"{"message":"一\n二"}"#),
                (10, 0, "started", "{}"),
                (u64::MAX, 1, "odd", "[1]"),
            ]),
            "id: 9\nevent: log\n\
             data: {\"seq\":9,\"at\":\"1970-01-01T00:00:00.000Z\",\"run_id\":\"run_1\",\
             \"message\":\"一\\n二\"}\n\n\
             id: 10\nevent: started\n\
             data: {\"seq\":10,\"at\":\"1970-01-01T00:00:00.000Z\",\"run_id\":\"run_1\"}\n\n\
             id: 18446744073709551615\nevent: odd\n\
             data: {\"seq\":18446744073709551615,\"at\":\"1970-01-01T00:00:00.001Z\",\
             \"run_id\":\"run_1\",\"data\":[1]}\n\n"
        );
    }

    #[test]
    fn a_replay_from_any_cursor_has_the_same_bytes() {
        let events: Vec<_> = (1..50).map(|n| (n, n as i64 / 7, "log", r#"{"n":1}"#)).collect();
        let whole = text(&events);
        for cut in 0..events.len() {
            assert!(whole.ends_with(&text(&events[cut..])));
        }
    }

    #[test]
    fn numbers_are_printed_as_numbers() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
