//! An execution that another process began, and that goes on here: its engine is native, so that
//! its steps are in the journal, and its request held no secret that died with that process.

use serde::Deserialize;
use shikiri_model::conversation::lock_of;
use shikiri_model::execution::Execution;
use shikiri_model::lease::Guard;
use shikiri_model::native::Limits;
use shikiri_model::record::Stored;
use shikiri_model::run::{Run, RunError};
use shikiri_store::{CommitError, StoreExt};

use super::flow::{Errand, Stops, carry};
use super::request::NewExecution;
use crate::app::App;
use crate::error::AppError;

/// What is kept of a request.
#[derive(Deserialize)]
struct Kept {
    user_input: String,
    #[serde(default)]
    preferred_skills: Vec<String>,
    #[serde(default)]
    limits: Limits,
}

/// Carries it on. What keeps it from going on ends it, unless that is the store's being away.
pub(crate) async fn take_up(
    app: &App,
    started: &Stored<Run>,
    node: Guard,
    stops: Stops,
) -> Result<(), AppError> {
    let run = &started.value;
    if run.cancel_requested {
        let error = RunError::new("CANCELLED", "the execution was cancelled");
        return give_up(app, run, error, &node).await;
    }
    match prepare(app, run).await {
        Ok((errand, lock)) => carry(app, started, errand, node, lock, stops).await,
        Err(error @ (AppError::Unavailable(_) | AppError::Unknown(_))) => Err(error),
        Err(error) => {
            let text = format!("the server that ran it is gone, and it cannot go on: {error}");
            give_up(app, run, RunError::new("INTERRUPTED", text), &node).await
        }
    }
}

async fn give_up(app: &App, run: &Run, error: RunError, node: &Guard) -> Result<(), AppError> {
    let Some(id) = &run.node else { return Ok(()) };
    app.abort_execution(&run.tenant, &run.id, id, error, Some(node)).await
}

async fn prepare(app: &App, run: &Run) -> Result<(Errand, Guard), AppError> {
    let broken = || AppError::Broken("an execution without its record".to_owned());
    let execution = run.execution.as_deref().ok_or_else(broken)?;
    let lock = retake(app, run, execution).await?;
    let kept = Kept::deserialize(&run.input)?;
    let request = NewExecution {
        conversation: execution.conversation.clone(),
        user_input: kept.user_input,
        executor: execution.executor.clone(),
        tokens: Default::default(),
        preferred_skills: kept.preferred_skills,
        model_id: Some(execution.model_id.clone()),
        idempotency_key: None,
        limits: kept.limits,
    };
    let means = app.means(&run.tenant, &request, None).await?;
    let slot = app.execution_slots.take_anyway(&run.tenant);
    let errand = Errand { means, prompt: request.user_input, taken_up: true, slot };
    Ok((errand, lock))
}

/// The conversation is still this execution's, unless it was away for too long.
async fn retake(app: &App, run: &Run, execution: &Execution) -> Result<Guard, AppError> {
    let (name, ttl) = (lock_of(&execution.conversation), app.options.lock_lease);
    if let Some((lease, _)) = app.store.lease(&name).await?
        && lease.owner == run.id.as_str()
    {
        match app.store.renew(&lease.guard(), ttl).await {
            Ok(lease) => return Ok(lease.guard()),
            Err(CommitError::Lease(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match app.store.try_acquire(&name, run.id.as_str(), ttl).await {
        Ok(lease) => Ok(lease.guard()),
        Err(CommitError::Lease(_)) => {
            Err(AppError::NotNow("its conversation was taken by another".to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}
