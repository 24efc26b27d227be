//! Resuming an execution that another process began. Its engine is native, so its steps are in the
//! journal, and its request held no secret that was lost with that process.

use serde::Deserialize;
use shikiri_model::conversation::conversation_lock;
use shikiri_model::execution::Execution;
use shikiri_model::lease::LeaseGuard;
use shikiri_model::native::ExecutionLimits;
use shikiri_model::record::StoredDocument;
use shikiri_model::run::{Run, RunError, RunErrorCode};
use shikiri_runtime::AppError;
use shikiri_runtime::run::StopSignals;
use shikiri_store::{CommitError, StoreExt};

use super::execution_request::NewExecution;
use super::flow::{ExecutionJob, execute_job};
use crate::Executions;

/// The stored part of a request.
#[derive(Deserialize)]
struct StoredRequest {
    user_input: String,
    #[serde(default)]
    preferred_skills: Vec<String>,
    #[serde(default)]
    limits: ExecutionLimits,
}

/// Resumes the execution. An error ends it, unless the store is unavailable.
pub(crate) async fn resume_execution(
    executions: &Executions,
    started: &StoredDocument<Run>,
    node: LeaseGuard,
    stops: StopSignals,
) -> Result<(), AppError> {
    let run = &started.value;
    if run.cancel_requested {
        let error = RunError::new(RunErrorCode::Cancelled.as_str(), "the execution was cancelled");
        return give_up(executions, run, error, &node).await;
    }
    match prepare(executions, run).await {
        Ok((job, lock)) => execute_job(executions, started, job, node, lock, stops).await,
        Err(error @ (AppError::Unavailable(_) | AppError::Unknown(_))) => Err(error),
        Err(error) => {
            let text = format!("the server that ran it is gone, and it cannot go on: {error}");
            give_up(executions, run, RunError::new(RunErrorCode::Interrupted.as_str(), text), &node)
                .await
        }
    }
}

async fn give_up(
    executions: &Executions,
    run: &Run,
    error: RunError,
    node: &LeaseGuard,
) -> Result<(), AppError> {
    let Some(id) = &run.node else { return Ok(()) };
    executions.abort_execution(&run.tenant, &run.id, id, error, Some(node)).await
}

async fn prepare(
    executions: &Executions,
    run: &Run,
) -> Result<(ExecutionJob, LeaseGuard), AppError> {
    let broken = || AppError::Broken("an execution without its record".to_owned());
    let execution = run.execution.as_deref().ok_or_else(broken)?;
    let lock = reacquire_lock(executions, run, execution).await?;
    let stored = StoredRequest::deserialize(&run.input)?;
    let request = NewExecution {
        conversation: execution.conversation.clone(),
        user_input: stored.user_input,
        executor: execution.executor.clone(),
        tokens: Default::default(),
        preferred_skills: stored.preferred_skills,
        model_id: Some(execution.model_id.clone()),
        idempotency_key: None,
        limits: stored.limits,
    };
    let resolved = executions.resolve_request(&run.tenant, &request, None).await?;
    let slot = executions.tenancy.execution_slots().take_over_limit(&run.tenant);
    let job = ExecutionJob {
        executions: executions.clone(),
        resolved,
        prompt: request.user_input,
        is_resumed: true,
        slot,
    };
    Ok((job, lock))
}

/// Renews the conversation's lock, or acquires it again if it expired.
async fn reacquire_lock(
    executions: &Executions,
    run: &Run,
    execution: &Execution,
) -> Result<LeaseGuard, AppError> {
    let (name, ttl) = (conversation_lock(&execution.conversation), executions.options.lock_lease);
    if let Some((lease, _)) = executions.runtime.store().lease(&name).await?
        && lease.owner == run.id.as_str()
    {
        match executions.runtime.store().renew(&lease.guard(), ttl).await {
            Ok(lease) => return Ok(lease.guard()),
            Err(CommitError::Lease(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match executions.runtime.store().try_acquire(&name, run.id.as_str(), ttl).await {
        Ok(lease) => Ok(lease.guard()),
        Err(CommitError::Lease(_)) => {
            Err(AppError::NotNow("its conversation was taken by another".to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}
