//! Starting a run: through the queue, or at once in this process.

use serde_json::Value;
use shikiri_model::event::Seq;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::record::Expect;
use shikiri_model::run::{Command, Run, decide};
use shikiri_model::time::Timestamp;
use shikiri_store::{Append, Commit, CommitError, Committed};

use super::invitation::Invitation;
use super::use_cases::{CommitOrRefusal, RunView, apply, enqueue};
use super::worker::Work;
use crate::app::{App, entropy};
use crate::error::AppError;
use crate::failpoint;

/// A run to be started.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub agent: String,
    pub input: Value,
    pub idempotency_key: Option<String>,
    /// Who asked for it, in the words of the door that was asked.
    pub origin: Option<Value>,
}

const MAX_KEY: usize = 200;

impl App {
    /// Puts a run in the queue; with a known idempotency key, gives the run that has it.
    pub async fn start_run(&self, tenant: &TenantId, new: NewRun) -> Result<RunView, AppError> {
        let run = self.new_run(tenant, new).await?;
        match self.enqueue(&run, None).await? {
            Enqueued::New(_) => self.run(tenant, &run.id).await,
            Enqueued::Known(first) => self.run(tenant, &first).await,
        }
    }

    /// As `start_run`, with one event more in the same commit, which may name the run; returns
    /// the event's number too.
    pub(crate) async fn start_run_beside(
        &self,
        tenant: &TenantId,
        new: NewRun,
        beside: impl Fn(&RunId) -> Append + Send,
    ) -> Result<(RunView, Seq), AppError> {
        let run = self.new_run(tenant, new).await?;
        let (id, committed) = match self.enqueue(&run, Some(beside(&run.id))).await? {
            Enqueued::New(committed) => (run.id, committed),
            Enqueued::Known(first) => {
                let commit = Commit::new().append(beside(&first));
                (first, self.store.commit(commit).await?)
            }
        };
        let seq = committed.appended.last().map_or(0, |appended| appended.last_seq);
        Ok((self.run(tenant, &id).await?, seq))
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

    async fn enqueue(&self, run: &Run, beside: Option<Append>) -> Result<Enqueued, AppError> {
        let now = self.store.now().await?;
        failpoint::hit("run.before_enqueue");
        let enqueued = match self.here.invite() {
            Some(place) => self.start_here(run, beside.clone(), place, now).await?,
            None => None,
        };
        let enqueued = match enqueued {
            Some(started) => Ok(started),
            None => {
                let mut commit = enqueue(run, now)?;
                commit.appends.extend(beside);
                self.commit_in_tenant(&run.tenant, commit).await.map(Enqueued::New)
            }
        };
        failpoint::hit("run.after_enqueue");
        enqueued.or_else(known)
    }

    /// Makes and starts a run in one commit, for the worker of this process: what is asked for
    /// here need not go through the queue first. None if the worker must not write any more.
    async fn start_here(
        &self,
        run: &Run,
        beside: Option<Append>,
        place: Invitation,
        now: Timestamp,
    ) -> Result<Option<Enqueued>, AppError> {
        let (run, mut commit) = started_here(run, &place, now)?;
        commit.appends.extend(beside);
        match place.start(run, commit, Work::Journaled).await {
            Ok(committed) => Ok(Some(Enqueued::New(committed))),
            Err(CommitOrRefusal::Commit(CommitError::Lease(_))) => Ok(None),
            Err(other) => known(other).map(Some),
        }
    }
}

/// The run as made and started in one go, and the commit that does it.
pub(crate) fn started_here(
    run: &Run,
    place: &Invitation,
    now: Timestamp,
) -> Result<(Run, Commit), AppError> {
    let mut queued = decide(run, Command::Enqueue, now)?;
    let started = decide(&queued.run, Command::Start { node: place.node() }, now)?;
    queued.run = started.run;
    queued.events.extend(started.events);
    let commit = apply(Commit::new(), &queued, Expect::New)?.guarded_by(place.guard());
    Ok((queued.run, commit))
}

/// What became of a start.
enum Enqueued {
    New(Committed),
    /// The run that has the idempotency key already.
    Known(RunId),
}

/// A start that was refused because the idempotency key is taken names the run that has it.
fn known(refused: CommitOrRefusal) -> Result<Enqueued, AppError> {
    match refused {
        CommitOrRefusal::Commit(CommitError::NotUnique(first)) => {
            let known = first.id.parse().map_err(|_| AppError::not_found("run", &first.id))?;
            Ok(Enqueued::Known(known))
        }
        other => Err(other.into()),
    }
}

pub(crate) fn is_good_key(key: &str) -> bool {
    (1..=MAX_KEY).contains(&key.chars().count()) && !key.chars().any(char::is_control)
}
