//! Executions that wait for their conversation after their request was answered.
//!
//! The record is stored with the status `queued` and this node as its owner. The request itself, with
//! the tokens in it, is kept in memory by a task of this node. If the node goes, the sweep ends the
//! execution as interrupted; nothing was spent.

use std::time::Duration;

use shikiri_model::conversation::conversation_lock;
use shikiri_model::ids::TenantId;
use shikiri_model::record::{ExpectedVersion, RecordChange, StoredDocument};
use shikiri_model::run::{Run, RunError, RunErrorCode, run_stream};
use shikiri_runtime::AppError;
use shikiri_store::{Commit, CommitError, HubTopic, StreamAppend};
use tokio_util::sync::CancellationToken;

use super::execution_request::{ExecutionStart, NewExecution, ResolvedRequest};
use super::start_execution::{LOCK_POLL, StartAttempt, new_run};
use super::waiting_line::LinePlace;
use crate::Executions;

/// Requests of this process that may wait for one conversation.
const MAX_WAITING: usize = 100;
/// The retry delay given to a caller whose request is one too many.
const RETRY_FULL: Duration = Duration::from_secs(5);
/// Pause after a refusal that may pass, such as all of the tenant's slots being taken.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

impl Executions {
    /// As `execute`, but if the conversation is busy, the execution is queued and started after those
    /// that came before.
    pub async fn execute_or_queue(
        &self,
        tenant: &TenantId,
        request: NewExecution,
    ) -> Result<ExecutionStart, AppError> {
        request.check()?;
        if let Some(known) = self.known_execution(tenant, &request).await? {
            return Ok(ExecutionStart::repeated(known));
        }
        let resolved = self.resolve_request(tenant, &request, None).await?;
        self.runtime.check_storage(&resolved.tenant, request.user_input.len() as u64).await?;
        let place = self.waiting.join(&request.conversation);
        if place.ahead() >= MAX_WAITING {
            let detail = format!("{MAX_WAITING} requests wait for this conversation already");
            return Err(AppError::Limit { detail, retry_after: RETRY_FULL });
        }
        if place.is_first() && resolved.locked_by.is_none() {
            match self.try_start(&request, resolved, None).await? {
                StartAttempt::Started(run) => return Ok(ExecutionStart::new(*run)),
                StartAttempt::Known(run) => return Ok(ExecutionStart::repeated(*run)),
                StartAttempt::Held(_) | StartAttempt::Changed | StartAttempt::NoSlot => {}
            }
            let resolved = self.resolve_request(tenant, &request, None).await?;
            return self.queue(tenant, request, &resolved, place).await;
        }
        self.queue(tenant, request, &resolved, place).await
    }

    async fn queue(
        &self,
        tenant: &TenantId,
        request: NewExecution,
        resolved: &ResolvedRequest,
        place: LinePlace,
    ) -> Result<ExecutionStart, AppError> {
        let stopping = || AppError::Unavailable("this node is stopping".to_owned());
        let node = self.runtime.node_tasks().ok_or_else(stopping)?;
        let mut run = new_run(&request, resolved, self.runtime.store().now().await?)?;
        run.node = Some(node.node.clone());
        // No worker may claim it: only this process has the request.
        run.due_at = None;
        let stream = StreamAppend::new(tenant.clone(), run_stream(&run.id), Vec::new());
        let commit = Commit::new()
            .guarded_by(node.guard.clone())
            .record(RecordChange::put(&run, ExpectedVersion::New)?)
            .append(stream);
        let committed = match self.runtime.commit_in_tenant(tenant, commit).await {
            Ok(committed) => committed,
            Err(error) => return self.handle_unqueued(tenant, &request, error).await,
        };
        let waiting = StoredDocument {
            version: 1,
            attempts: 0,
            created_at: committed.at,
            updated_at: committed.at,
            value: run,
        };
        let queued = QueuedExecution {
            executions: self.clone(),
            tenant: tenant.clone(),
            request,
            waiting: waiting.clone(),
            place,
        };
        node.spawn(|lost| queued.start_when_free(lost));
        Ok(ExecutionStart::new(waiting))
    }

    async fn handle_unqueued(
        &self,
        tenant: &TenantId,
        request: &NewExecution,
        error: shikiri_runtime::run::RunCommitError,
    ) -> Result<ExecutionStart, AppError> {
        use shikiri_runtime::run::RunCommitError::Commit;
        match error {
            // A duplicate of this request was faster.
            Commit(CommitError::NotUnique(_)) => {
                let known = self.known_execution(tenant, request).await?;
                known.map(ExecutionStart::repeated).ok_or_else(|| error.into())
            }
            Commit(CommitError::Lease(_)) => {
                Err(AppError::Unavailable("this node is stopping".to_owned()))
            }
            other => Err(other.into()),
        }
    }
}

/// An execution that waits, and what is needed to start it.
struct QueuedExecution {
    executions: Executions,
    tenant: TenantId,
    request: NewExecution,
    waiting: StoredDocument<Run>,
    place: LinePlace,
}

impl QueuedExecution {
    async fn start_when_free(self, lost: CancellationToken) {
        loop {
            let attempted = tokio::select! {
                attempted = self.try_when_free() => attempted,
                // Another node finds it, or this one after its lease is back.
                () = lost.cancelled() => return,
            };
            match attempted {
                Ok(StartAttempt::Started(_) | StartAttempt::Known(_)) => return,
                Ok(StartAttempt::Held(_) | StartAttempt::Changed) => {}
                Ok(StartAttempt::NoSlot)
                | Err(AppError::Limit { .. } | AppError::Unavailable(_) | AppError::Unknown(_)) => {
                    let _ = tokio::time::timeout(RETRY_PAUSE, lost.cancelled()).await;
                }
                Err(error) => return self.refuse(&error).await,
            }
        }
    }

    /// Waits until it is its turn, then tries to start it.
    async fn try_when_free(&self) -> Result<StartAttempt, AppError> {
        let lock = conversation_lock(&self.request.conversation);
        let hub = self.executions.runtime.store().hub();
        let mut freed = hub.subscribe(HubTopic::Lease(lock.clone()));
        while !self.place.is_first() || self.executions.lock_holder(&lock).await?.is_some() {
            let _ = tokio::time::timeout(LOCK_POLL, freed.next()).await;
        }
        let resolved = self.executions.resolve_request(&self.tenant, &self.request, None).await?;
        self.executions.try_start(&self.request, resolved, Some(&self.waiting)).await
    }

    /// Ends it as failed: what it needs is gone, such as its conversation or model.
    async fn refuse(&self, error: &AppError) {
        let run = &self.waiting.value;
        let reported = RunError::new(RunErrorCode::NotStarted.as_str(), error.to_string());
        let ended = match self.executions.refusal_commit(&self.waiting, &reported).await {
            Ok(commit) => self.executions.runtime.store().commit(commit).await.map_err(Into::into),
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::debug!(run.id = %run.id, %error, "a queued execution had ended already");
        }
    }
}
