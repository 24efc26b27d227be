//! One writer per conversation: the lease, the wait for it, and its keeping.

use std::time::Duration;

use shikiri_model::conversation::lock_of;
use shikiri_model::execution::{Cost, Execution, Usage};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::lease::{Guard, LeaseChange, LeaseRefusal};
use shikiri_model::record::{Document, Stored};
use shikiri_model::run::Run;
use shikiri_store::{CommitError, StoreError, StoreExt, Topic, store};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::engine::Server;
use super::flow::Errand;
use super::request::{Means, NewExecution};
use crate::app::{App, entropy};
use crate::error::AppError;
use crate::run::{CommitOrRefusal, Work};

/// Between two looks at a lock that another process may have freed without telling us.
const LOCK_POLL: Duration = Duration::from_millis(50);
/// What a caller is advised who waited in vain.
const RETRY_LOCKED: Duration = Duration::from_secs(1);

/// What became of an attempt to start.
enum Attempt {
    Started(Box<Stored<Run>>),
    /// By the execution of this id.
    Held(String),
    /// Somebody changed the conversation since it was read.
    Changed,
    /// This node has no place for it, or is just becoming a node again.
    NoPlace,
}

impl App {
    pub(super) async fn known_execution(
        &self,
        tenant: &TenantId,
        request: &NewExecution,
    ) -> Result<Option<Stored<Run>>, AppError> {
        let Some(key) = request.unique_key() else { return Ok(None) };
        let found = self.store.find(Run::KIND, tenant, &key).await?;
        Ok(found.map(|record| store::decode(&record)).transpose()?)
    }

    /// Takes the lock and makes the execution in one commit, as soon as the lock is free.
    pub(super) async fn start_under_lock(
        &self,
        tenant: &TenantId,
        request: &NewExecution,
        mut means: Means,
        door: Option<&Server>,
    ) -> Result<Stored<Run>, AppError> {
        let deadline = Instant::now() + self.options.lock_wait;
        let lock = lock_of(&request.conversation);
        let mut freed = self.store.hub().subscribe(Topic::Lease(lock.clone()));
        loop {
            match self.try_start(request, means).await? {
                Attempt::Started(run) => return Ok(*run),
                Attempt::Changed => {}
                Attempt::NoPlace if Instant::now() >= deadline => {
                    let detail = "this server carries as many runs as it can: try again".to_owned();
                    return Err(AppError::Limit { detail, retry_after: RETRY_LOCKED });
                }
                Attempt::NoPlace => tokio::time::sleep(LOCK_POLL).await,
                Attempt::Held(execution) => loop {
                    // By the same request, perhaps, which came twice.
                    if let Some(known) = self.known_execution(tenant, request).await? {
                        return Ok(known);
                    }
                    let now = Instant::now();
                    if now >= deadline {
                        return Err(AppError::Locked {
                            conversation: request.conversation.to_string(),
                            execution,
                            retry_after: RETRY_LOCKED,
                        });
                    }
                    // Look before trying again: a hundred waiters are not a hundred writers.
                    let pause = LOCK_POLL.min(deadline - now);
                    let _ = tokio::time::timeout(pause, freed.next()).await;
                    if self.store.lease(&lock).await?.is_none_or(|(_, lapsed)| lapsed) {
                        break;
                    }
                },
            }
            // Whoever had the lock has changed the conversation.
            means = self.means(tenant, request, door).await?;
        }
    }

    async fn try_start(&self, request: &NewExecution, means: Means) -> Result<Attempt, AppError> {
        let tenant = means.tenant.id.clone();
        // Who only waits takes nobody's place.
        if let Some(execution) = means.locked_by {
            return Ok(Attempt::Held(execution));
        }
        let slot =
            self.execution_slots.take(&tenant, means.tenant.limits.max_concurrent_executions)?;
        let Some(place) = self.here.invite() else { return Ok(Attempt::NoPlace) };
        let now = self.store.now().await?;
        let id = RunId::mint_execution(now, entropy()?);
        let mut run = Run::new(id, tenant, "execution".to_owned(), request.input(), now);
        run.idempotency_key = request.unique_key();
        run.execution = Some(Box::new(Execution {
            conversation: request.conversation.clone(),
            turn: means.conversation.value.turns + 1,
            model_id: means.model.id.clone(),
            engine: means.model.engine,
            executor: request.executor.clone(),
            goes_on: means.goes_on() && place.is_lasting(),
            confinement: means.confinement,
            usage: Usage::default(),
            total_cost_usd: Cost::default(),
        }));
        let acquire = LeaseChange::Acquire {
            name: lock_of(&request.conversation),
            owner: run.id.to_string(),
            ttl: self.options.lock_lease,
        };
        let conversation = means.conversation.value.key();
        let version = means.conversation.version;
        let (run, commit) = crate::run::started_here(&run, &place, now)?;
        let commit = commit.lease(acquire).requiring(conversation.clone(), version);
        let errand = Errand { means, prompt: request.user_input.clone(), taken_up: false, slot };
        match place.start(run.clone(), commit, Work::Engine(Box::new(errand))).await {
            Ok(committed) => Ok(Attempt::Started(Box::new(Stored {
                version: 1,
                attempts: 0,
                created_at: committed.at,
                updated_at: committed.at,
                value: run,
            }))),
            Err(CommitOrRefusal::Commit(error)) => {
                self.refused(error, &conversation, request, &run).await
            }
            Err(CommitOrRefusal::Refused(error)) => Err(error),
        }
    }

    async fn refused(
        &self,
        error: CommitError,
        conversation: &shikiri_model::record::RecordKey,
        request: &NewExecution,
        run: &Run,
    ) -> Result<Attempt, AppError> {
        match error {
            CommitError::Lease(LeaseRefusal::Held { owner, .. }) => Ok(Attempt::Held(owner)),
            CommitError::Conflict(changed) if changed == *conversation => Ok(Attempt::Changed),
            // The same request was faster.
            CommitError::NotUnique(_) => {
                let known = self.known_execution(&run.tenant, request).await?;
                known.map(Box::new).map(Attempt::Started).ok_or_else(|| AppError::from(error))
            }
            CommitError::Lease(LeaseRefusal::Lost { .. }) => {
                Err(AppError::Unavailable("this node is stopping".to_owned()))
            }
            other => Err(other.into()),
        }
    }
}

/// A lock that is held, and renewed for as long as this lives, whatever its holder waits for.
pub(super) struct Locked {
    pub(super) guard: Guard,
    lost: CancellationToken,
    keeper: JoinHandle<()>,
}

impl Locked {
    pub(super) fn new(app: &App, guard: Guard) -> Self {
        let lost = CancellationToken::new();
        let keeper = tokio::spawn(keep(app.clone(), guard.clone(), lost.clone()));
        Self { guard, lost, keeper }
    }

    /// Cancelled when it is lost.
    pub(super) fn lost(&self) -> &CancellationToken {
        &self.lost
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn keep(app: App, guard: Guard, lost: CancellationToken) {
    let ttl = app.options.lock_lease;
    loop {
        tokio::time::sleep(ttl / 3).await;
        match app.store.renew(&guard, ttl).await {
            Ok(_) => {}
            Err(CommitError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_))) => {}
            Err(_) => return lost.cancel(),
        }
    }
}
