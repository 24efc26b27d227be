//! A stream's events as Server-Sent Events.
//!
//! The stream is a cursor on the log: everything sent was committed, its `id` is its number, and
//! the bytes of an event never change. So a reader that was cut off continues with `Last-Event-ID`
//! without losing anything. Only the terminal event of the run itself says that nothing more will
//! come.

mod event_feed;
mod event_format;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use shikiri_model::event::Seq;

pub(crate) use event_feed::{SseEventFeed, SseEventSource};

use crate::problem_response::ProblemResponse;

const LAST_EVENT_ID: &str = "Last-Event-ID";

/// Where the reader continues. The header wins: a browser sets it when it reconnects to an address
/// that still carries the first `?after=`.
pub(crate) fn cursor(headers: &HeaderMap, after: Option<&str>) -> Result<Seq, ProblemResponse> {
    let (field, text) = match (headers.get(LAST_EVENT_ID), after) {
        (Some(value), _) => (LAST_EVENT_ID, value.to_str().unwrap_or_default()),
        (None, Some(text)) => ("after", text),
        (None, None) => return Ok(0),
    };
    // Digits only: Rust parses `+1` as a number, but our ids never look like that.
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    // The log counts in a signed column; larger numbers never existed.
    number
        .filter(|seq| i64::try_from(*seq).is_ok())
        .ok_or_else(|| ProblemResponse::invalid(field, "must be the id of an event of this stream"))
}

pub(crate) fn respond(feed: SseEventFeed) -> Response {
    // Boxed once, so that moving it through the stream's steps costs a pointer.
    let frames = stream::unfold(Box::new(feed), |mut feed| async move {
        let frame = feed.next_frame().await?;
        Some((Ok::<_, std::convert::Infallible>(frame), feed))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Nginx would hold events back until its buffer is full.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(frames)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: Option<&str>, after: Option<&str>) -> Option<Seq> {
        let mut headers = HeaderMap::new();
        if let Some(text) = header {
            headers.insert(LAST_EVENT_ID, HeaderValue::from_str(text).unwrap());
        }
        cursor(&headers, after).ok()
    }

    #[test]
    fn the_header_wins_and_nonsense_is_refused() {
        assert_eq!(read(None, None), Some(0));
        assert_eq!(read(None, Some("7")), Some(7));
        assert_eq!(read(Some("9"), Some("7")), Some(9));
        assert_eq!(read(Some("9"), Some("nonsense")), Some(9));
        let huge = u64::MAX.to_string();
        for bad in ["", "x", "-1", "+1", "1.0", " 1", "0x1", &huge, "99999999999999999999"] {
            assert_eq!(read(Some(bad), None), None, "{bad:?}");
            assert_eq!(read(None, Some(bad)), None, "{bad:?}");
        }
    }
}
