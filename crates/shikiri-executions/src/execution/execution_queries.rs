//! Queries: one execution, a conversation's executions, and their tool calls and usage.

use shikiri_model::execution::{
    ToolCall, ToolLog, ToolTracker, ToolUse, UsageLog, UsageRow, total,
};
use shikiri_model::ids::{ConversationId, ModelId, RunId, TenantId};
use shikiri_model::record::{Document, RecordPosition, RecordQuery, StoredDocument};
use shikiri_model::run::{Run, RunStatus};
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;
use shikiri_store::StoreError;

use crate::Executions;

const PAGE_BYTES: usize = 1024 * 1024;
/// Pages that are read for one page of what fits a filter.
const MAX_PAGES: usize = 20;

/// Which of a tenant's executions a list holds. None: all.
#[derive(Clone, Debug, Default)]
pub struct ExecutionFilter {
    pub status: Option<RunStatus>,
    pub conversation: Option<ConversationId>,
    pub model: Option<ModelId>,
    /// The executor's id.
    pub user_id: Option<String>,
    /// Created at this time or later.
    pub from: Option<Timestamp>,
    /// Created before this time.
    pub to: Option<Timestamp>,
}

impl ExecutionFilter {
    fn fits(&self, run: &StoredDocument<Run>) -> bool {
        let Some(execution) = &run.value.execution else { return false };
        self.model.as_ref().is_none_or(|model| *model == execution.model_id)
            && self.user_id.as_ref().is_none_or(|user| *user == execution.executor.user_id)
            && self.to.is_none_or(|to| run.created_at < to)
    }

    /// Where a list begins: after the cursor, and after what is too new.
    fn begin_at(&self, after: Option<RecordPosition>) -> Option<RecordPosition> {
        // No id sorts before an empty one, so records of exactly this time are left out.
        let newest = self.to.map(|to| RecordPosition { created_at: to, id: String::new() });
        match (after, newest) {
            (Some(after), Some(newest)) if after.created_at >= newest.created_at => Some(newest),
            (Some(after), _) => Some(after),
            (None, newest) => newest,
        }
    }
}

impl Executions {
    pub async fn execution(
        &self,
        tenant: &TenantId,
        id: &RunId,
    ) -> Result<StoredDocument<Run>, AppError> {
        let missing = || AppError::not_found("execution", id);
        let mut run = match self.runtime.load_run(tenant, id).await {
            Ok(run) if run.value.execution.is_some() => run,
            Ok(_) | Err(AppError::NotFound { .. }) => return Err(missing()),
            Err(other) => return Err(other),
        };
        if !run.value.status.is_terminal() {
            let so_far = total(&self.recorded_usage(&run.value).await?);
            if let Some(execution) = &mut run.value.execution {
                (execution.usage, execution.total_cost_usd) = so_far;
            }
        }
        Ok(run)
    }

    /// A conversation's executions, newest first.
    pub async fn list_executions(
        &self,
        tenant: &TenantId,
        conversation: &ConversationId,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<Run>>, Option<RecordPosition>), AppError> {
        self.conversation(tenant, conversation).await?;
        self.runtime
            .list_records(RecordQuery {
                parent: Some(conversation.to_string()),
                after,
                newest_first: true,
                limit,
                ..RecordQuery::of::<Run>(tenant)
            })
            .await
    }

