//! Takes due runs from the queue and carries each in a task of its own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde::Deserialize;
use shikiri_model::ids::{NodeId, RunId, TenantId};
use shikiri_model::journal::Journal;
use shikiri_model::lease::{Guard, Lease};
use shikiri_model::record::{Claim, Document, Record, Stored};
use shikiri_model::run::{Command, Outcome, Run, RunError, RunStatus};
use shikiri_store::{Commit, CommitError, StoreError, Topic, store};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::drive::{Driver, Ending};
use super::invitation::Invitation;
use super::node::control_stream;
use super::sweep::lose;
use super::use_cases::CommitOrRefusal;
use crate::app::App;
use crate::error::AppError;
use crate::execution::{self, Errand, Stops};
use crate::failpoint;

/// A run that was claimed and not started within this time, or within a node's lease if that is
/// shorter, is handed out again.
const CLAIM_HOLD: Duration = Duration::from_secs(10);
/// The longest nap: a net under the wake-ups, not the way work is found.
const LONGEST_NAP: Duration = Duration::from_secs(2);
/// Between two attempts to put a run back while the store is away.
const PUT_BACK_PAUSE: Duration = Duration::from_millis(200);
/// Pause after the store refused, so that a full disk is not met with a storm.
const AFTER_FAULT: Duration = Duration::from_millis(500);
/// A newer node may know the agent: until it was offered so often, nobody gives the run up.
const OFFERS_OF_UNKNOWN_AGENT: u32 = 40;
const PAGE_BYTES: usize = 1024 * 1024;

pub(crate) struct Worker {
    pub(super) app: App,
    pub(super) node: NodeId,
    pub(super) guard: Guard,
    lost: CancellationToken,
    /// It takes runs from the queue.
    pub(super) is_lasting: bool,
    slots: Arc<Semaphore>,
    pub(super) tasks: TaskTracker,
    /// Engines at work. Closed when this node takes nothing new.
    engines: TaskTracker,
    /// By the run's id.
    carried: Mutex<HashMap<String, Carried>>,
}

/// A run that this node carries.
#[derive(Clone, Default)]
pub(super) struct Carried {
    /// Somebody wants it stopped.
    pub(super) cancel: CancellationToken,
    /// This attempt does nothing more.
    ended: CancellationToken,
}

/// What carrying a new run takes.
pub(crate) enum Work {
    /// An agent's: what it does is in the journal, so that any node can take it up.
    Journaled,
    /// An engine's, which ends with this process.
    Engine(Box<Errand>),
}

impl Worker {
    pub(super) fn node(&self) -> NodeId {
        self.node.clone()
    }
}

/// The right to carry a run in this process, given up when dropped.
pub(super) struct Place<'a> {
    worker: &'a Worker,
    run: &'a str,
    pub(super) carried: Carried,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.worker.lock().remove(self.run);
        self.carried.ended.cancel();
    }
}

