//! What the store remembers for a native engine: the session, read from the conversation's messages,
//! and the steps of a turn, which lie in a stream of their own beside the one that readers follow.

use std::collections::BTreeMap;

use shikiri_model::event::{EventRef, StreamId};
use shikiri_model::execution::{MessageLog, UsageRow};
use shikiri_model::ids::TenantId;
use shikiri_model::native;
use shikiri_model::record::RecordQuery;
use shikiri_model::run::Run;
use shikiri_store::{Append, StoreError};

use super::engine::{Memory, Step};
use super::request::Means;
use crate::app::App;
use crate::error::AppError;

const PAGE_BYTES: usize = 1024 * 1024;
/// The one kind of event in a journal.
pub(super) const STEP: &str = "step";

pub(super) fn journal_of(run: &Run) -> StreamId {
    StreamId::new(format!("journal/{}", run.id))
}

/// Nothing more comes: events past their keeping are removed from closed streams alone.
pub(super) fn closing(run: &Run) -> Append {
    Append { close: true, ..Append::new(run.tenant.clone(), journal_of(run), Vec::new()) }
}

impl App {
    /// `run` if another process has begun it.
    pub(super) async fn memory(
        &self,
        means: &Means,
        session: Option<&str>,
        run: Option<&Run>,
    ) -> Result<Memory, AppError> {
        let mut memory = Memory::default();
        if let Some(session) = session {
            let log: Vec<MessageLog> = self.list_all(log_of(means)).await?;
            memory.past = native::past(&log, session);
        }
        if let Some(run) = run {
            self.remember(run, &mut memory).await?;
        }
        Ok(memory)
    }

    async fn remember(&self, run: &Run, memory: &mut Memory) -> Result<(), AppError> {
        let steps = &mut memory.steps;
        self.each_event(&run.tenant, &journal_of(run), |event| {
            let entry = serde_json::from_str(event.data)?;
            steps.push(Step { at: event.at, entry });
            Ok(())
        })
        .await?;
        let text = &mut memory.text;
        self.each_event(&run.tenant, &run.stream(), |event| {
            if event.kind == "text_delta" {
                let data: BTreeMap<String, serde_json::Value> = serde_json::from_str(event.data)?;
                let is_main = !data.contains_key("parent_tool_use_id");
                let piece = data.get("text").and_then(|piece| piece.as_str());
                text.push_str(piece.filter(|_| is_main).unwrap_or_default());
            }
            Ok(())
        })
        .await?;
        memory.spent = self.noted(run).await?;
        Ok(())
    }

    /// What was told to be spent, as it was last written down.
    pub(super) async fn noted(&self, run: &Run) -> Result<Vec<UsageRow>, AppError> {
        let stream = self.store.stream(&run.tenant, &run.stream()).await?;
        let rows = stream.and_then(|stream| serde_json::from_str(&stream.note?).ok());
        Ok(rows.unwrap_or_default())
    }

    async fn each_event(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
        mut each: impl FnMut(EventRef<'_>) -> Result<(), serde_json::Error>,
    ) -> Result<(), AppError> {
        let mut after = 0;
        loop {
            let page = match self.store.read(tenant, stream, after, PAGE_BYTES).await {
                // It died before its first step.
                Err(StoreError::NoStream(_)) => return Ok(()),
                page => page?,
            };
            for event in page.chunks.iter().flat_map(|chunk| chunk.events_after(after)) {
                each(event)?;
            }
            match page.chunks.last() {
                Some(last) => after = last.last_seq(),
                None => return Ok(()),
            }
        }
    }
}

/// All messages of the conversation, the oldest first.
fn log_of(means: &Means) -> RecordQuery {
    let conversation = &means.conversation.value;
    RecordQuery {
        parent: Some(conversation.id.to_string()),
        ..RecordQuery::of::<MessageLog>(&conversation.tenant)
    }
}
