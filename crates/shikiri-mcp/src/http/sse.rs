//! Server-sent events: what one reader is sent, frame by frame.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use shikiri_model::connection::{EventPosition, McpConnection};
use shikiri_tenancy::gate::OpenStream;

use crate::mcp_caller::ProtocolEra;
use crate::run_follower::{CallStreamMessage, RunFollower};
use crate::subscriptions_listen::ListenSubscription;

/// A comment so often, for proxies that cut what is silent.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);
pub(super) const KEEP_ALIVE: &[u8] = b":\n\n";
/// When a client should come back.
const RETRY_MS: u64 = 1_000;

/// Something that gives frames until it ends.
pub(super) trait SseFeed: Send + 'static {
    fn next_frame(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

pub(super) fn response(feed: impl SseFeed) -> Response {
    whole(Body::from_stream(with_keep_alive(feed, KEEP_ALIVE_EVERY)))
}

/// The feed's frames, and a comment whenever none came for so long. That is beside the feed and not
/// in it: what a feed is about to send must not be dropped for a comment.
fn with_keep_alive(
    feed: impl SseFeed,
    every: Duration,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let frames = stream::unfold(feed, |mut feed| async move {
        feed.next_frame().await.map(|frame| (frame, feed))
    });
    stream::unfold(Box::pin(frames), move |mut frames| async move {
        let frame = match tokio::time::timeout(every, frames.next()).await {
            Ok(next) => next?,
            Err(_) => Bytes::from_static(KEEP_ALIVE),
        };
        Some((Ok(frame), frames))
    })
}

/// A stream of one event that is there already.
pub(super) fn once(text: &str, id: &str) -> Response {
    let mut frame = String::with_capacity(text.len() + id.len() + 32);
    push(&mut frame, Some(id), text);
    whole(Body::from(frame))
}

/// A stream that has nothing more.
pub(super) fn empty() -> Response {
    whole(Body::empty())
}

fn whole(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")),
    ];
    (headers, body).into_response()
}

/// JSON in one line needs no more than this.
pub(super) fn push(frame: &mut String, id: Option<&str>, text: &str) {
    if let Some(id) = id {
        let _ = writeln!(frame, "id: {id}");
    }
    frame.push_str("event: message\ndata: ");
    frame.push_str(text);
    frame.push_str("\n\n");
}

/// An event without content, whose id a client can resume by.
pub(super) fn priming(connection: &McpConnection, place: EventPosition) -> String {
    format!("id: {}\nretry: {RETRY_MS}\ndata: \n\n", connection.event_id(place))
}

/// A call's stream.
pub(super) struct CallFeed {
    call: RunFollower,
    slot: OpenStream,
    opening: Option<Bytes>,
    /// Whether the client has an id to come back with.
    comes_back: bool,
    ended: bool,
}

impl CallFeed {
    /// `is_resumed`: the client has an id to come back with already.
    pub(super) fn new(call: RunFollower, slot: OpenStream, is_resumed: bool) -> Self {
        let primes = call.caller().primes_streams() && !is_resumed;
        let place = call.start().filter(|_| primes);
        let opening = place.map(|place| priming(&call.caller().connection, place).into());
        let comes_back = call.caller().era == ProtocolEra::Legacy && (primes || is_resumed);
        let call = if primes { call.releasable() } else { call };
        Self { call, slot, opening, comes_back, ended: false }
    }

    /// Leaves out a failure of the server if the client can resume: the run goes on, and the stream
    /// just ends.
    fn take(&mut self, mut out: Vec<CallStreamMessage>) -> Option<Bytes> {
        if self.comes_back {
            out.retain(|out| !out.is_failure);
        }
        let is_numbered = out.iter().any(|out| out.place.is_some());
        self.comes_back |= self.call.caller().era == ProtocolEra::Legacy && is_numbered;
        (!out.is_empty()).then(|| self.frame(&out))
    }

    fn frame(&self, out: &[CallStreamMessage]) -> Bytes {
        let connection = &self.call.caller().connection;
        let mut frame = String::with_capacity(out.iter().map(|o| o.text.len() + 80).sum());
        for CallStreamMessage { place, text, .. } in out {
            let id = place.map(|place| connection.event_id(place).to_string());
            push(&mut frame, id.as_deref(), text);
        }
        frame.into()
    }
}

impl SseFeed for CallFeed {
    async fn next_frame(&mut self) -> Option<Bytes> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        if self.ended {
            return None;
        }
        tokio::select! {
            biased;
            () = self.slot.cancellation().cancelled() => {
                self.ended = true;
                // A client that can resume does so; others get the link to the run.
                if self.comes_back {
                    return None;
                }
                let last = self.call.leave().await;
                Some(self.frame(&[last]))
            }
            out = self.call.next() => self.take(out?),
        }
    }
}

/// A `subscriptions/listen` request's stream.
pub(super) struct ListenFeed {
    pub(super) listen: ListenSubscription,
    pub(super) slot: OpenStream,
    pub(super) ended: bool,
}

impl SseFeed for ListenFeed {
    async fn next_frame(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut frame = String::new();
        tokio::select! {
            () = self.slot.cancellation().cancelled() => {
                self.ended = true;
                push(&mut frame, None, &self.listen.end());
            }
            notice = self.listen.next() => push(&mut frame, None, &notice),
        }
        Some(frame.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(10);

    /// Has taken what it sends next, and waits for the store before it does.
    struct SlowFeed(Option<&'static [u8]>);

    impl SseFeed for SlowFeed {
        async fn next_frame(&mut self) -> Option<Bytes> {
            let frame = self.0.take()?;
            tokio::time::sleep(EVERY * 50).await;
            Some(Bytes::from_static(frame))
        }
    }

    #[tokio::test]
    async fn a_comment_costs_nothing_that_was_about_to_be_sent() {
        let sent: Vec<_> = with_keep_alive(SlowFeed(Some(b"data: 1\n\n")), EVERY).collect().await;
        let [comments @ .., Ok(last)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(last, "data: 1\n\n");
        assert!(!comments.is_empty() && comments.iter().all(|c| c == &Ok(Bytes::from(KEEP_ALIVE))));
    }
}
