//! The coordinator starts agents that have work waiting and no session to do it.
//!
//! One server leads, by a lease; the others stand by. An inbox item of an agent that may be started
//! is due at once, so the leader sees it as it arrives. The leader claims the item for the length
//! of the spawn guard. An item that is still waiting after that becomes due again, for the leader
//! of that time.
//!
//! Each start is recorded in a `SpawnSlot` before it happens. A new leader follows the runs that it
//! finds there, and ends the sessions of runs that are over.

mod after_run;
mod agent_prompt;
mod spawned_run;

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::time::Duration;

use shikiri_model::ids::NodeId;
use shikiri_model::lease::{Lease, LeaseGuard};
use shikiri_model::record::{Document, RecordClaim, RecordQuery, StoredDocument};
use shikiri_model::team::{InboxItem, SpawnQueue, SpawnSlot, SpawnTarget};
use shikiri_model::time::Timestamp;
use shikiri_runtime::{entropy, keep_leases};
use shikiri_store::{Commit, CommitError, HubTopic, StoreExt, store};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::TeamError;
use crate::Teams;

/// The holder of this lease is the leader.
const LEASE: &str = "coordinator";
const AT_ONCE: u32 = 50;
/// Pause between looks, so that a burst of changes is handled in one.
const BREATH: Duration = Duration::from_millis(5);
/// The longest pause between looks: the store's clock may differ from ours.
const LONGEST: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(1);
/// Completions that may wait in the channel.
const ENDS: usize = 64;

/// A coordinator of this process. Dropping it does not stop it; `leave` does.
pub struct Coordinator {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Coordinator {
    /// Stands by, and leads once no other server does. The agents that it starts run in this
    /// process and find their tools at `mcp_url`, the address of its MCP endpoint.
    pub fn start(teams: Teams, mcp_url: String) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(run_standby(teams, mcp_url, stop.clone()));
        Self { stop, task }
    }

    /// Stops what it has started and releases the lease, so that another server can lead at once.
    pub async fn leave(self) {
        self.stop.cancel();
        // The panic hook has reported a panic already; there is nothing left to stop.
        let _ = self.task.await;
    }
}

async fn run_standby(teams: Teams, mcp_url: String, stop: CancellationToken) {
    let mut freed = teams.runtime.store().hub().subscribe(HubTopic::Lease(LEASE.to_owned()));
    while !stop.is_cancelled() {
        match try_acquire_leadership(&teams).await {
            Ok(Some(lease)) => {
                let (guard, over) = (lease.guard(), CancellationToken::new());
                LeadershipTerm { teams: teams.clone(), mcp_url: mcp_url.clone(), guard, over }
                    .serve(&stop)
                    .await;
                continue;
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot take the lead; trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(teams.runtime.options().node_lease / 3) => {}
            _ = freed.next() => {}
        }
    }
}

/// None if another server leads.
async fn try_acquire_leadership(teams: &Teams) -> Result<Option<Lease>, TeamError> {
    // A server that stands by writes nothing.
    if teams.runtime.store().lease(LEASE).await?.is_some_and(|(_, has_lapsed)| !has_lapsed) {
        return Ok(None);
    }
    let owner = NodeId::mint(teams.runtime.store().now().await?, entropy()?);
    match teams
        .runtime
        .store()
        .try_acquire(LEASE, owner.as_str(), teams.runtime.options().node_lease)
        .await
    {
        Ok(lease) => Ok(Some(lease)),
        Err(CommitError::Lease(_)) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// The time in which this process holds the lease.
#[derive(Clone)]
struct LeadershipTerm {
    teams: Teams,
    mcp_url: String,
    guard: LeaseGuard,
    /// Cancelled at the end of the term. Everything that was started stops then.
    over: CancellationToken,
}

/// A target that is not run any more, and when to look at it again.
struct SpawnCompletion {
    target: SpawnTarget,
    again: Option<Timestamp>,
}

impl LeadershipTerm {
    async fn serve(self, stop: &CancellationToken) {
        tracing::info!("leading: starting agents that have something to do");
        let runs = TaskTracker::new();
        tokio::select! {
            () = self.keep_lease() => tracing::warn!("lost the lead"),
            () = self.lead(&runs) => {}
            () = stop.cancelled() => {}
        }
        self.over.cancel();
        runs.close();
        runs.wait().await;
        self.teams.runtime.metrics().agents_at_work.set(0);
        if stop.is_cancelled() {
            // If the release fails, the lease expires.
            let _ = self.teams.runtime.store().release(&self.guard).await;
        }
    }

    /// Returns when the lease is lost.
    async fn keep_lease(&self) {
        let runtime = &self.teams.runtime;
        let ttl = runtime.options().node_lease;
        keep_leases(runtime.store().as_ref(), slice::from_ref(&self.guard), ttl, ttl).await;
    }

    /// Never ends by itself.
    async fn lead(&self, runs: &TaskTracker) {
        let mut news = self.teams.runtime.store().hub().subscribe(HubTopic::Due(InboxItem::KIND));
        let (ends, mut ended) = mpsc::channel(ENDS);
        let mut scheduler =
            SpawnScheduler { term: self, runs, ends, queue: SpawnQueue::default(), at_work: 0 };
        while let Err(error) = scheduler.take_over().await {
            tracing::warn!(%error, "cannot see what was started; trying again");
            tokio::time::sleep(RETRY).await;
        }
        loop {
            let pause = match scheduler.turn().await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, "cannot see what waits; trying again");
                    RETRY
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause.clamp(BREATH, LONGEST)) => {}
                _ = news.next() => {}
                Some(done) = ended.recv() => scheduler.complete(done),
            }
        }
    }
}

