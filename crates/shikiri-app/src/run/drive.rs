//! Carries one attempt of a run: replays the journal, polls the agent, and notices when it has
//! finished, has nothing to do but wait, or must not be carried here any more.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::journal::{Journal, Mismatch, Operation, Recorded};
use shikiri_model::lease::Guard;
use shikiri_model::run::{Command, Outcome, Parent, Question, QuestionKind, Run, child_key};
use shikiri_model::time::Timestamp;
use shikiri_store::Append;
use tokio_util::sync::CancellationToken;

use super::agent::{Agent, AgentError};
use super::context::Context;
use super::outbox::Outbox;
use super::use_cases::enqueue;
use crate::app::{App, entropy};
use crate::error::AppError;
use crate::failpoint;

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum Ending {
    Finished(Outcome),
    /// Nothing to do until something comes, or until the time.
    Waiting {
        until: Option<Timestamp>,
        seen_wakes: u64,
    },
    /// This node must not write the run any more, or cannot.
    Lost(String),
}

pub(super) struct Driver {
    pub(super) app: App,
    pub(super) run: Run,
    guard: Guard,
    journal: Journal,
    pub(super) outbox: Arc<Outbox>,
    next_index: AtomicU64,
    /// How many of the run's inputs its agent has seen.
    pub(super) inputs_taken: tokio::sync::Mutex<usize>,
    cancel: CancellationToken,
    state: Mutex<State>,
}

/// A question before it has an id and a place.
pub(super) struct NewQuestion {
    pub(super) name: Option<String>,
    pub(super) kind: QuestionKind,
    pub(super) message: String,
    pub(super) schema: Value,
    pub(super) wait: Option<Duration>,
}

#[derive(Default)]
struct State {
    /// Operations that are doing something; while there are any, the run is not waiting.
    busy: usize,
    waiting: bool,
    until: Option<Timestamp>,
    /// Set once, when the attempt must end.
    stop: Option<Stop>,
}

#[derive(Clone)]
enum Stop {
    Mismatch(Mismatch),
    Lost(String),
}

impl Driver {
    pub(super) fn new(
        app: App,
        run: Run,
        guard: Guard,
        journal: Journal,
        cancel: CancellationToken,
    ) -> Arc<Self> {
        let store = Arc::clone(&app.store);
        let outbox = Outbox::new(store, run.tenant.clone(), run.stream(), vec![guard.clone()]);
        let outbox = Arc::new(outbox);
        Arc::new(Self {
            app,
            run,
            guard,
            inputs_taken: tokio::sync::Mutex::new(journal.inputs_taken()),
            journal,
            outbox,
            next_index: AtomicU64::new(0),
            cancel,
            state: Mutex::default(),
        })
    }

    /// Carries the run as far as it goes.
    pub(super) async fn carry(self: &Arc<Self>, agent: &dyn Agent) -> Ending {
        let work = agent.run(Context::new(Arc::clone(self)), self.run.input.clone());
        let result = tokio::select! {
            result = self.poll(work) => result,
            () = self.overstayed() => Some(Err(AgentError::new("CANCELLED", "did not stop in time"))),
        };
        if let Some(stop) = self.lock().stop.clone() {
            return match stop {
                Stop::Mismatch(m) => Ending::Finished(Outcome::Failed(mismatch(&m))),
                Stop::Lost(reason) => Ending::Lost(reason),
            };
        }
        if let Err(error) = self.outbox.settled().await {
            return Ending::Lost(error.to_string());
        }
        match result {
            Some(Ok(value)) => match self.journal.check_end(self.next_index.load(Ordering::SeqCst))
            {
                Ok(()) => Ending::Finished(Outcome::Completed(value)),
                Err(m) => Ending::Finished(Outcome::Failed(mismatch(&m))),
            },
            Some(Err(error)) => Ending::Finished(Outcome::Failed(error.into())),
            None => Ending::Waiting { until: self.lock().until, seen_wakes: self.run.wakes },
        }
    }

    /// Before the run is put back: whatever this attempt has not written yet it never will, or
    /// it would write beside the next attempt, under a lease that is still good.
    pub(super) async fn abandon(&self) {
        self.outbox.abandon().await;
    }

