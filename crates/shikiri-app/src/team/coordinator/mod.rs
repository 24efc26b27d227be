//! The coordinator: starts agents that have something to do and nobody there to do it.
//!
//! One among all servers leads, by a lease; the others stand by. What waits for an agent that may
//! be started is due at once, so the leader hears of it as it comes. It claims it for as long as
//! the spawn guard: what still waits then comes up again, whoever leads by then.
//!
//! What was started is written down in `Seat`s before it is started. A new leader follows the runs
//! that it finds there, and ends the sessions of those that are over.

mod left;
mod prompt;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shikiri_model::ids::NodeId;
use shikiri_model::lease::{Guard, Lease};
use shikiri_model::record::{Claim, Document, RecordQuery, Stored};
use shikiri_model::team::{Agenda, Errand, Seat, Waiting};
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, CommitError, StoreError, StoreExt, Topic, store};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::TeamError;
use crate::app::{App, entropy};

/// Whoever holds it leads.
const LEASE: &str = "coordinator";
const AT_ONCE: u32 = 50;
/// Time that is bought by looking less often than something changes.
const BREATH: Duration = Duration::from_millis(5);
/// It is looked at least so often: the clock of the store may go differently from ours.
const LONGEST: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(1);
/// Ends that may wait to be heard of.
const ENDS: usize = 64;

/// A coordinator of this process. Dropping it does not stop it; `leave` does.
pub struct Coordinator {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Coordinator {
    /// Stands by, and leads once nobody else does. The agents that it starts work in this process
    /// and find their tools at `door`, the address of its MCP door.
    pub fn start(app: App, door: String) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(stand_by(app, door, stop.clone()));
        Self { stop, task }
    }

    /// Stops what it has started and gives the lead up, so that another need not wait.
    pub async fn leave(self) {
        self.stop.cancel();
        // A panic has been told already; there is nothing left to stop.
        let _ = self.task.await;
    }
}

async fn stand_by(app: App, door: String, stop: CancellationToken) {
    let mut freed = app.store.hub().subscribe(Topic::Lease(LEASE.to_owned()));
    while !stop.is_cancelled() {
        match take_lead(&app).await {
            Ok(Some(lease)) => {
                let (guard, over) = (lease.guard(), CancellationToken::new());
                Term { app: app.clone(), door: door.clone(), guard, over }.serve(&stop).await;
                continue;
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot take the lead; trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(app.options.node_lease / 3) => {}
            _ = freed.next() => {}
        }
    }
}

/// None if another one leads.
async fn take_lead(app: &App) -> Result<Option<Lease>, TeamError> {
    // Whoever only waits writes nothing.
    if app.store.lease(LEASE).await?.is_some_and(|(_, has_lapsed)| !has_lapsed) {
        return Ok(None);
    }
    let owner = NodeId::mint(app.store.now().await?, entropy()?);
    match app.store.try_acquire(LEASE, owner.as_str(), app.options.node_lease).await {
        Ok(lease) => Ok(Some(lease)),
        Err(CommitError::Lease(_)) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// The time under one lease.
#[derive(Clone)]
struct Term {
    app: App,
    door: String,
    guard: Guard,
    /// Cancelled when it is over: what was started stops.
    over: CancellationToken,
}

/// An errand that is carried out no more, and when to look at it again.
struct Done {
    errand: Errand,
    again: Option<Timestamp>,
}

impl Term {
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
        self.app.counters().agents_at_work.set(0);
        if stop.is_cancelled() {
            // Otherwise it lapses.
            let _ = self.app.store.release(&self.guard).await;
        }
    }

    /// Returns when the lease is lost.
    async fn keep_lease(&self) {
        let ttl = self.app.options.node_lease;
        let mut renewed = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(ttl / 3).await;
            match self.app.store.renew(&self.guard, ttl).await {
                Ok(_) => renewed = tokio::time::Instant::now(),
                Err(CommitError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_)))
                    if renewed.elapsed() < ttl => {}
                Err(_) => return,
            }
        }
    }

    /// Never ends by itself.
    async fn lead(&self, runs: &TaskTracker) {
        let mut news = self.app.store.hub().subscribe(Topic::Due(Waiting::KIND));
        let (ends, mut ended) = mpsc::channel(ENDS);
        let mut office = Office { term: self, runs, ends, agenda: Agenda::default(), at_work: 0 };
        while let Err(error) = office.take_over().await {
            tracing::warn!(%error, "cannot see what was started; trying again");
            tokio::time::sleep(RETRY).await;
        }
        loop {
            let pause = match office.turn().await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, "cannot see what waits; trying again");
                    RETRY
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause.clamp(BREATH, LONGEST)) => {}
                _ = news.next() => {}
                Some(done) = ended.recv() => office.is_done(done),
            }
        }
    }
}

