//! What a running agent writes to its stream, in order.
//!
//! The agent runs ahead: its events are queued while it continues. At most one commit of a run is
//! under way, so events that are queued meanwhile go into the next commit together. A full outbox
//! makes the agent wait. A caller that needs durability waits for its ticket.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shikiri_model::event::{NewEvent, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::LeaseGuard;
use shikiri_store::{Commit, CommitError, Store, StoreError, StreamAppend};
use tokio::sync::Notify;

use crate::failpoint;

/// Bytes of events that may wait for the store.
const MAX_WAITING: usize = 1024 * 1024;
/// Pause before a write is tried again while the store is unavailable.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

pub struct Outbox {
    store: Arc<dyn Store>,
    tenant: TenantId,
    stream: StreamId,
    /// The stream of steps, which are written together with the events that report them.
    journal: Option<StreamId>,
    /// The leases that guard every write.
    guards: Vec<LeaseGuard>,
    state: Mutex<OutboxState>,
    changed: Notify,
}

#[derive(Default)]
struct OutboxState {
    events: Vec<NewEvent>,
    steps: Vec<NewEvent>,
    bytes: usize,
    note: Option<String>,
    pushed: u64,
    committed: u64,
    flushing: bool,
    /// Set once, when this run must not be written any more.
    lost: Option<CommitError>,
}

/// Names a queued event. `wait_committed` resolves once everything up to it is durable.
#[derive(Clone, Copy, Debug)]
pub struct OutboxTicket(u64);

impl Outbox {
    pub fn new(
        store: Arc<dyn Store>,
        tenant: TenantId,
        stream: StreamId,
        guards: Vec<LeaseGuard>,
    ) -> Self {
        let state = Mutex::default();
        Self { store, tenant, stream, journal: None, guards, state, changed: Notify::new() }
    }

    #[must_use]
    pub fn with_journal(self, journal: StreamId) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// Queues an event. Waits only while the outbox is full.
    pub async fn push(
        self: &Arc<Self>,
        event: NewEvent,
        note: Option<String>,
    ) -> Result<OutboxTicket, CommitError> {
        let mut new = Some((event, note));
        self.with_room(|state| new.take().map(|(event, note)| self.queue(state, event, note))).await
    }

    /// Queues several events in order, as `push` does.
    pub async fn push_all(
        self: &Arc<Self>,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Result<(), CommitError> {
        let mut events = events.into_iter().peekable();
        if events.peek().is_none() {
            return Ok(());
        }
        self.with_room(|state| {
            while state.bytes < MAX_WAITING {
                let Some(event) = events.next() else { return Some(()) };
                self.queue(state, event, None);
            }
            events.peek().is_none().then_some(())
        })
        .await
    }

    /// Queues a step with the events that report it: they are written together or not at all.
    pub async fn push_step(
        self: &Arc<Self>,
        events: Vec<NewEvent>,
        step: NewEvent,
        note: Option<String>,
    ) -> Result<OutboxTicket, CommitError> {
        let mut new = Some((events, step, note));
        self.with_room(|state| {
            let (events, step, note) = new.take()?;
            state.bytes += step.size() + events.iter().map(NewEvent::size).sum::<usize>();
            // The step counts as one pushed event.
            state.pushed += 1 + events.len() as u64;
            state.events.extend(events);
            state.steps.push(step);
            if note.is_some() {
                state.note = note;
            }
            self.start_flush(state);
            Some(OutboxTicket(state.pushed))
        })
        .await
    }

    /// Calls `put` as soon as there is room, and again until it returns a value.
    async fn with_room<T>(
        &self,
        mut put: impl FnMut(&mut OutboxState) -> Option<T>,
    ) -> Result<T, CommitError> {
        self.when(|state| match &state.lost {
            Some(lost) => Some(Err(lost.clone())),
            None if state.bytes < MAX_WAITING => put(state).map(Ok),
            None => None,
        })
        .await
    }

    /// Waits until `answer` returns a value. It is called again after every change.
    async fn when<T>(&self, mut answer: impl FnMut(&mut OutboxState) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let answered = answer(&mut self.lock());
            if let Some(answered) = answered {
                return answered;
            }
            changed.await;
        }
    }