    /// Polls the agent until it returns, or has nothing left to do (None).
    async fn poll<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(value) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(value));
            }
            let state = self.lock();
            if state.stop.is_some() || (state.waiting && state.busy == 0) {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
    }

    /// Resolves when the run was asked to stop and its time to do so is over.
    async fn overstayed(&self) {
        self.cancel.cancelled().await;
        tokio::time::sleep(self.app.options.cancel_grace).await;
    }

    pub(super) fn next_index(&self) -> u64 {
        self.next_index.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) async fn recall(&self, index: u64, operation: &Operation) -> Option<Recorded> {
        match self.journal.recall(index, operation) {
            Ok(recorded) => recorded.cloned(),
            Err(mismatch) => self.stop(Stop::Mismatch(mismatch)).await,
        }
    }

    pub(super) fn doubt(&self, index: u64) -> Option<Recorded> {
        self.journal.doubt(index).cloned()
    }

    /// Queues an event without waiting for it to be durable.
    pub(super) async fn tell(&self, event: NewEvent, note: Option<String>) {
        let pushed = self.busy(self.outbox.push(event, note)).await;
        if let Err(error) = pushed {
            self.lost(error.to_string()).await
        }
    }

    /// Writes an event and waits until it is durable.
    pub(super) async fn record(&self, kind: &'static str, data: &Value) {
        failpoint::hit("journal.before_record");
        let recorded = self
            .busy(async {
                let ticket = self.outbox.push(NewEvent::from_value(kind, data), None).await?;
                self.outbox.committed(ticket).await
            })
            .await;
        failpoint::hit("journal.after_record");
        if let Err(error) = recorded {
            self.lost(error.to_string()).await
        }
    }

    pub(super) async fn ask(&self, index: u64, new: NewQuestion) {
        let asked = async {
            self.outbox.settled().await?;
            let now = self.app.store.now().await?;
            let id = QuestionId::mint(now, entropy()?);
            let expires_at = new.wait.map(|wait| now + wait);
            let NewQuestion { name, kind, message, schema, .. } = new;
            let question = Question { id, index, name, kind, message, schema, expires_at };
            let command = |_: &Run| Command::Ask(question.clone());
            let guard = Some(&self.guard);
            self.app.change_run(&self.run.tenant, &self.run.id, guard, command).await.map(drop)
        };
        self.or_stop(asked).await;
    }

    pub(super) async fn start_child(&self, index: u64, agent: &str, input: Value) {
        let started = async {
            let now = self.app.store.now().await?;
            let id = RunId::mint(now, entropy()?);
            let mut child = Run::new(id, self.run.tenant.clone(), agent.to_owned(), input, now);
            child.idempotency_key = Some(child_key(&self.run.id, index));
            child.parent = Some(Parent { run: self.run.id.clone(), index });
            let data = json!({ "index": index, "agent": agent, "child_run_id": child.id });
            let event = NewEvent::from_value("child_started", &data);
            self.outbox.settled().await?;
            let (tenant, stream) = (self.run.tenant.clone(), self.run.stream());
            let commit = enqueue(&child, now)?
                .append(Append::to_existing(tenant, stream, vec![event]))
                .guarded_by(self.guard.clone());
            failpoint::hit("journal.before_record");
            self.app.store.commit(commit).await?;
            failpoint::hit("journal.after_record");
            Ok::<_, AppError>(())
        };
        self.or_stop(started).await;
    }

    pub(super) async fn now(&self) -> Timestamp {
        match self.busy(self.app.store.now()).await {
            Ok(now) => now,
            Err(error) => self.lost(error.to_string()).await,
        }
    }

    async fn or_stop(&self, work: impl Future<Output = Result<(), AppError>>) {
        if let Err(error) = self.busy(work).await {
            self.lost(error.to_string()).await
        }
    }

    /// While `work` is under way the run is not waiting.
    pub(super) async fn busy<T>(&self, work: impl Future<Output = T>) -> T {
        let _busy = Busy::new(self);
        work.await
    }

    /// Gives up this operation's place: the replay after whatever it waits for will take it.
    pub(super) async fn wait<T>(&self, until: Option<Timestamp>) -> T {
        {
            let mut state = self.lock();
            state.waiting = true;
            state.until = [state.until, until].into_iter().flatten().min();
        }
        self.never().await
    }

    pub(super) async fn never<T>(&self) -> T {
        std::future::pending().await
    }

    /// This attempt cannot go on here.
    pub(super) async fn lost<T>(&self, reason: String) -> T {
        self.stop(Stop::Lost(reason)).await
    }

    async fn stop<T>(&self, stop: Stop) -> T {
        self.lock().stop.get_or_insert(stop);
        // Only a poll of the agent notices, and this future is being polled by it right now.
        self.never().await
    }

    pub(super) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Busy<'a>(&'a Driver);

impl<'a> Busy<'a> {
    fn new(driver: &'a Driver) -> Self {
        driver.lock().busy += 1;
        Self(driver)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
    }
}

fn mismatch(mismatch: &Mismatch) -> shikiri_model::run::RunError {
    shikiri_model::run::RunError::new("JOURNAL_MISMATCH", mismatch.to_string())
}
