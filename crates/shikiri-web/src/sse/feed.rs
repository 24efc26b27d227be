//! What one reader of a stream is sent, frame by frame.

use std::time::Duration;

use bytes::Bytes;
use shikiri_app::gate::OpenStream;
use shikiri_app::{AppError, Delivery, Watch, WatchError};
use shikiri_model::audit::audit_stream;
use shikiri_model::cursor::CursorError;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::{DialogueId, RunId, TenantId};
use shikiri_model::run::stream_of;
use shikiri_model::team::dialogue_stream;

use super::format::{self, EventWriter};
use crate::access::TenantAccess;
use crate::error::{Code, Problem};
use crate::state::Shared;

/// A frame ends with the event that passes this size: large enough that a write costs nothing
/// per event, small enough that a thousand stuck readers hold little.
const FRAME_BYTES: usize = 128 * 1024;
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);

/// Whose events are read.
pub(crate) struct Source {
    stream: StreamId,
    id: String,
    /// What readers know the id as.
    id_name: &'static str,
    kind: &'static str,
}

impl Source {
    pub(crate) fn run(run: &RunId) -> Self {
        let id_name = if run.is_execution() { "execution_id" } else { "run_id" };
        Self { stream: stream_of(run), id: run.to_string(), id_name, kind: "run" }
    }

    /// Of no tenant: admins read it.
    pub(crate) fn audit() -> Self {
        let id = "audit".to_owned();
        Self { stream: audit_stream(), id, id_name: "log", kind: "audit log" }
    }

    pub(crate) fn dialogue(dialogue: &DialogueId) -> Self {
        let (stream, id) = (dialogue_stream(dialogue), dialogue.to_string());
        Self { stream, id, id_name: "conversation_id", kind: "dialogue" }
    }
}

pub(crate) struct Feed {
    web: Shared,
    tenant: TenantId,
    source: Source,
    watch: Watch,
    writer: EventWriter,
    /// Sent before anything else.
    opening: Option<Bytes>,
    /// What did not fit into the frame before.
    rest: Option<Delivery>,
    ended: bool,
    stream: OpenStream,
}

impl Feed {
    pub(crate) async fn open(
        web: Shared,
        access: TenantAccess,
        source: Source,
        after: Seq,
    ) -> Result<Self, Problem> {
        let stream = web.gate.open_stream(&access.caller, &access.record)?;
        let (watch, expired) = open_watch(&web, &access.tenant, &source, after).await?;
        let mut opening = format::RETRY.to_vec();
        opening.extend(expired.map(format::resync).unwrap_or_default().bytes());
        Ok(Self {
            writer: EventWriter::new(source.id_name, &source.id),
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
            return Some(self.frame_of(rest));
        }
        tokio::select! {
            biased;
            () = self.stream.over().cancelled() => Some(self.end_with(self.reason_to_end())),
            next = self.watch.next() => self.deliver(next).await,
            () = tokio::time::sleep(KEEP_ALIVE_EVERY) => Some(self.stay_or_end().await),
        }
    }

    async fn deliver(&mut self, next: Result<Option<Delivery>, WatchError>) -> Option<Bytes> {
        match next {
            Ok(Some(delivery)) => Some(self.frame_of(delivery)),
            Ok(None) => None,
            Err(WatchError::Cursor(CursorError::Expired { kept_after })) => {
                Some(self.resync(kept_after).await)
            }
            Err(error) => {
                tracing::warn!(stream = %self.source.stream, %error, "a stream was ended");
                Some(self.end_with(format::UNAVAILABLE))
            }
        }
    }

    /// As many of the events that are there as a frame holds.
    fn frame_of(&mut self, first: Delivery) -> Bytes {
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
                Bytes::from(format::resync(expired.unwrap_or(kept_after)))
            }
            Err(_) => self.end_with(format::UNAVAILABLE),
        }
    }

    /// A tenant that was removed sends nothing any more, so nobody should wait for it.
    async fn stay_or_end(&mut self) -> Bytes {
        if self.tenant == TenantId::system() {
            return Bytes::from_static(format::KEEP_ALIVE);
        }
        match self.web.gate.tenant(&self.tenant).await {
            Err(AppError::NotFound { .. }) => self.end_with(format::NO_ACCESS),
            _ => Bytes::from_static(format::KEEP_ALIVE),
        }
    }

    fn end_with(&mut self, comment: &'static [u8]) -> Bytes {
        self.ended = true;
        Bytes::from_static(comment)
    }

    fn reason_to_end(&self) -> &'static [u8] {
        if self.web.gate.draining().is_cancelled() { format::DRAINING } else { format::NO_ACCESS }
    }
}

/// The watch, and from where it goes on if what the reader wants is no longer kept.
async fn open_watch(
    web: &Shared,
    tenant: &TenantId,
    source: &Source,
    after: Seq,
) -> Result<(Watch, Option<Seq>), Problem> {
    let mut expired = None;
    // Once more is enough unless events are removed at this very moment.
    for _ in 0..3 {
        let from = expired.unwrap_or(after);
        match web.app.watch(tenant, source.stream.clone(), from).await.map_err(WatchError::from) {
            Ok(watch) => return Ok((watch, expired)),
            Err(WatchError::Cursor(CursorError::Expired { kept_after })) => {
                expired = Some(kept_after);
            }
            Err(error) => {
                let problem = Problem::from(error);
                let is_missing = problem.code == Code::NotFound;
                let missing = || Problem::missing(source.kind, &source.id);
                return Err(if is_missing { missing() } else { problem });
            }
        }
    }
    Err(Problem::new(Code::Unavailable, "events are being removed: try again in a moment"))
}
