//! The stored state of a native engine: the session, read from the conversation's messages, and the
//! steps of a turn, which are in a journal stream beside the run's event stream.

use std::collections::BTreeMap;

use shikiri_model::event::{EventRef, StreamId};
use shikiri_model::execution::{MessageLog, UsageRow};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::native;
use shikiri_model::record::RecordQuery;
use shikiri_model::run::Run;
use shikiri_runtime::AppError;
use shikiri_store::{StoreError, StreamAppend};

use super::engine::{JournalStep, ResumeState};
use super::execution_request::ResolvedRequest;
use crate::Executions;

const PAGE_BYTES: usize = 1024 * 1024;
/// The one kind of event in a journal.
pub(super) const STEP: &str = "step";

pub(super) fn journal_of(run: &Run) -> StreamId {
    journal_stream(&run.id)
}

pub(crate) fn journal_stream(run: &RunId) -> StreamId {
    StreamId::new(format!("journal/{run}"))
}

/// Closes the journal: expired events are only removed from closed streams.
pub(super) fn close_journal(run: &Run) -> StreamAppend {
    StreamAppend {
        close: true,
        ..StreamAppend::new(run.tenant.clone(), journal_of(run), Vec::new())
    }
}

impl Executions {
    /// Loads the resume state. `run` is given if another process began the turn.
    pub(super) async fn load_resume_state(
        &self,
        resolved: &ResolvedRequest,
        session: Option<&str>,
        run: Option<&Run>,
    ) -> Result<ResumeState, AppError> {
        let mut memory = ResumeState::default();
        if let Some(session) = session {
            let log: Vec<MessageLog> = self.runtime.list_all(log_of(resolved)).await?;
            memory.past = native::session_history(&log, session);
        }
        if let Some(run) = run {
            self.load_turn_progress(run, &mut memory).await?;
        }
        Ok(memory)
    }

    async fn load_turn_progress(
        &self,
        run: &Run,
        memory: &mut ResumeState,
    ) -> Result<(), AppError> {
        let steps = &mut memory.steps;
        self.each_event(&run.tenant, &journal_of(run), |event| {
            let entry = serde_json::from_str(event.data)?;
            steps.push(JournalStep { at: event.at, entry });
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
        memory.spent = self.recorded_usage(run).await?;
        Ok(())
    }

    /// The usage that was recorded last.
    pub(super) async fn recorded_usage(&self, run: &Run) -> Result<Vec<UsageRow>, AppError> {
        let stream = self.runtime.store().stream(&run.tenant, &run.stream()).await?;
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
            let page = match self.runtime.store().read(tenant, stream, after, PAGE_BYTES).await {
                // The process ended before the first step.
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

/// All messages of the conversation, oldest first.
fn log_of(resolved: &ResolvedRequest) -> RecordQuery {
    let conversation = &resolved.conversation.value;
    RecordQuery {
        parent: Some(conversation.id.to_string()),
        ..RecordQuery::of::<MessageLog>(&conversation.tenant)
    }
}
