//! The end of an execution whose node was lost or cannot conclude it: it is billed by the usage that
//! was recorded last. `resume_execution.rs` is for executions that continue on another node.

use shikiri_model::conversation::conversation_lock;
use shikiri_model::execution::{ExecutionConclusion, ExecutionOutcome, ExecutionProgress, total};
use shikiri_model::ids::{NodeId, RunId, TenantId};
use shikiri_model::lease::{LeaseChange, LeaseGuard, LeaseRefusal};
use shikiri_model::record::{ExpectedVersion, StoredDocument};
use shikiri_model::run::{Run, RunCommand, RunError, RunOutcome, RunStatus, decide};
use shikiri_runtime::run::apply;
use shikiri_runtime::{AppError, transact};
use shikiri_store::{Commit, CommitError};

use super::finish_execution::add_bill;
use super::turn_journal::close_journal;
use crate::Executions;

impl Executions {
    /// Ends an execution that its node cannot conclude: bills the usage recorded last, and releases
    /// the conversation. Does nothing if the execution no longer belongs to that node. A node that
    /// aborts its own execution passes its guard; a sweeper has fenced the node before.
    pub(crate) async fn abort_execution(
        &self,
        tenant: &TenantId,
        id: &RunId,
        node: &NodeId,
        error: RunError,
        guard: Option<&LeaseGuard>,
    ) -> Result<(), AppError> {
        transact("execution", id.as_str(), || async {
            let run = self.runtime.load_run(tenant, id).await?;
            let is_open =
                run.value.status == RunStatus::Running || run.value.is_waiting_execution();
            if !is_open || run.value.node.as_ref() != Some(node) {
                return Ok(Some(()));
            }
            let mut commit = self.build_abort_commit(&run, &error).await?;
            commit.guards.extend(guard.cloned());
            match self.runtime.store().commit(commit).await {
                Err(CommitError::Lease(LeaseRefusal::Lost { name }))
                    if guard.is_some_and(|guard| guard.name == name) =>
                {
                    Err(AppError::Unavailable("this is no node any more".to_owned()))
                }
                // The lock has just expired, or a cancellation came in between.
                Err(CommitError::Conflict(_) | CommitError::Lease(_)) => Ok(None),
                other => other.map(|_| Some(())).map_err(AppError::from),
            }
        })
        .await
    }

    /// The end of an execution that was never started: it has no bill and holds no lock.
    pub(super) async fn refusal_commit(
        &self,
        waiting: &StoredDocument<Run>,
        error: &RunError,
    ) -> Result<Commit, AppError> {
        let now = self.runtime.store().now().await?;
        let command = RunCommand::Finish(RunOutcome::Failed(error.clone()));
        let decision = decide(&waiting.value, command, now)?;
        Ok(apply(Commit::new(), &decision, ExpectedVersion::Version(waiting.version))?)
    }

    async fn build_abort_commit(
        &self,
        stored: &StoredDocument<Run>,
        error: &RunError,
    ) -> Result<Commit, AppError> {
        let run = &stored.value;
        if run.is_waiting_execution() {
            return self.refusal_commit(stored, error).await;
        }
        let rows = self.recorded_usage(run).await?;
        let (usage, total_cost_usd) = total(&rows);
        let mut progress = ExecutionProgress::default();
        self.for_each_event(run, |kind, data, _| progress.take(kind, data)).await?;
        let partial = progress.partial_result(&rows);
        let ending = ExecutionOutcome::Error { error: error.clone(), partial };
        let conclusion = ExecutionConclusion { ending, usage, total_cost_usd };
        let now = self.runtime.store().now().await?;
        let mut decision = decide(run, RunCommand::Conclude(conclusion), now)?;
        decision.events.splice(0..0, progress.subagent_ends(&rows));
        let mut commit = apply(Commit::new(), &decision, ExpectedVersion::Version(stored.version))?;
        add_bill(&mut commit, &decision.run, &rows, now)?;
        commit.appends.extend(run.is_resumable().then(|| close_journal(run)));
        if let Some(execution) = &run.execution {
            let lock =
                self.runtime.store().lease(&conversation_lock(&execution.conversation)).await?;
            let own = lock.filter(|(lease, lapsed)| lease.owner == run.id.as_str() && !lapsed);
            commit
                .leases
                .extend(own.map(|(lease, _)| LeaseChange::Release { guard: lease.guard() }));
        }
        Ok(commit)
    }
}
