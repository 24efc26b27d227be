//! What a running agent writes to its stream, in order.
//!
//! The agent runs ahead: its events are handed to the store while it goes on, at most one commit
//! of a run being under way, so that everything told meanwhile goes into the next one together.
//! A full outbox makes the agent wait. Whoever needs durability waits for its ticket.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shikiri_model::event::{NewEvent, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::Guard;
use shikiri_store::{Append, Commit, CommitError, Store, StoreError};
use tokio::sync::Notify;

use crate::failpoint;

/// Bytes that may wait for the store.
const MAX_WAITING: usize = 1024 * 1024;
/// Pause before a refused write is tried again; the node's lease ends the trying.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Outbox {
    store: Arc<dyn Store>,
    tenant: TenantId,
    stream: StreamId,
    /// Where steps are written, together with the events that tell of them.
    journal: Option<StreamId>,
    /// Leases under which it writes.
    guards: Vec<Guard>,
    state: Mutex<State>,
    moved: Notify,
}

#[derive(Default)]
struct State {
    waiting: Vec<NewEvent>,
    steps: Vec<NewEvent>,
    bytes: usize,
    note: Option<String>,
    pushed: u64,
    committed: u64,
    flushing: bool,
    /// Set once, when this run must not be written any more.
    lost: Option<CommitError>,
}

/// Resolves, given to `committed`, once everything up to it is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

impl Outbox {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        tenant: TenantId,
        stream: StreamId,
        guards: Vec<Guard>,
    ) -> Self {
        let state = Mutex::default();
        Self { store, tenant, stream, journal: None, guards, state, moved: Notify::new() }
    }

    #[must_use]
    pub(crate) fn with_journal(self, journal: StreamId) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// Queues an event; waits only while too much is queued already.
    pub(crate) async fn push(
        self: &Arc<Self>,
        event: NewEvent,
        note: Option<String>,
    ) -> Result<Ticket, CommitError> {
        let mut new = Some((event, note));
        self.with_room(|state| new.take().map(|(event, note)| self.queue(state, event, note))).await
    }

    /// Queues several in a row, as `push` does.
    pub(crate) async fn push_all(
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

    /// Queues a step with the events that tell of it: they are written together or not at all.
    pub(crate) async fn push_step(
        self: &Arc<Self>,
        events: Vec<NewEvent>,
        step: NewEvent,
        note: Option<String>,
    ) -> Result<Ticket, CommitError> {
        let mut new = Some((events, step, note));
        self.with_room(|state| {
            let (events, step, note) = new.take()?;
            state.bytes += step.size() + events.iter().map(NewEvent::size).sum::<usize>();
            // The step counts as one that was pushed.
            state.pushed += 1 + events.len() as u64;
            state.waiting.extend(events);
            state.steps.push(step);
            if note.is_some() {
                state.note = note;
            }
            self.start_flush(state);
            Some(Ticket(state.pushed))
        })
        .await
    }

    /// Does something as soon as there is room for more; again, while it gives nothing.
    async fn with_room<T>(
        &self,
        mut put: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, CommitError> {
        self.when(|state| match &state.lost {
            Some(lost) => Some(Err(lost.clone())),
            None if state.bytes < MAX_WAITING => put(state).map(Ok),
            None => None,
        })
        .await
    }

    /// Waits until there is an answer; it is asked for again whenever something has moved.
    async fn when<T>(&self, mut answer: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let answered = answer(&mut self.lock());
            if let Some(answered) = answered {
                return answered;
            }
            moved.await;
        }
    }

    fn queue(self: &Arc<Self>, state: &mut State, event: NewEvent, note: Option<String>) -> Ticket {
        state.bytes += event.size();
        state.waiting.push(event);
        state.pushed += 1;
        if note.is_some() {
            state.note = note;
        }
        self.start_flush(state);
        Ticket(state.pushed)
    }

    fn start_flush(self: &Arc<Self>, state: &mut State) {
        if !std::mem::replace(&mut state.flushing, true) {
            tokio::spawn(Arc::clone(self).flush());
        }
    }

    /// Replaces the stream's note, with the next events or without any.
    pub(crate) fn note(self: &Arc<Self>, note: String) {
        let mut state = self.lock();
        state.note = Some(note);
        self.start_flush(&mut state);
    }

    /// Waits until the ticket's event is durable.
    pub(crate) async fn committed(&self, ticket: Ticket) -> Result<(), CommitError> {
        self.when(|state| match &state.lost {
            _ if state.committed >= ticket.0 => Some(Ok(())),
            Some(lost) => Some(Err(lost.clone())),
            None => None,
        })
        .await
    }

    /// Waits until all that was pushed is durable.
    pub(crate) async fn settled(&self) -> Result<(), CommitError> {
        let last = Ticket(self.lock().pushed);
        self.committed(last).await
    }

    /// Waits a while for what was pushed, and gives up the rest.
    pub(crate) async fn give_up(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.settled()).await;
        self.abandon().await;
    }

    /// Gives up what waits, and returns when nothing is under way any more.
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
                let nothing =
                    state.waiting.is_empty() && state.steps.is_empty() && state.note.is_none();
                if nothing || state.lost.is_some() {
                    state.flushing = false;
                    drop(state);
                    return self.moved.notify_waiters();
                }
                state.bytes = 0;
                let events = std::mem::take(&mut state.waiting);
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
            self.moved.notify_waiters();
        }
    }

    /// Nothing was written when the store is unavailable, so trying again is safe; it ends when
    /// the store is back or the lease is gone. An unknown outcome must not be tried again.
    async fn write(
        &self,
        events: Vec<NewEvent>,
        steps: Vec<NewEvent>,
        note: Option<String>,
    ) -> Result<(), CommitError> {
        let append = Append {
            tenant: self.tenant.clone(),
            stream: self.stream.clone(),
            create: false,
            events,
            note,
            close: false,
        };
        let mut commit = Commit { guards: self.guards.clone(), ..Commit::new() }.append(append);
        if let Some(journal) = self.journal.clone().filter(|_| !steps.is_empty()) {
            commit = commit.append(Append::new(self.tenant.clone(), journal, steps));
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