/// The work of the leader in one term.
struct SpawnScheduler<'a> {
    term: &'a LeadershipTerm,
    runs: &'a TaskTracker,
    ends: mpsc::Sender<SpawnCompletion>,
    queue: SpawnQueue,
    at_work: usize,
}

impl SpawnScheduler<'_> {
    /// Follows the runs that earlier leaders have started.
    async fn take_over(&mut self) -> Result<(), TeamError> {
        let query = RecordQuery {
            kind: SpawnSlot::KIND,
            state: Some(SpawnSlot::TAKEN.to_owned()),
            limit: 10 * AT_ONCE,
            ..RecordQuery::default()
        };
        for record in self.term.teams.runtime.store().list(query).await? {
            let target = store::decode::<SpawnSlot>(&record)?.value.spawn_target();
            self.queue.mark_running(target.clone());
            self.spawn_agent_task(target);
        }
        Ok(())
    }

    /// Claims what is due, starts what may start, and returns the time until there is more to do.
    async fn turn(&mut self) -> Result<Duration, TeamError> {
        let teams = &self.term.teams;
        let wanted = self.claim().await?;
        let limits = &teams.limits;
        let now = teams.runtime.store().now().await?;
        for (target, awaited_by) in wanted {
            self.queue.enqueue(target, awaited_by, now);
        }
        while let Some(target) = self.queue.next(limits, now) {
            self.spawn_agent_task(target);
        }
        let due = teams.runtime.store().next_due(InboxItem::KIND).await?;
        let next = [due, self.queue.next_at(limits)].into_iter().flatten().min();
        Ok(next.map_or(LONGEST, |next| next.since(now)))
    }

    /// Claims the due inbox items. Returns their targets, each with the targets that wait for it.
    async fn claim(&self) -> Result<BTreeMap<SpawnTarget, BTreeSet<SpawnTarget>>, TeamError> {
        let teams = &self.term.teams;
        let now = teams.runtime.store().now().await?;
        // A look that finds nothing due writes nothing.
        let mut is_more =
            teams.runtime.store().next_due(InboxItem::KIND).await?.is_some_and(|due| due <= now);
        let mut targets: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        while is_more {
            let (kind, hold) = (InboxItem::KIND, teams.limits.spawn_guard);
            let claim =
                RecordClaim { kind, tenant: None, parent: None, owner: None, hold, limit: AT_ONCE };
            let commit = Commit::new().guarded_by(self.term.guard.clone()).claim(claim);
            let claimed = teams.runtime.store().commit(commit).await?.claimed;
            is_more = claimed.len() == AT_ONCE as usize;
            for record in claimed {
                let waiting: StoredDocument<InboxItem> = store::decode(&record)?;
                match SpawnTarget::of(&waiting.value) {
                    Some(target) => {
                        let awaited_by = targets.entry(target).or_default();
                        awaited_by.extend(SpawnTarget::blocked_target(&waiting.value));
                    }
                    None => self.put_aside(&waiting).await?,
                }
            }
        }
        Ok(targets)
    }

    /// Clears the due date of an item that waits for a session started for something else.
    async fn put_aside(&self, waiting: &StoredDocument<InboxItem>) -> Result<(), TeamError> {
        let mut transaction = super::team_transaction::TeamTransaction::begin(
            &self.term.teams,
            &waiting.value.tenant,
        )
        .await?;
        let mut aside = waiting.clone();
        aside.value.due_at = None;
        transaction.put(&aside)?;
        // On a conflict another writer has already handled it.
        transaction.try_commit(&self.term.teams, ()).await.map(drop)
    }

    fn spawn_agent_task(&mut self, target: SpawnTarget) {
        let (term, ends) = (self.term.clone(), self.ends.clone());
        self.at_work += 1;
        self.count();
        self.runs.spawn(async move {
            let again = term.run_agent(&target).await;
            // The receiver is gone when the term is over.
            let _ = ends.send(SpawnCompletion { target, again }).await;
        });
    }

    fn complete(&mut self, done: SpawnCompletion) {
        self.queue.release(&done.target, done.again);
        self.at_work -= 1;
        self.count();
    }

    fn count(&self) {
        self.term.teams.runtime.metrics().agents_at_work.set(self.at_work);
    }
}