/// What a leader has on its table.
struct Office<'a> {
    term: &'a Term,
    runs: &'a TaskTracker,
    ends: mpsc::Sender<Done>,
    agenda: Agenda,
    at_work: usize,
}

impl Office<'_> {
    /// What leaders before this one have started.
    async fn take_over(&mut self) -> Result<(), TeamError> {
        let query = RecordQuery {
            kind: Seat::KIND,
            state: Some(Seat::TAKEN.to_owned()),
            limit: 10 * AT_ONCE,
            ..RecordQuery::default()
        };
        for record in self.term.app.store.list(query).await? {
            let errand = store::decode::<Seat>(&record)?.value.errand();
            self.agenda.keep(errand.clone());
            self.attend(errand);
        }
        Ok(())
    }

    /// Looks at what has come, starts whom it can, and tells how long there is nothing to do.
    async fn turn(&mut self) -> Result<Duration, TeamError> {
        let app = &self.term.app;
        let wanted = self.claim().await?;
        let limits = &app.options.team;
        let now = app.store.now().await?;
        for (errand, awaited_by) in wanted {
            self.agenda.want(errand, awaited_by, now);
        }
        while let Some(errand) = self.agenda.next(limits, now) {
            self.attend(errand);
        }
        let due = app.store.next_due(Waiting::KIND).await?;
        let next = [due, self.agenda.next_at(limits)].into_iter().flatten().min();
        Ok(next.map_or(LONGEST, |next| next.since(now)))
    }

    /// Errands for which something has come up, with those that wait for them.
    async fn claim(&self) -> Result<BTreeMap<Errand, BTreeSet<Errand>>, TeamError> {
        let app = &self.term.app;
        let now = app.store.now().await?;
        // Whoever only looks writes nothing.
        let mut is_more = app.store.next_due(Waiting::KIND).await?.is_some_and(|due| due <= now);
        let mut errands: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        while is_more {
            let (kind, hold) = (Waiting::KIND, app.options.team.spawn_guard);
            let claim =
                Claim { kind, tenant: None, parent: None, owner: None, hold, limit: AT_ONCE };
            let commit = Commit::new().guarded_by(self.term.guard.clone()).claim(claim);
            let claimed = app.store.commit(commit).await?.claimed;
            is_more = claimed.len() == AT_ONCE as usize;
            for record in claimed {
                let waiting: Stored<Waiting> = store::decode(&record)?;
                match Errand::of(&waiting.value) {
                    Some(errand) => {
                        let awaited_by = errands.entry(errand).or_default();
                        awaited_by.extend(Errand::awaiting(&waiting.value));
                    }
                    None => self.put_aside(&waiting).await?,
                }
            }
        }
        Ok(errands)
    }

    /// It waits for a session that is started for something else.
    async fn put_aside(&self, waiting: &Stored<Waiting>) -> Result<(), TeamError> {
        let mut draft = super::draft::Draft::begin(&self.term.app, &waiting.value.tenant).await?;
        let mut aside = waiting.clone();
        aside.value.due_at = None;
        draft.put(&aside)?;
        // If somebody was first, it has been seen.
        draft.settle(&self.term.app, ()).await.map(drop)
    }

    fn attend(&mut self, errand: Errand) {
        let (term, ends) = (self.term.clone(), self.ends.clone());
        self.at_work += 1;
        self.count();
        self.runs.spawn(async move {
            let again = term.attend(&errand).await;
            // Nobody hears of it when the term is over.
            let _ = ends.send(Done { errand, again }).await;
        });
    }

    fn is_done(&mut self, done: Done) {
        self.agenda.free(&done.errand, done.again);
        self.at_work -= 1;
        self.count();
    }

    fn count(&self) {
        self.term.app.counters().agents_at_work.set(self.at_work);
    }
}
