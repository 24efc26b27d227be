//! Claims due runs from the queue and executes each in a task of its own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde::Deserialize;
use shikiri_model::ids::{NodeId, RunId, TenantId};
use shikiri_model::journal::Journal;
use shikiri_model::lease::{Lease, LeaseGuard};
use shikiri_model::record::{Document, Record, RecordClaim, StoredDocument};
use shikiri_model::run::{Run, RunCommand, RunError, RunErrorCode, RunOutcome, RunStatus};
use shikiri_store::{Commit, CommitError, HubTopic, StoreError, store};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dead_node_sweep::requeue_or_abort_run;
use super::node::control_stream;
use super::run_driver::{RunAttemptOutcome, RunDriver};
use super::run_handler::{NodeServices, RunJob, StopSignals};
use super::run_slot::RunSlot;
use super::use_cases::RunCommitError;
use crate::error::AppError;
use crate::failpoint;

/// A claimed run that is not started within this time, or within a node's lease if that is shorter,
/// can be claimed again.
const CLAIM_HOLD: Duration = Duration::from_secs(10);
/// The longest wait between two claims. Wake-ups normally end it earlier.
const MAX_CLAIM_WAIT: Duration = Duration::from_secs(2);
/// Pause between two attempts to put a run back while the store is unavailable.
const REQUEUE_PAUSE: Duration = Duration::from_millis(200);
/// Pause after an error of the store, so that a full disk is not flooded with requests.
const AFTER_FAULT: Duration = Duration::from_millis(500);
/// Offers after which a run with an unknown agent fails. A newer node may know the agent.
const OFFERS_OF_UNKNOWN_AGENT: u32 = 40;
const PAGE_BYTES: usize = 1024 * 1024;

pub(super) struct Worker {
    pub(super) services: NodeServices,
    pub(super) node: NodeId,
    pub(super) guard: LeaseGuard,
    pub(super) lost: CancellationToken,
    /// Whether it claims runs from the queue.
    pub(super) is_lasting: bool,
    slots: Arc<Semaphore>,
    pub(super) tasks: TaskTracker,
    /// Jobs and resumed jobs, which a leaving node waits for. Closed when this node accepts nothing new.
    pub(super) jobs: TaskTracker,
    /// By the run's id.
    active_runs: Mutex<HashMap<String, ActiveRun>>,
}

/// A run that this node executes.
#[derive(Clone, Default)]
pub(super) struct ActiveRun {
    /// Cancelled when the run is asked to stop.
    pub(super) cancel: CancellationToken,
    /// Cancelled when this attempt has ended.
    ended: CancellationToken,
}

/// How a new run is executed.
pub enum RunWorkload {
    /// By a journaled agent, which any node can resume.
    Agent,
    /// By a job of this process. If the process is lost, the `RunHandler` resumes the run or ends it.
    Job(Box<dyn RunJob>),
}

impl Worker {
    pub(super) fn node(&self) -> NodeId {
        self.node.clone()
    }
}

/// Marks a run as active in this process until dropped.
pub(super) struct ActiveRunGuard<'a> {
    worker: &'a Worker,
    id: &'a str,
    pub(super) run: ActiveRun,
}

impl Drop for ActiveRunGuard<'_> {
    fn drop(&mut self) {
        self.worker.lock().remove(self.id);
        self.run.ended.cancel();
    }
}