impl Worker {
    pub(super) fn new(
        app: App,
        node: NodeId,
        guard: Guard,
        lost: CancellationToken,
        is_lasting: bool,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(app.options.max_runs));
        Self {
            app,
            node,
            guard,
            lost,
            is_lasting,
            slots,
            tasks: TaskTracker::new(),
            engines: TaskTracker::new(),
            carried: Mutex::default(),
        }
    }

    /// Claims whatever is due, for as long as the lease is held.
    pub(super) async fn claim_runs(self: Arc<Self>) {
        let mut due = self.app.store.hub().subscribe(Topic::Due(Run::KIND));
        while !self.lost.is_cancelled() {
            match self.claim().await {
                Ok(0) => {
                    let nap = self.nap().await;
                    tokio::select! {
                        _ = tokio::time::timeout(nap, due.next()) => {}
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
        let claim = Claim {
            kind: Run::KIND,
            tenant: None,
            parent: None,
            owner: Some(self.node.to_string()),
            hold: CLAIM_HOLD.min(self.app.options.node_lease),
            limit: free.min(64),
        };
        let commit = Commit::new().claim(claim).guarded_by(self.guard.clone());
        failpoint::hit("claim.before_commit");
        let claimed = self.app.store.commit(commit).await?.claimed;
        if !claimed.is_empty() {
            failpoint::hit("claim.after_commit");
        }
        for record in &claimed {
            let Ok(permit) = Arc::clone(&self.slots).acquire_owned().await else { break };
            let (worker, record) = (Arc::clone(self), record.clone());
            self.tasks.spawn(async move {
                Box::pin(worker.carry(&record)).await;
                drop(permit);
            });
        }
        Ok(claimed.len())
    }

    /// Waits for an earlier attempt that has still to tidy up: one node never carries a run twice
    /// at once, which its lease alone would not prevent.
    pub(super) async fn take_up<'a>(&'a self, run: &'a str) -> Place<'a> {
        loop {
            let earlier = match self.lock().entry(run.to_owned()) {
                Entry::Occupied(earlier) => earlier.get().ended.clone(),
                Entry::Vacant(free) => {
                    let carried = free.insert(Carried::default()).clone();
                    return Place { worker: self, run, carried };
                }
            };
            earlier.cancelled().await;
        }
    }

    async fn nap(&self) -> Duration {
        let (Ok(now), Ok(Some(next))) =
            (self.app.store.now().await, self.app.store.next_due(Run::KIND).await)
        else {
            return LONGEST_NAP;
        };
        next.since(now).clamp(Duration::from_millis(5), LONGEST_NAP)
    }

    async fn carry(&self, record: &Record) {
        let place = self.take_up(&record.key.id).await;
        match store::decode::<Run>(record) {
            Ok(stored) => {
                let (tenant, id) = (stored.value.tenant.clone(), stored.value.id.clone());
                let attempted = self.attempt(stored, place.carried.cancel.clone()).await;
                self.settle(attempted, &tenant, &id).await;
            }
            Err(error) => tracing::error!(run.id = %record.key.id, %error, "a run cannot be read"),
        }
    }

    /// A free place for a run that is made and started in one commit, without the queue.
    pub(super) fn invite(self: &Arc<Self>) -> Option<Invitation> {
        if self.lost.is_cancelled() || self.engines.is_closed() {
            return None;
        }
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        Some(Invitation::new(Arc::clone(self), permit))
    }

    /// `leases`: those that its commit took.
    pub(super) async fn carry_new(
        &self,
        started: &Stored<Run>,
        work: Work,
        leases: Vec<Lease>,
        cancel: CancellationToken,
    ) {
        let run = &started.value;
        let ended = match work {
            // Nothing of it can have happened before.
            Work::Journaled => {
                let ending = self.drive(run, Journal::default(), cancel).await;
                self.end(started, ending).await
            }
            Work::Engine(errand) => {
                let carried = self.carry_engine(started, *errand, leases, cancel);
                self.engines.track_future(carried).await
            }
        };
        self.settle(ended, &run.tenant, &run.id).await;
    }

    async fn carry_engine(
        &self,
        started: &Stored<Run>,
        errand: Errand,
        leases: Vec<Lease>,
        cancel: CancellationToken,
    ) -> Result<(), AppError> {
        let Some(lock) = leases.first().map(Lease::guard) else {
            return Err(AppError::Broken("an execution was started without its lock".to_owned()));
        };
        let stops = Stops { cancel, lost: self.lost.clone() };
        let carried = execution::carry(&self.app, started, errand, self.guard.clone(), lock, stops);
        self.watched(started, carried).await
    }

    /// An execution that goes wrong in a way that nobody foresaw is ended.
    async fn watched(
        &self,
        started: &Stored<Run>,
        carried: impl Future<Output = Result<(), AppError>>,
    ) -> Result<(), AppError> {
        let error = match std::panic::AssertUnwindSafe(carried).catch_unwind().await {
            Ok(Ok(())) => return Ok(()),
            // Another node may end it, or this one once the store is back.
            Ok(Err(error @ (AppError::Unavailable(_) | AppError::Unknown(_)))) => {
                return Err(error);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a panic".to_owned(),
        };
        let run = &started.value;
        tracing::error!(run.id = %run.id, error, "execution {} failed: {error}", run.id);
        let told =
            RunError::new("INTERNAL_ERROR", "something went wrong; the server's log says what");
        let guard = Some(&self.guard);
        self.app.abort_execution(&run.tenant, &run.id, &self.node, told, guard).await
    }

    async fn settle(&self, attempted: Result<(), AppError>, tenant: &TenantId, id: &RunId) {
        if let Err(error) = attempted {
            tracing::info!(run.id = %id, %error, "run {id} is put back");
            self.put_back(tenant, id).await;
        }
    }

    /// While this node lives nobody else looks for runs that it dropped, so it tries until the
    /// store is back. Once its lease is lost, a sweep finds them.
    pub(super) async fn put_back(&self, tenant: &TenantId, id: &RunId) {
        while let Err(error) = lose(&self.app, tenant, id, &self.node).await {
            if !matches!(error, AppError::Unavailable(_) | AppError::Unknown(_)) {
                tracing::error!(run.id = %id, %error, "run {id} cannot be put back");
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(PUT_BACK_PAUSE) => {}
                () = self.lost.cancelled() => return,
            }
        }
    }

    /// One attempt: start, replay, carry, and commit how it ended.
    async fn attempt(
        &self,
        claimed: Stored<Run>,
        cancel: CancellationToken,
    ) -> Result<(), AppError> {
        let node = self.node.clone();
        let started = self.app.commit_run(&claimed, Command::Start { node }, Some(&self.guard));
        let started = match started.await {
            Ok(started) => started,
            // Somebody answered or cancelled it since the claim; it is due again at once.
            Err(error) => return Err(error.into()),
        };
        let run = &started.value;
        if run.status != RunStatus::Running {
            return self.after_end(run).await;
        }
        if run.execution.is_some() {
            let stops = Stops { cancel, lost: self.lost.clone() };
            let carried = execution::take_up(&self.app, &started, self.guard.clone(), stops);
            // Boxed: most runs are no executions, and need not have room for one.
            let carried = Box::pin(self.watched(&started, carried));
            return self.engines.track_future(carried).await;
        }
        let ending = match self.read_journal(run).await {
            Ok(journal) => self.drive(run, journal, cancel).await,
            // What cannot be read now will not be read later either.
            Err(error @ StoreError::Broken(_)) => {
                tracing::error!(run.id = %run.id, %error, "a journal cannot be read");
                let error = RunError::new("INTERNAL_ERROR", "the run's journal cannot be read");
                Ending::Finished(Outcome::Failed(error))
            }
            Err(error) => Ending::Lost(error.to_string()),
        };
        self.end(&started, ending).await
    }

    /// A cancelled run may have called others after it was asked to stop.
    async fn after_end(&self, run: &Run) -> Result<(), AppError> {
        match run.status {
            RunStatus::Cancelled => self.app.cancel_children(&run.tenant, &run.id).await,
            _ => Ok(()),
        }
    }

    async fn drive(&self, run: &Run, journal: Journal, cancel: CancellationToken) -> Ending {
        let Some(agent) = self.app.agents.get(&run.agent) else {
            let message = format!("this node has no agent {:?}", run.agent);
            if run.losses < OFFERS_OF_UNKNOWN_AGENT {
                return Ending::Lost(message);
            }
            return Ending::Finished(Outcome::Failed(RunError::new("UNKNOWN_AGENT", message)));
        };
        let driver =
            Driver::new(self.app.clone(), run.clone(), self.guard.clone(), journal, cancel);
        let ending = tokio::select! {
            ending = catch_panic(driver.carry(agent.as_ref())) => ending,
            () = self.lost.cancelled() => Ending::Lost("this node is stopping".to_owned()),
        };
        if let Ending::Lost(_) = ending {
            driver.abandon().await;
        }
        ending
    }

    async fn read_journal(&self, run: &Run) -> Result<Journal, StoreError> {
        let mut journal = Journal::default();
        let mut after = 0;
        loop {
            let page = self.app.store.read(&run.tenant, &run.stream(), after, PAGE_BYTES).await?;
            for event in page.chunks.iter().flat_map(|chunk| chunk.events_after(after)) {
                journal.replay(event).map_err(StoreError::broken)?;
            }
            match page.chunks.last() {
                Some(last) => after = last.last_seq(),
                None => return Ok(journal),
            }
        }
    }

    async fn end(&self, started: &Stored<Run>, ending: Ending) -> Result<(), AppError> {
        let run = &started.value;
        let command = match ending {
            Ending::Finished(outcome) => Command::Finish(outcome),
            Ending::Waiting { until, seen_wakes } => Command::Suspend { seen_wakes, until },
            Ending::Lost(reason) => return Err(AppError::Unavailable(reason)),
        };
        let guard = Some(&self.guard);
        // Most runs were touched by nobody else, and need not be read again to be ended.
        let ended = match self.app.commit_run(started, command.clone(), guard).await {
            Err(CommitOrRefusal::Commit(CommitError::Conflict(_))) => {
                self.app.change_run(&run.tenant, &run.id, guard, |_| command.clone()).await
            }
            ended => ended.map_err(AppError::from),
        };
        match ended {
            Ok(stored) => self.after_end(&stored.value).await,
            // It was ended by somebody else meanwhile, or is gone with its tenant.
            Err(AppError::NotNow(_) | AppError::NotFound { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Listens to what other processes want of this node.
    pub(super) async fn hear_notes(self: Arc<Self>) {
        let stream = control_stream(&self.node);
        let mut after = 0;
        let mut news = self.app.store.hub().subscribe(Topic::Stream(stream.clone()));
        while !self.lost.is_cancelled() {
            match self.app.store.read(&TenantId::system(), &stream, after, PAGE_BYTES).await {
                Ok(page) => {
                    for event in page.chunks.iter().flat_map(|chunk| chunk.events_after(after)) {
                        self.hear(event.kind, event.data);
                    }
                    after = page.chunks.last().map_or(after, |chunk| chunk.last_seq());
                }
                // There is no stream before the first note.
                Err(StoreError::NoStream(_)) => {}
                Err(error) => tracing::warn!(%error, "cannot read notes; trying again"),
            }
            tokio::select! {
                _ = tokio::time::timeout(LONGEST_NAP, news.next()) => {}
                () = self.lost.cancelled() => {}
            }
        }
    }

    fn hear(&self, kind: &str, data: &str) {
        #[derive(Deserialize)]
        struct StopRun {
            run_id: RunId,
        }
        if kind != "stop_run" {
            return;
        }
        if let Ok(note) = serde_json::from_str::<StopRun>(data)
            && let Some(carried) = self.lock().get(note.run_id.as_str())
        {
            carried.cancel.cancel();
        }
    }

    /// Takes nothing new, and waits a while for engines to end: their work cannot be handed back.
    pub(super) async fn wind_down(&self) {
        self.engines.close();
        let _ = tokio::time::timeout(self.app.options.drain_wait, self.engines.wait()).await;
    }

    /// Waits until nothing is carried any more.
    pub(super) async fn drop_runs(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Carried>> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A panicking agent fails its run; it does not take the worker with it.
async fn catch_panic(carry: impl Future<Output = Ending>) -> Ending {
    match std::panic::AssertUnwindSafe(carry).catch_unwind().await {
        Ok(ending) => ending,
        Err(_) => {
            let error = RunError::new("INTERNAL_ERROR", "the agent panicked");
            Ending::Finished(Outcome::Failed(error))
        }
    }
}
