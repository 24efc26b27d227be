//! Executes one attempt of a run: replays the journal, polls the agent, and notices when the agent
//! has finished, can only wait, or must not continue on this node.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::journal::{Journal, JournalEntry, JournalMismatch, JournalOperation};
use shikiri_model::lease::LeaseGuard;
use shikiri_model::run::{
    QuestionKind, Run, RunCommand, RunErrorCode, RunEventName, RunOutcome, RunParent, RunQuestion,
    child_key,
};
use shikiri_model::time::Timestamp;
use shikiri_store::StreamAppend;
use tokio_util::sync::CancellationToken;

use super::agent::{AgentError, DurableAgent};
use super::outbox::Outbox;
use super::run_context::RunContext;
use super::use_cases::enqueue;
use crate::error::AppError;
use crate::failpoint;
use crate::runtime::{Runtime, entropy};

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum RunAttemptOutcome {
    Finished(RunOutcome),
    /// The run waits for an event, or until a time.
    Waiting {
        until: Option<Timestamp>,
        seen_wakes: u64,
    },
    /// This node must not write the run any more, or cannot.
    Lost(String),
}

pub(super) struct RunDriver {
    pub(super) runtime: Runtime,
    pub(super) run: Run,
    guard: LeaseGuard,
    journal: Journal,
    pub(super) outbox: Arc<Outbox>,
    next_index: AtomicU64,
    /// How many of the run's inputs its agent has seen.
    pub(super) inputs_taken: tokio::sync::Mutex<usize>,
    cancel: CancellationToken,
    state: Mutex<RunAttemptState>,
}

/// A question before it has an id and an index.
pub(super) struct NewRunQuestion {
    pub(super) name: Option<String>,
    pub(super) kind: QuestionKind,
    pub(super) message: String,
    pub(super) schema: Value,
    pub(super) wait: Option<Duration>,
}

#[derive(Default)]
struct RunAttemptState {
    /// The number of operations at work. While there are any, the run is not waiting.
    busy: usize,
    waiting: bool,
    until: Option<Timestamp>,
    /// Set once, when the attempt must end.
    stop: Option<AttemptStopReason>,
}

#[derive(Clone)]
enum AttemptStopReason {
    Mismatch(JournalMismatch),
    Lost(String),
}