impl Worker {
    pub(super) fn new(
        services: NodeServices,
        node: NodeId,
        guard: LeaseGuard,
        lost: CancellationToken,
        is_lasting: bool,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(services.runtime.options.max_runs));
        Self {
            services,
            node,
            guard,
            lost,
            is_lasting,
            slots,
            tasks: TaskTracker::new(),
            jobs: TaskTracker::new(),
            active_runs: Mutex::default(),
        }
    }

    /// Claims due runs while the lease is held.
    pub(super) async fn claim_runs(self: Arc<Self>) {
        let mut due = self.services.runtime.store.hub().subscribe(HubTopic::Due(Run::KIND));
        while !self.lost.is_cancelled() {
            match self.claim().await {
                Ok(0) => {
                    let claim_wait = self.claim_wait().await;
                    tokio::select! {
                        _ = tokio::time::timeout(claim_wait, due.next()) => {}
                        () = self.lost.cancelled() => {}
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot look for work; trying again");
                    let _ = tokio::time::timeout(AFTER_FAULT, self.lost.cancelled()).await;
                }
            }
        }
    }

    async fn claim(self: &Arc<Self>) -> Result<usize, AppError> {
        // With every slot taken, wait for one rather than claiming what cannot be started.
        let permit = tokio::select! {
            permit = Arc::clone(&self.slots).acquire_owned() => permit,
            () = self.lost.cancelled() => return Ok(0),
        };
        let free = u32::try_from(self.slots.available_permits()).unwrap_or(0) + 1;
        drop(permit);
        let claim = RecordClaim {
            kind: Run::KIND,
            tenant: None,
            parent: None,
            owner: Some(self.node.to_string()),
            hold: CLAIM_HOLD.min(self.services.runtime.options.node_lease),
            limit: free.min(64),
        };
        let commit = Commit::new().claim(claim).guarded_by(self.guard.clone());
        failpoint::hit("claim.before_commit");
        let claimed = self.services.runtime.store.commit(commit).await?.claimed;
        if !claimed.is_empty() {
            failpoint::hit("claim.after_commit");
        }
        for record in &claimed {
            let Ok(permit) = Arc::clone(&self.slots).acquire_owned().await else { break };
            let (worker, record) = (Arc::clone(self), record.clone());
            self.tasks.spawn(async move {
                Box::pin(worker.execute_claimed_run(&record)).await;
                drop(permit);
            });
        }
        Ok(claimed.len())
    }

    /// Marks a run as active. Waits until an earlier attempt has cleaned up: a node must not
    /// execute a run twice at once, which its lease alone would not prevent.
    pub(super) async fn acquire_run<'a>(&'a self, id: &'a str) -> ActiveRunGuard<'a> {
        loop {
            let earlier = match self.lock().entry(id.to_owned()) {
                Entry::Occupied(earlier) => earlier.get().ended.clone(),
                Entry::Vacant(vacant) => {
                    let run = vacant.insert(ActiveRun::default()).clone();
                    return ActiveRunGuard { worker: self, id, run };
                }
            };
            earlier.cancelled().await;
        }
    }

    async fn claim_wait(&self) -> Duration {
        let (Ok(now), Ok(Some(next))) = (
            self.services.runtime.store.now().await,
            self.services.runtime.store.next_due(Run::KIND).await,
        ) else {
            return MAX_CLAIM_WAIT;
        };
        next.since(now).clamp(Duration::from_millis(5), MAX_CLAIM_WAIT)
    }

    async fn execute_claimed_run(&self, record: &Record) {
        let active = self.acquire_run(&record.key.id).await;
        match store::decode::<Run>(record) {
            Ok(stored) => {
                let (tenant, id) = (stored.value.tenant.clone(), stored.value.id.clone());
                let attempted = self.attempt(stored, active.run.cancel.clone()).await;
                self.settle(attempted, &tenant, &id).await;
            }
            Err(error) => tracing::error!(run.id = %record.key.id, %error, "a run cannot be read"),
        }
    }

    /// A free slot for a run that is created and started in one commit, without the queue.
    pub(super) fn reserve_slot(self: &Arc<Self>) -> Option<RunSlot> {
        if self.lost.is_cancelled() || self.jobs.is_closed() {
            return None;
        }
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        Some(RunSlot::new(Arc::clone(self), permit))
    }

    /// `leases` are those that its commit took.
    pub(super) async fn execute_new_run(
        &self,
        started: &StoredDocument<Run>,
        work: RunWorkload,
        leases: Vec<Lease>,
        cancel: CancellationToken,
    ) {
        let run = &started.value;
        let ended = match work {
            // A new run has no journal yet.
            RunWorkload::Agent => {
                let ending = self.drive(run, Journal::default(), cancel).await;
                self.end(started, ending).await
            }
            RunWorkload::Job(job) => {
                let stops = StopSignals { cancel, lost: self.lost.clone() };
                let executed = job.execute(started, self.guard.clone(), &leases, stops);
                self.jobs.track_future(self.abort_on_failure(started, executed)).await
            }
        };
        self.settle(ended, &run.tenant, &run.id).await;
    }

    /// Ends a job that failed unexpectedly, so that its run does not stay open.
    async fn abort_on_failure(
        &self,
        started: &StoredDocument<Run>,
        work: impl Future<Output = Result<(), AppError>>,
    ) -> Result<(), AppError> {
        let error = match std::panic::AssertUnwindSafe(work).catch_unwind().await {
            Ok(Ok(())) => return Ok(()),
            // Another node may end it, or this one once the store is back.
            Ok(Err(error @ (AppError::Unavailable(_) | AppError::Unknown(_)))) => {
                return Err(error);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a panic".to_owned(),
        };
        let run = &started.value;
        tracing::error!(run.id = %run.id, error, "run {} failed: {error}", run.id);
        let reported = RunError::new(
            RunErrorCode::InternalError.as_str(),
            "something went wrong; the server's log says what",
        );
        match self.services.handler(run) {
            Some(handler) => handler.abort(run, &self.node, reported, Some(&self.guard)).await,
            None => Err(AppError::Broken(format!("run {} has no handler", run.id))),
        }
    }

    async fn settle(&self, attempted: Result<(), AppError>, tenant: &TenantId, id: &RunId) {
        if let Err(error) = attempted {
            tracing::info!(run.id = %id, %error, "run {id} is put back");
            self.requeue_run(tenant, id).await;
        }
    }

    /// Puts a run back. Other nodes do not look for runs of a living node, so it tries until the
    /// store is back. Once the lease is lost, a sweep finds the run.
    pub(super) async fn requeue_run(&self, tenant: &TenantId, id: &RunId) {
        while let Err(error) = requeue_or_abort_run(&self.services, tenant, id, &self.node).await {
            if !matches!(error, AppError::Unavailable(_) | AppError::Unknown(_)) {
                tracing::error!(run.id = %id, %error, "run {id} cannot be put back");
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(REQUEUE_PAUSE) => {}
                () = self.lost.cancelled() => return,
            }
        }
    }

    /// One attempt: starts, replays and executes the run, and commits how it ended.
    async fn attempt(
        &self,
        claimed: StoredDocument<Run>,
        cancel: CancellationToken,
    ) -> Result<(), AppError> {
        let node = self.node.clone();
        let started = self.services.runtime.commit_run(
            &claimed,
            RunCommand::Start { node },
            Some(&self.guard),
        );
        let started = match started.await {
            Ok(started) => started,
            // It was answered or cancelled since the claim; it is due again at once.
            Err(error) => return Err(error.into()),
        };
        let run = &started.value;
        if run.status != RunStatus::Running {
            return self.after_end(run).await;
        }
        if let Some(handler) = self.services.handler(run) {
            let stops = StopSignals { cancel, lost: self.lost.clone() };
            let resumed = handler.resume(&started, self.guard.clone(), stops);
            let resumed = Box::pin(self.abort_on_failure(&started, resumed));
            return self.jobs.track_future(resumed).await;
        }
        let ending = match self.read_journal(run).await {
            Ok(journal) => self.drive(run, journal, cancel).await,
            // What cannot be read now will not be read later either.
            Err(error @ StoreError::Broken(_)) => {
                tracing::error!(run.id = %run.id, %error, "a journal cannot be read");
                let error = RunError::new(
                    RunErrorCode::InternalError.as_str(),
                    "the run's journal cannot be read",
                );
                RunAttemptOutcome::Finished(RunOutcome::Failed(error))
            }
            Err(error) => RunAttemptOutcome::Lost(error.to_string()),
        };
        self.end(&started, ending).await
    }

    /// A cancelled run may have called others after it was asked to stop.
    async fn after_end(&self, run: &Run) -> Result<(), AppError> {
        match run.status {
            RunStatus::Cancelled => {
                self.services.runtime.cancel_children(&run.tenant, &run.id).await
            }
            _ => Ok(()),
        }
    }

    async fn drive(
        &self,
        run: &Run,
        journal: Journal,
        cancel: CancellationToken,
    ) -> RunAttemptOutcome {
        let Some(agent) = self.services.runtime.agents.get(&run.agent) else {
            let message = format!("this node has no agent {:?}", run.agent);
            if run.losses < OFFERS_OF_UNKNOWN_AGENT {
                return RunAttemptOutcome::Lost(message);
            }
            return RunAttemptOutcome::Finished(RunOutcome::Failed(RunError::new(
                RunErrorCode::UnknownAgent.as_str(),
                message,
            )));
        };
        let driver = RunDriver::new(
            self.services.runtime.clone(),
            run.clone(),
            self.guard.clone(),
            journal,
            cancel,
        );
        let ending = tokio::select! {
            ending = catch_panic(driver.execute_attempt(agent.as_ref())) => ending,
            () = self.lost.cancelled() => RunAttemptOutcome::Lost("this node is stopping".to_owned()),
        };
        if let RunAttemptOutcome::Lost(_) = ending {
            driver.abandon().await;
        }
        ending
    }

    async fn read_journal(&self, run: &Run) -> Result<Journal, StoreError> {
        let mut journal = Journal::default();
        let mut after = 0;
        loop {
            let page = self
                .services
                .runtime
                .store
                .read(&run.tenant, &run.stream(), after, PAGE_BYTES)
                .await?;
            for event in page.chunks.iter().flat_map(|chunk| chunk.events_after(after)) {
                journal.replay(event).map_err(StoreError::broken)?;
            }
            match page.chunks.last() {
                Some(last) => after = last.last_seq(),
                None => return Ok(journal),
            }
        }
    }

    async fn end(
        &self,
        started: &StoredDocument<Run>,
        ending: RunAttemptOutcome,
    ) -> Result<(), AppError> {
        let run = &started.value;
        let command = match ending {
            RunAttemptOutcome::Finished(outcome) => RunCommand::Finish(outcome),
            RunAttemptOutcome::Waiting { until, seen_wakes } => {
                RunCommand::Suspend { seen_wakes, until }
            }
            RunAttemptOutcome::Lost(reason) => return Err(AppError::Unavailable(reason)),
        };
        let guard = Some(&self.guard);
        // Most runs have no other writer, and need not be read again to be ended.
        let ended = match self.services.runtime.commit_run(started, command.clone(), guard).await {
            Err(RunCommitError::Commit(CommitError::Conflict(_))) => {
                self.services
                    .runtime
                    .change_run(&run.tenant, &run.id, guard, |_| command.clone())
                    .await
            }
            ended => ended.map_err(AppError::from),
        };
        match ended {
            Ok(stored) => self.after_end(&stored.value).await,
            // Another writer ended it meanwhile, or it is gone with its tenant.
            Err(AppError::NotNow(_) | AppError::NotFound { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Follows the notes that other processes leave for this node.
    pub(super) async fn follow_control_stream(self: Arc<Self>) {
        let stream = control_stream(&self.node);
        let mut after = 0;
        let mut wakes =
            self.services.runtime.store.hub().subscribe(HubTopic::Stream(stream.clone()));
        while !self.lost.is_cancelled() {
            match self
                .services
                .runtime
                .store
                .read(&TenantId::system(), &stream, after, PAGE_BYTES)
                .await
            {
                Ok(page) => {
                    for event in page.chunks.iter().flat_map(|chunk| chunk.events_after(after)) {
                        self.handle_control_note(event.kind, event.data);
                    }
                    after = page.chunks.last().map_or(after, |chunk| chunk.last_seq());
                }
                // There is no stream before the first note.
                Err(StoreError::NoStream(_)) => {}
                Err(error) => tracing::warn!(%error, "cannot read notes; trying again"),
            }
            tokio::select! {
                _ = tokio::time::timeout(MAX_CLAIM_WAIT, wakes.next()) => {}
                () = self.lost.cancelled() => {}
            }
        }
    }

    fn handle_control_note(&self, kind: &str, data: &str) {
        #[derive(Deserialize)]
        struct StopRunNote {
            run_id: RunId,
        }
        if kind != "stop_run" {
            return;
        }
        if let Ok(note) = serde_json::from_str::<StopRunNote>(data)
            && let Some(active) = self.lock().get(note.run_id.as_str())
        {
            active.cancel.cancel();
        }
    }

    /// Accepts nothing new, and waits a while for jobs to end.
    pub(super) async fn drain_jobs(&self) {
        self.jobs.close();
        let _ =
            tokio::time::timeout(self.services.runtime.options.drain_wait, self.jobs.wait()).await;
    }

    /// Waits until no run is active.
    pub(super) async fn drop_runs(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ActiveRun>> {
        self.active_runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A panicking agent fails its run; it does not take the worker with it.
async fn catch_panic(attempt: impl Future<Output = RunAttemptOutcome>) -> RunAttemptOutcome {
    match std::panic::AssertUnwindSafe(attempt).catch_unwind().await {
        Ok(ending) => ending,
        Err(_) => {
            let error = RunError::new(RunErrorCode::InternalError.as_str(), "the agent panicked");
            RunAttemptOutcome::Finished(RunOutcome::Failed(error))
        }
    }
}
