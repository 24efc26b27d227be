//! Starting an execution: one writer per conversation, so its lease is acquired, awaited and renewed.

use std::slice;
use std::time::Duration;

use shikiri_model::conversation::conversation_lock;
use shikiri_model::execution::{Cost, Execution, TokenUsage};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::lease::{LeaseChange, LeaseGuard, LeaseRefusal};
use shikiri_model::record::{Document, ExpectedVersion, StoredDocument};
use shikiri_model::run::{Run, RunCommand, decide};
use shikiri_model::time::Timestamp;
use shikiri_runtime::run::{RunCommitError, RunWorkload, apply};
use shikiri_runtime::{AppError, entropy, keep_leases};
use shikiri_store::{Commit, CommitError, HubTopic, store};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::engine::ResolvedServer;
use super::execution_request::{ExecutionStart, NewExecution, ResolvedRequest};
use super::flow::ExecutionJob;
use crate::Executions;

/// Polling interval for a lock that another process may release without notifying us.
pub(super) const LOCK_POLL: Duration = Duration::from_millis(50);
/// The retry delay given to a caller whose wait timed out.
const RETRY_LOCKED: Duration = Duration::from_secs(1);

/// The result of an attempt to start.
pub(super) enum StartAttempt {
    Started(Box<StoredDocument<Run>>),
    /// A duplicate of this request was faster; or the waiting execution has ended.
    Known(Box<StoredDocument<Run>>),
    /// The execution with this id holds the lock. None: others wait longer for it.
    Held(Option<String>),
    /// The conversation changed since it was read.
    Changed,
    /// This node has no free run slot, or is registering again.
    NoSlot,
}

impl Executions {
    /// The execution that has the request's idempotency key.
    pub(super) async fn known_execution(
        &self,
        tenant: &TenantId,
        request: &NewExecution,
    ) -> Result<Option<StoredDocument<Run>>, AppError> {
        let Some(key) = request.unique_key() else { return Ok(None) };
        let Some(record) = self.runtime.store().find(Run::KIND, tenant, &key).await? else {
            return Ok(None);
        };
        let known = store::decode::<Run>(&record)?;
        match request.is_repeated_by(&known.value) {
            true => Ok(Some(known)),
            false => Err(AppError::KeyReused { run: known.value.id.to_string() }),
        }
    }

    /// Acquires the lock and creates the execution in one commit, as soon as the lock is free and
    /// nobody in this process waits longer for it.
    pub(super) async fn start_under_lock(
        &self,
        tenant: &TenantId,
        request: &NewExecution,
        mut resolved: ResolvedRequest,
        own_server: Option<&ResolvedServer>,
    ) -> Result<ExecutionStart, AppError> {
        let deadline = Instant::now() + self.options.lock_wait;
        let place = self.waiting.join(&request.conversation);
        let lock = conversation_lock(&request.conversation);
        let mut freed = self.runtime.store().hub().subscribe(HubTopic::Lease(lock.clone()));
        loop {
            let attempt = match place.is_first() {
                true => self.try_start(request, resolved, None).await?,
                false => StartAttempt::Held(resolved.locked_by),
            };
            match attempt {
                StartAttempt::Started(run) => return Ok(ExecutionStart::new(*run)),
                StartAttempt::Known(run) => return Ok(ExecutionStart::repeated(*run)),
                StartAttempt::Changed => {}
                StartAttempt::NoSlot if Instant::now() >= deadline => {
                    let detail = "this server carries as many runs as it can: try again".to_owned();
                    return Err(AppError::Limit { detail, retry_after: RETRY_LOCKED });
                }
                StartAttempt::NoSlot => tokio::time::sleep(LOCK_POLL).await,
                StartAttempt::Held(mut holder) => loop {
                    // The holder may be a duplicate of this request.
                    if let Some(known) = self.known_execution(tenant, request).await? {
                        return Ok(ExecutionStart::repeated(known));
                    }
                    let now = Instant::now();
                    if now >= deadline {
                        return Err(AppError::Locked {
                            conversation: request.conversation.to_string(),
                            execution: holder.unwrap_or_else(|| "an earlier request".to_owned()),
                            retry_after: RETRY_LOCKED,
                        });
                    }
                    let pause = LOCK_POLL.min(deadline - now);
                    let _ = tokio::time::timeout(pause, freed.next()).await;
                    // Read the lock before trying again: many waiters must not all write.
                    match self.lock_holder(&lock).await? {
                        None if place.is_first() => break,
                        None => {}
                        found => holder = found,
                    }
                },
            }
            // The previous lock holder changed the conversation.
            resolved = self.resolve_request(tenant, request, own_server).await?;
        }
    }

    /// The execution that holds a conversation's lock.
    pub(super) async fn lock_holder(&self, lock: &str) -> Result<Option<String>, AppError> {
        let found = self.runtime.store().lease(lock).await?;
        Ok(found.filter(|(_, lapsed)| !lapsed).map(|(lease, _)| lease.owner))
    }

