//! Starting a run: through the queue, or at once in this process.

use serde_json::Value;
use shikiri_model::event::Seq;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::record::ExpectedVersion;
use shikiri_model::run::{Run, RunCommand, decide};
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, CommitError, CommitReceipt, StreamAppend};

use super::run_slot::RunSlot;
use super::use_cases::{RunCommitError, RunView, apply, enqueue};
use super::worker::RunWorkload;
use crate::error::AppError;
use crate::failpoint;
use crate::runtime::{Runtime, entropy};

/// A run to be started.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub agent: String,
    pub input: Value,
    pub idempotency_key: Option<String>,
    /// Who asked for it, as described by the door that took the request.
    pub origin: Option<Value>,
}

const MAX_KEY: usize = 200;

impl Runtime {
    /// Starts a run. If its idempotency key is known, returns the run that has the key, unless that
    /// was asked for something else.
    pub async fn start_run(&self, tenant: &TenantId, new: NewRun) -> Result<RunView, AppError> {
        let run = self.new_run(tenant, new).await?;
        match self.enqueue(&run, None).await? {
            EnqueueOutcome::New(_) => self.run(tenant, &run.id).await,
            EnqueueOutcome::Known(first) => self.run_of_key(&first, &run).await,
        }
    }

    /// As `start_run`, with one more event in the same commit, which may name the run. Also returns
    /// the event's sequence number.
    pub async fn start_run_beside(
        &self,
        tenant: &TenantId,
        new: NewRun,
        beside: impl Fn(&RunId) -> StreamAppend + Send,
    ) -> Result<(RunView, Seq), AppError> {
        let run = self.new_run(tenant, new).await?;
        let (id, committed) = match self.enqueue(&run, Some(beside(&run.id))).await? {
            EnqueueOutcome::New(committed) => (run.id, committed),
            EnqueueOutcome::Known(first) => {
                self.run_of_key(&first, &run).await?;
                let commit = Commit::new().append(beside(&first));
                (first, self.store.commit(commit).await?)
            }
        };
        let seq = committed.appended.last().map_or(0, |appended| appended.last_seq);
        Ok((self.run(tenant, &id).await?, seq))
    }

    /// The run that has the key already, which must be what `wanted` asks for.
    async fn run_of_key(&self, first: &RunId, wanted: &Run) -> Result<RunView, AppError> {
        let view = self.run(&wanted.tenant, first).await?;
        if view.run.agent == wanted.agent && view.run.input == wanted.input {
            return Ok(view);
        }
        Err(AppError::KeyReused { run: first.to_string() })
    }

    async fn new_run(&self, tenant: &TenantId, new: NewRun) -> Result<Run, AppError> {
        let Some(agent) = self.agent(&new.agent) else {
            let known = self.agent_names().join(", ");
            let reason = format!("there is no agent {:?}; there are: {known}", new.agent);
            return Err(AppError::invalid("agent", reason));
        };
        agent.check(&new.input).map_err(|reason| AppError::invalid("input", reason))?;
        let key = new.idempotency_key;
        if !key.as_deref().is_none_or(is_good_key) {
            let reason = "must have 1 to 200 characters, none of them a control character";
            return Err(AppError::invalid("idempotency_key", reason));
        }
        self.check_storage(&self.tenant(tenant).await?.value, 0).await?;
        let now = self.store.now().await?;
        let id = RunId::mint(now, entropy()?);
        let mut run = Run::new(id, tenant.clone(), new.agent, new.input, now);
        run.idempotency_key = key.map(|key| format!("key:{key}"));
        run.origin = new.origin;
        Ok(run)
    }

    async fn enqueue(
        &self,
        run: &Run,
        beside: Option<StreamAppend>,
    ) -> Result<EnqueueOutcome, AppError> {
        let now = self.store.now().await?;
        failpoint::hit("run.before_enqueue");
        let enqueued = match self.local_worker.reserve_slot() {
            Some(slot) => self.start_locally(run, beside.clone(), slot, now).await?,
            None => None,
        };
        let enqueued = match enqueued {
            Some(started) => Ok(started),
            None => {
                let mut commit = enqueue(run, now)?;
                commit.appends.extend(beside);
                self.commit_in_tenant(&run.tenant, commit).await.map(EnqueueOutcome::New)
            }
        };
        failpoint::hit("run.after_enqueue");
        enqueued.or_else(known_run)
    }

    /// Creates and starts a run in one commit, for the worker of this process, so that it does not
    /// go through the queue. None if the worker has lost its lease.
    async fn start_locally(
        &self,
        run: &Run,
        beside: Option<StreamAppend>,
        slot: RunSlot,
        now: Timestamp,
    ) -> Result<Option<EnqueueOutcome>, AppError> {
        let (run, mut commit) = local_start_commit(run, &slot, now)?;
        commit.appends.extend(beside);
        match slot.start(run, commit, 1, RunWorkload::Agent).await {
            Ok(committed) => Ok(Some(EnqueueOutcome::New(committed))),
            Err(RunCommitError::Commit(CommitError::Lease(_))) => Ok(None),
            Err(other) => known_run(other).map(Some),
        }
    }
}

/// The run as created and started, and the commit that does both.
pub fn local_start_commit(
    run: &Run,
    slot: &RunSlot,
    now: Timestamp,
) -> Result<(Run, Commit), AppError> {
    let mut queued = decide(run, RunCommand::Enqueue, now)?;
    let started = decide(&queued.run, RunCommand::Start { node: slot.node() }, now)?;
    queued.run = started.run;
    queued.events.extend(started.events);
    let commit = apply(Commit::new(), &queued, ExpectedVersion::New)?.guarded_by(slot.guard());
    Ok((queued.run, commit))
}

/// The outcome of a start.
enum EnqueueOutcome {
    New(CommitReceipt),
    /// The run that has the idempotency key already.
    Known(RunId),
}

/// Finds the run that has the idempotency key, if the start was refused because of the key.
fn known_run(refused: RunCommitError) -> Result<EnqueueOutcome, AppError> {
    match refused {
        RunCommitError::Commit(CommitError::NotUnique(first)) => {
            let known = first.id.parse().map_err(|_| AppError::not_found("run", &first.id))?;
            Ok(EnqueueOutcome::Known(known))
        }
        other => Err(other.into()),
    }
}

pub fn is_good_key(key: &str) -> bool {
    (1..=MAX_KEY).contains(&key.chars().count()) && !key.chars().any(char::is_control)
}