    /// A tenant's executions that fit the filter, newest first. A page may have fewer than `limit`,
    /// even none, while there are more.
    pub async fn find_executions(
        &self,
        tenant: &TenantId,
        filter: &ExecutionFilter,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<Run>>, Option<RecordPosition>), AppError> {
        self.runtime.tenant(tenant).await?;
        let mut query = RecordQuery {
            state: filter.status.map(|status| status.as_str().to_owned()),
            parent: filter.conversation.as_ref().map(ToString::to_string),
            after: filter.begin_at(after),
            newest_first: true,
            // One more shows whether there is a next page.
            limit: limit.saturating_add(1),
            ..RecordQuery::of::<Run>(tenant)
        };
        let (mut found, mut last) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let (page, next) = self.runtime.list_records::<Run>(query.clone()).await?;
            for run in page {
                if filter.from.is_some_and(|from| run.created_at < from) {
                    return Ok((found, None));
                }
                if !filter.fits(&run) {
                    continue;
                }
                if found.len() == limit as usize {
                    return Ok((found, last));
                }
                let (created_at, id) = (run.created_at, run.value.id.to_string());
                last = Some(RecordPosition { created_at, id });
                found.push(run);
            }
            query.after = next;
            if query.after.is_none() {
                break;
            }
        }
        Ok((found, query.after))
    }

    /// The tools that an execution called, from its records. While it runs, and if it failed, they
    /// are read from its events.
    pub async fn execution_tools(
        &self,
        tenant: &TenantId,
        id: &RunId,
    ) -> Result<Vec<ToolCall>, AppError> {
        let run = self.execution(tenant, id).await?.value;
        // A partial result counts as completed but has no tool records.
        let is_partial = || run.result.as_ref().is_some_and(|data| data["partial"] == true);
        if run.status == RunStatus::Completed && !is_partial() {
            let logs: Vec<ToolLog> = self.all_of(tenant, id).await?;
            return Ok(logs.into_iter().map(|log| log.call).collect());
        }
        self.tools_from_events(&run).await
    }

    async fn tools_from_events(&self, run: &Run) -> Result<Vec<ToolCall>, AppError> {
        let mut tracker = ToolTracker::default();
        self.for_each_event(run, |kind, data, at| follow(&mut tracker, kind, data, at)).await?;
        Ok(tracker.calls().to_vec())
    }

    /// Gives every event of a run that is still kept, in order: kind, data and time.
    pub(super) async fn for_each_event(
        &self,
        run: &Run,
        mut take: impl FnMut(&str, &str, Timestamp) + Send,
    ) -> Result<(), AppError> {
        let mut after = 0;
        loop {
            let page = match self
                .runtime
                .store()
                .read(&run.tenant, &run.stream(), after, PAGE_BYTES)
                .await
            {
                Ok(page) => page,
                // Its events have been removed.
                Err(StoreError::Cursor(_) | StoreError::NoStream(_)) => break,
                Err(error) => return Err(error.into()),
            };
            for event in page.chunks.iter().flat_map(|chunk| chunk.events_after(after)) {
                take(event.kind, event.data, event.at);
            }
            match page.chunks.last() {
                Some(last) => after = last.last_seq(),
                None => break,
            }
        }
        Ok(())
    }

    /// The usage rows of an execution; for a running one, the usage so far.
    pub async fn execution_usage(
        &self,
        tenant: &TenantId,
        id: &RunId,
    ) -> Result<(RunStatus, Vec<UsageRow>), AppError> {
        let run = self.execution(tenant, id).await?.value;
        if run.status.is_terminal() {
            let logs: Vec<UsageLog> = self.all_of(tenant, id).await?;
            return Ok((run.status, logs.into_iter().map(|log| log.row).collect()));
        }
        Ok((run.status, self.recorded_usage(&run).await?))
    }

    async fn all_of<T: Document + Send>(
        &self,
        tenant: &TenantId,
        execution: &RunId,
    ) -> Result<Vec<T>, AppError> {
        self.runtime
            .list_all(RecordQuery {
                parent: Some(execution.to_string()),
                ..RecordQuery::of::<T>(tenant)
            })
            .await
    }
}

fn follow(tracker: &mut ToolTracker, kind: &str, data: &str, at: Timestamp) {
    if kind != "tool_use" && kind != "tool_result" {
        return;
    }
    let Ok(data) = serde_json::from_str::<serde_json::Value>(data) else { return };
    let text = |name: &str| data[name].as_str().map(str::to_owned);
    let Some(id) = text("tool_use_id") else { return };
    if kind == "tool_result" {
        return tracker.end(&id, data["is_error"] == true, at);
    }
    let tool = ToolUse {
        id,
        name: text("tool_name").unwrap_or_default(),
        input: data["tool_input"].clone(),
        parent: text("parent_tool_use_id"),
    };
    tracker.begin(&tool, at);
}