impl RunDriver {
    pub(super) fn new(
        runtime: Runtime,
        run: Run,
        guard: LeaseGuard,
        journal: Journal,
        cancel: CancellationToken,
    ) -> Arc<Self> {
        let store = Arc::clone(&runtime.store);
        let outbox = Outbox::new(store, run.tenant.clone(), run.stream(), vec![guard.clone()]);
        let outbox = Arc::new(outbox);
        Arc::new(Self {
            runtime,
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

    /// Executes the run until it ends, waits or is lost.
    pub(super) async fn execute_attempt(
        self: &Arc<Self>,
        agent: &dyn DurableAgent,
    ) -> RunAttemptOutcome {
        let work = agent.run(RunContext::new(Arc::clone(self)), self.run.input.clone());
        let result = tokio::select! {
            result = self.poll(work) => result,
            () = self.overstayed() => Some(Err(AgentError::new(RunErrorCode::Cancelled.as_str(), "did not stop in time"))),
        };
        if let Some(stop) = self.lock().stop.clone() {
            return match stop {
                AttemptStopReason::Mismatch(m) => {
                    RunAttemptOutcome::Finished(RunOutcome::Failed(mismatch(&m)))
                }
                AttemptStopReason::Lost(reason) => RunAttemptOutcome::Lost(reason),
            };
        }
        if let Err(error) = self.outbox.wait_all_committed().await {
            return RunAttemptOutcome::Lost(error.to_string());
        }
        match result {
            Some(Ok(value)) => match self.journal.check_end(self.next_index.load(Ordering::SeqCst))
            {
                Ok(()) => RunAttemptOutcome::Finished(RunOutcome::Completed(value)),
                Err(m) => RunAttemptOutcome::Finished(RunOutcome::Failed(mismatch(&m))),
            },
            Some(Err(error)) => RunAttemptOutcome::Finished(RunOutcome::Failed(error.into())),
            None => {
                RunAttemptOutcome::Waiting { until: self.lock().until, seen_wakes: self.run.wakes }
            }
        }
    }

    /// Called before the run is put back in the queue. Drops what this attempt has not written yet:
    /// its lease is still good, so it could write beside the next attempt.
    pub(super) async fn abandon(&self) {
        self.outbox.abandon().await;
    }

    /// Polls the agent until it returns or can only wait (None).
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
        tokio::time::sleep(self.runtime.options.cancel_grace).await;
    }

    pub(super) fn next_index(&self) -> u64 {
        self.next_index.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) async fn recall(
        &self,
        index: u64,
        operation: &JournalOperation,
    ) -> Option<JournalEntry> {
        match self.journal.recall(index, operation) {
            Ok(recorded) => recorded.cloned(),
            Err(mismatch) => self.stop(AttemptStopReason::Mismatch(mismatch)).await,
        }
    }

    pub(super) fn step_confirmation(&self, index: u64) -> Option<JournalEntry> {
        self.journal.step_confirmation(index).cloned()
    }

    /// Queues an event without waiting for it to be durable.
    pub(super) async fn push_event(&self, event: NewEvent, note: Option<String>) {
        let pushed = self.busy(self.outbox.push(event, note)).await;
        if let Err(error) = pushed {
            self.abort_attempt(error.to_string()).await
        }
    }

    /// Writes an event and waits until it is durable.
    pub(super) async fn record(&self, name: RunEventName, data: &Value) {
        failpoint::hit("journal.before_record");
        let recorded = self
            .busy(async {
                let ticket =
                    self.outbox.push(NewEvent::from_value(name.as_str(), data), None).await?;
                self.outbox.wait_committed(ticket).await
            })
            .await;
        failpoint::hit("journal.after_record");
        if let Err(error) = recorded {
            self.abort_attempt(error.to_string()).await
        }
    }

    pub(super) async fn ask(&self, index: u64, new: NewRunQuestion) {
        let asked = async {
            self.outbox.wait_all_committed().await?;
            let now = self.runtime.store.now().await?;
            let id = QuestionId::mint(now, entropy()?);
            let expires_at = new.wait.map(|wait| now + wait);
            let NewRunQuestion { name, kind, message, schema, .. } = new;
            let question = RunQuestion { id, index, name, kind, message, schema, expires_at };
            let command = |_: &Run| RunCommand::Ask(question.clone());
            let guard = Some(&self.guard);
            self.runtime.change_run(&self.run.tenant, &self.run.id, guard, command).await.map(drop)
        };
        self.or_stop(asked).await;
    }

    pub(super) async fn start_child(&self, index: u64, agent: &str, input: Value) {
        let started = async {
            let now = self.runtime.store.now().await?;
            let id = RunId::mint(now, entropy()?);
            let mut child = Run::new(id, self.run.tenant.clone(), agent.to_owned(), input, now);
            child.idempotency_key = Some(child_key(&self.run.id, index));
            child.parent = Some(RunParent { run: self.run.id.clone(), index });
            let data = json!({ "index": index, "agent": agent, "child_run_id": child.id });
            let event = NewEvent::from_value(RunEventName::ChildStarted.as_str(), &data);
            self.outbox.wait_all_committed().await?;
            let (tenant, stream) = (self.run.tenant.clone(), self.run.stream());
            let commit = enqueue(&child, now)?
                .append(StreamAppend::to_existing(tenant, stream, vec![event]))
                .guarded_by(self.guard.clone());
            failpoint::hit("journal.before_record");
            self.runtime.store.commit(commit).await?;
            failpoint::hit("journal.after_record");
            Ok::<_, AppError>(())
        };
        self.or_stop(started).await;
    }

    pub(super) async fn now(&self) -> Timestamp {
        match self.busy(self.runtime.store.now()).await {
            Ok(now) => now,
            Err(error) => self.abort_attempt(error.to_string()).await,
        }
    }

    async fn or_stop(&self, work: impl Future<Output = Result<(), AppError>>) {
        if let Err(error) = self.busy(work).await {
            self.abort_attempt(error.to_string()).await
        }
    }

    /// While `work` is under way the run is not waiting.
    pub(super) async fn busy<T>(&self, work: impl Future<Output = T>) -> T {
        let _busy = DriverBusyGuard::new(self);
        work.await
    }

    /// Marks the run as waiting. Never resolves: a replay continues from here.
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

    /// Ends this attempt, which cannot continue on this node.
    pub(super) async fn abort_attempt<T>(&self, reason: String) -> T {
        self.stop(AttemptStopReason::Lost(reason)).await
    }

    async fn stop<T>(&self, stop: AttemptStopReason) -> T {
        self.lock().stop.get_or_insert(stop);
        // `poll` notices the stop: the agent is polling this future right now.
        self.never().await
    }

    pub(super) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    fn lock(&self) -> MutexGuard<'_, RunAttemptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct DriverBusyGuard<'a>(&'a RunDriver);

impl<'a> DriverBusyGuard<'a> {
    fn new(driver: &'a RunDriver) -> Self {
        driver.lock().busy += 1;
        Self(driver)
    }
}

impl Drop for DriverBusyGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
    }
}

fn mismatch(mismatch: &JournalMismatch) -> shikiri_model::run::RunError {
    shikiri_model::run::RunError::new(RunErrorCode::JournalMismatch.as_str(), mismatch.to_string())
}
