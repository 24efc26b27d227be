//! The frames that one reader of a stream receives.

use std::time::Duration;

use bytes::Bytes;
use shikiri_model::audit::audit_stream;
use shikiri_model::cursor::CursorError;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::{DialogueId, RunId, TenantId};
use shikiri_model::run::run_stream;
use shikiri_model::team::dialogue_stream;
use shikiri_runtime::{AppError, EventBatch, Watch, WatchError};
use shikiri_tenancy::gate::OpenStream;

use super::event_format::{self, SseEventWriter};
use crate::access_extractors::TenantAccess;
use crate::problem_response::{Code, ProblemResponse};
use crate::web_state::SharedWebState;

/// A frame ends with the event that passes this size: large enough that a write costs nothing
/// per event, small enough that a thousand stuck readers hold little.
const FRAME_BYTES: usize = 128 * 1024;
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);

/// The source of the events.
pub(crate) struct SseEventSource {
    stream: StreamId,
    id: String,
    /// The id's name in the events.
    id_name: &'static str,
    kind: &'static str,
}

impl SseEventSource {
    pub(crate) fn run(run: &RunId) -> Self {
        let id_name = if run.is_execution() { "execution_id" } else { "run_id" };
        Self { stream: run_stream(run), id: run.to_string(), id_name, kind: "run" }
    }

    /// The audit log belongs to no tenant; admins read it.
    pub(crate) fn audit() -> Self {
        let id = "audit".to_owned();
        Self { stream: audit_stream(), id, id_name: "log", kind: "audit log" }
    }

    pub(crate) fn dialogue(dialogue: &DialogueId) -> Self {
        let (stream, id) = (dialogue_stream(dialogue), dialogue.to_string());
        Self { stream, id, id_name: "conversation_id", kind: "dialogue" }
    }
}

pub(crate) struct SseEventFeed {
    web: SharedWebState,
    tenant: TenantId,
    source: SseEventSource,
    watch: Watch,
    writer: SseEventWriter,
    /// Sent before anything else.
    opening: Option<Bytes>,
    /// Events that did not fit into the last frame.
    rest: Option<EventBatch>,
    ended: bool,
    stream: OpenStream,
}

impl SseEventFeed {
    pub(crate) async fn open(
        web: SharedWebState,
        access: TenantAccess,
        source: SseEventSource,
        after: Seq,
    ) -> Result<Self, ProblemResponse> {
        let stream = web.gate.open_stream(&access.caller, &access.record)?;
        let (watch, expired) = open_watch(&web, &access.tenant, &source, after).await?;
        let mut opening = event_format::RETRY.to_vec();
        opening.extend(expired.map(event_format::resync).unwrap_or_default().bytes());
        Ok(Self {
            writer: SseEventWriter::new(source.id_name, &source.id),
            opening: Some(opening.into()),
            rest: None,
            ended: false,
            tenant: access.tenant,
            web,
            source,
            watch,
            stream,
        })
    }

    /// None when the server ends the stream.
    pub(crate) async fn next_frame(&mut self) -> Option<Bytes> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        if self.ended {
            return None;
        }
        if let Some(rest) = self.rest.take() {
            return Some(self.fill_frame(rest));
        }
        tokio::select! {
            biased;
            () = self.stream.cancellation().cancelled() => Some(self.end_with(self.reason_to_end())),
            next = self.watch.next() => self.deliver(next).await,
            () = tokio::time::sleep(KEEP_ALIVE_EVERY) => Some(self.keep_alive_or_end().await),
        }
    }

    async fn deliver(&mut self, next: Result<Option<EventBatch>, WatchError>) -> Option<Bytes> {
        match next {
            Ok(Some(delivery)) => Some(self.fill_frame(delivery)),
            Ok(None) => None,
            Err(WatchError::Cursor(CursorError::Expired { kept_after })) => {
                Some(self.resync(kept_after).await)
            }
            Err(error) => {
                tracing::warn!(stream = %self.source.stream, %error, "a stream was ended");
                Some(self.end_with(event_format::UNAVAILABLE))
            }
        }
    }

    /// As many of the available events as one frame holds.
    fn fill_frame(&mut self, first: EventBatch) -> Bytes {
        let mut frame = Vec::new();
        let mut next = Some(first);
        while let Some(delivery) = next {
            for event in delivery.events() {
                self.writer.write(&mut frame, event);
                if frame.len() >= FRAME_BYTES {
                    self.rest = delivery.rest_after(event.seq);
                    return frame.into();
                }
            }
            next = self.watch.take_ready();
        }
        frame.into()
    }

    async fn resync(&mut self, kept_after: Seq) -> Bytes {
        match open_watch(&self.web, &self.tenant, &self.source, kept_after).await {
            Ok((watch, expired)) => {
                self.watch = watch;
                Bytes::from(event_format::resync(expired.unwrap_or(kept_after)))
            }
            Err(_) => self.end_with(event_format::UNAVAILABLE),
        }
    }

    /// A removed tenant sends nothing more, so its streams end.
    async fn keep_alive_or_end(&mut self) -> Bytes {
        if self.tenant == TenantId::system() {
            return Bytes::from_static(event_format::KEEP_ALIVE);
        }
        match self.web.gate.tenant(&self.tenant).await {
            Err(AppError::NotFound { .. }) => self.end_with(event_format::NO_ACCESS),
            _ => Bytes::from_static(event_format::KEEP_ALIVE),
        }
    }

    fn end_with(&mut self, comment: &'static [u8]) -> Bytes {
        self.ended = true;
        Bytes::from_static(comment)
    }

    fn reason_to_end(&self) -> &'static [u8] {
        if self.web.gate.draining().is_cancelled() {
            event_format::DRAINING
        } else {
            event_format::NO_ACCESS
        }
    }
}

/// The watch. If the requested events are no longer kept, also the position where it starts.
async fn open_watch(
    web: &SharedWebState,
    tenant: &TenantId,
    source: &SseEventSource,
    after: Seq,
) -> Result<(Watch, Option<Seq>), ProblemResponse> {
    let mut expired = None;
    // A second try is enough unless events are removed at this very moment.
    for _ in 0..3 {
        let from = expired.unwrap_or(after);
        match web
            .app
            .runtime
            .watch(tenant, source.stream.clone(), from)
            .await
            .map_err(WatchError::from)
        {
            Ok(watch) => return Ok((watch, expired)),
            Err(WatchError::Cursor(CursorError::Expired { kept_after })) => {
                expired = Some(kept_after);
            }
            Err(error) => {
                let problem = ProblemResponse::from(error);
                let is_missing = problem.code == Code::NotFound;
                let missing = || ProblemResponse::id_not_found(source.kind, &source.id);
                return Err(if is_missing { missing() } else { problem });
            }
        }
    }
    Err(ProblemResponse::new(Code::Unavailable, "events are being removed: try again in a moment"))
}