    /// Starts a new execution, or the one that waits for it, if the lock is free.
    pub(super) async fn try_start(
        &self,
        request: &NewExecution,
        resolved: ResolvedRequest,
        waiting: Option<&StoredDocument<Run>>,
    ) -> Result<StartAttempt, AppError> {
        let tenant = resolved.tenant.id.clone();
        // A waiting request takes no slot.
        if resolved.locked_by.is_some() {
            return Ok(StartAttempt::Held(resolved.locked_by));
        }
        let slot = self
            .tenancy
            .execution_slots()
            .take(&tenant, resolved.tenant.limits.max_concurrent_executions)?;
        let Some(run_slot) = self.runtime.reserve_slot() else { return Ok(StartAttempt::NoSlot) };
        let now = self.runtime.store().now().await?;
        let mut run = match waiting {
            Some(waiting) => waiting.value.clone(),
            None => new_run(request, &resolved, now)?,
        };
        // The turn's number and the model may have changed while it waited.
        let is_resumable = resolved.can_resume_elsewhere() && run_slot.is_lasting();
        let execution = Execution { is_resumable, ..new_execution(request, &resolved) };
        run.execution = Some(Box::new(execution));
        let acquire = LeaseChange::Acquire {
            name: conversation_lock(&request.conversation),
            owner: run.id.to_string(),
            ttl: self.options.lock_lease,
        };
        let conversation = resolved.conversation.value.key();
        let conversation_version = resolved.conversation.version;
        let (run, commit) = match waiting {
            Some(waiting) => {
                let expected = ExpectedVersion::Version(waiting.version);
                let started = decide(&run, RunCommand::Start { node: run_slot.node() }, now)?;
                let commit = apply(Commit::new(), &started, expected)?.guarded_by(run_slot.guard());
                (started.run, commit)
            }
            None => shikiri_runtime::run::local_start_commit(&run, &run_slot, now)?,
        };
        let version = waiting.map_or(1, |waiting| waiting.version + 1);
        let commit = commit.lease(acquire).requiring(conversation.clone(), conversation_version);
        let job = ExecutionJob {
            executions: self.clone(),
            resolved,
            prompt: request.user_input.clone(),
            is_resumed: false,
            slot,
        };
        match run_slot.start(run.clone(), commit, version, RunWorkload::Job(Box::new(job))).await {
            Ok(committed) => Ok(StartAttempt::Started(Box::new(StoredDocument {
                version,
                attempts: 0,
                created_at: waiting.map_or(committed.at, |waiting| waiting.created_at),
                updated_at: committed.at,
                value: run,
            }))),
            Err(RunCommitError::Commit(error)) => {
                self.handle_refusal(error, &conversation, request, &run).await
            }
            Err(RunCommitError::Refused(error)) => Err(error),
        }
    }

    async fn handle_refusal(
        &self,
        error: CommitError,
        conversation: &shikiri_model::record::RecordKey,
        request: &NewExecution,
        run: &Run,
    ) -> Result<StartAttempt, AppError> {
        match error {
            CommitError::Lease(LeaseRefusal::Held { owner, .. }) => {
                Ok(StartAttempt::Held(Some(owner)))
            }
            // It was cancelled while it waited, or removed with its conversation.
            CommitError::Conflict(changed) if changed == run.key() => {
                let ended = self.runtime.load_run(&run.tenant, &run.id).await?;
                Ok(StartAttempt::Known(Box::new(ended)))
            }
            CommitError::Conflict(changed) if changed == *conversation => Ok(StartAttempt::Changed),
            // A duplicate of this request was faster.
            CommitError::NotUnique(_) => {
                let known = self.known_execution(&run.tenant, request).await?;
                known.map(Box::new).map(StartAttempt::Known).ok_or_else(|| AppError::from(error))
            }
            CommitError::Lease(LeaseRefusal::Lost { .. }) => {
                Err(AppError::Unavailable("this node is stopping".to_owned()))
            }
            other => Err(other.into()),
        }
    }
}

/// The record of an execution that this request asks for.
pub(super) fn new_run(
    request: &NewExecution,
    resolved: &ResolvedRequest,
    now: Timestamp,
) -> Result<Run, AppError> {
    let (id, tenant) = (RunId::mint_execution(now, entropy()?), resolved.tenant.id.clone());
    let mut run = Run::new(id, tenant, "execution".to_owned(), request.input(), now);
    run.idempotency_key = request.unique_key();
    run.execution = Some(Box::new(new_execution(request, resolved)));
    Ok(run)
}

fn new_execution(request: &NewExecution, resolved: &ResolvedRequest) -> Execution {
    Execution {
        conversation: request.conversation.clone(),
        turn: resolved.conversation.value.turns + 1,
        model_id: resolved.model.id.clone(),
        engine: resolved.model.engine,
        executor: request.executor.clone(),
        is_resumable: false,
        confinement: resolved.confinement,
        usage: TokenUsage::default(),
        total_cost_usd: Cost::default(),
    }
}

/// A held lock. A background task renews it until this value is dropped.
pub(super) struct ConversationLock {
    pub(super) guard: LeaseGuard,
    lost: CancellationToken,
    renewal: JoinHandle<()>,
}

impl ConversationLock {
    pub(super) fn new(executions: &Executions, guard: LeaseGuard) -> Self {
        let lost = CancellationToken::new();
        let renewal = tokio::spawn(renew_lock(executions.clone(), guard.clone(), lost.clone()));
        Self { guard, lost, renewal }
    }

    /// A token that is cancelled when the lock is lost.
    pub(super) fn lost(&self) -> &CancellationToken {
        &self.lost
    }
}

impl Drop for ConversationLock {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// An outage of the store, however long, does not end the execution: the commit that ends it proves
/// the lock.
async fn renew_lock(executions: Executions, guard: LeaseGuard, lost: CancellationToken) {
    let (store, ttl) = (executions.runtime.store().as_ref(), executions.options.lock_lease);
    keep_leases(store, slice::from_ref(&guard), ttl, Duration::MAX).await;
    lost.cancel();
}