    fn queue(
        self: &Arc<Self>,
        state: &mut OutboxState,
        event: NewEvent,
        note: Option<String>,
    ) -> OutboxTicket {
        state.bytes += event.size();
        state.events.push(event);
        state.pushed += 1;
        if note.is_some() {
            state.note = note;
        }
        self.start_flush(state);
        OutboxTicket(state.pushed)
    }

    fn start_flush(self: &Arc<Self>, state: &mut OutboxState) {
        if !std::mem::replace(&mut state.flushing, true) {
            tokio::spawn(Arc::clone(self).flush());
        }
    }

    /// Replaces the stream's note, in the commit of the next events or in one of its own.
    pub fn note(self: &Arc<Self>, note: String) {
        let mut state = self.lock();
        state.note = Some(note);
        self.start_flush(&mut state);
    }

    /// Waits until the ticket's event is durable.
    pub async fn wait_committed(&self, ticket: OutboxTicket) -> Result<(), CommitError> {
        self.when(|state| match &state.lost {
            _ if state.committed >= ticket.0 => Some(Ok(())),
            Some(lost) => Some(Err(lost.clone())),
            None => None,
        })
        .await
    }

    /// Waits until all pushed events are durable.
    pub async fn wait_all_committed(&self) -> Result<(), CommitError> {
        let last = OutboxTicket(self.lock().pushed);
        self.wait_committed(last).await
    }

    /// Waits up to `max_wait` for pushed events to be written, then gives up the rest.
    pub async fn give_up(&self, max_wait: Duration) {
        let _ = tokio::time::timeout(max_wait, self.wait_all_committed()).await;
        self.abandon().await;
    }

    /// Gives up the queued events, and returns when no commit is under way.
    pub(super) async fn abandon(&self) {
        self.when(|state| {
            state.lost.get_or_insert_with(|| StoreError::unavailable("given up").into());
            (!state.flushing).then_some(())
        })
        .await;
    }

    async fn flush(self: Arc<Self>) {
        loop {
            let (events, steps, note) = {
                let mut state = self.lock();
                let is_empty =
                    state.events.is_empty() && state.steps.is_empty() && state.note.is_none();
                if is_empty || state.lost.is_some() {
                    state.flushing = false;
                    drop(state);
                    return self.changed.notify_waiters();
                }
                state.bytes = 0;
                let events = std::mem::take(&mut state.events);
                (events, std::mem::take(&mut state.steps), state.note.take())
            };
            let count = (events.len() + steps.len()) as u64;
            let result = self.write(events, steps, note).await;
            let mut state = self.lock();
            match result {
                Ok(()) => state.committed += count,
                Err(error) => {
                    state.lost.get_or_insert(error);
                }
            }
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// If the store is unavailable, nothing was written, so trying again is safe. That ends when
    /// the store is back or the lease is lost. A write with an unknown outcome must not be tried
    /// again.
    async fn write(
        &self,
        events: Vec<NewEvent>,
        steps: Vec<NewEvent>,
        note: Option<String>,
    ) -> Result<(), CommitError> {
        let append = StreamAppend {
            tenant: self.tenant.clone(),
            stream: self.stream.clone(),
            create: false,
            events,
            note,
            close: false,
        };
        let mut commit = Commit { guards: self.guards.clone(), ..Commit::new() }.append(append);
        if let Some(journal) = self.journal.clone().filter(|_| !steps.is_empty()) {
            commit = commit.append(StreamAppend::new(self.tenant.clone(), journal, steps));
        }
        loop {
            failpoint::hit("outbox.before_commit");
            match self.store.commit(commit.clone()).await {
                Ok(_) => {
                    failpoint::hit("outbox.after_commit");
                    return Ok(());
                }
                Err(CommitError::Store(StoreError::Unavailable(_))) if !self.is_lost() => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn is_lost(&self) -> bool {
        self.lock().lost.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
