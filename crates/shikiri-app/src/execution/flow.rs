//! An execution from the request to the end, in ten steps:
//!
//!  1. request      what was asked is well-formed, or it is the same request again
//!  2. checks       tenant, conversation, model, servers, skills and tokens are there
//!  3. lock         the conversation is this execution's, under a lease with a fence
//!  4. context      everything that the turn needs, in one place
//!  5. options      the engine's order is written
//!  6. engine run   the engine works, until it ends or its time does
//!  7. messages     each thing it tells becomes events and a message that is kept
//!  8. tools        each tool is followed from its call to its end
//!  9. results      how it ended, what it cost, what the conversation is called
//! 10. commit       all of it at once, and with it the lock is free
//!
//! Steps 1 to 3 are the caller's, who is told what is wrong. From then on the worker carries the
//! execution, whether or not anybody listens.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::event::NewEvent;
use shikiri_model::execution::{EngineMessage, Expected, Processor, UsageRow};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::Guard;
use shikiri_model::record::Stored;
use shikiri_model::run::Run;
use shikiri_model::time::Timestamp;
use shikiri_store::CommitError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::conclude::{Report, title};
use super::engine::{EngineError, Order, Server};
use super::journal::{STEP, journal_of};
use super::lock::Locked;
use super::options::Prepared;
use super::request::{Means, NewExecution};
use super::told::{Kept, Told, Word};
use crate::app::App;
use crate::error::AppError;
use crate::gate::limits::Slot;
use crate::run::Outbox;
use crate::storage::StorageExcess;
use crate::tools::{Door, ToolNews};

/// How long an engine that was asked to stop may take to tell what it spent.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Messages taken from the engine at a time.
const TAKEN_AT_ONCE: usize = 64;

impl App {
    /// Starts one turn of a conversation; with a known idempotency key, gives the one that has it.
    pub async fn execute(
        &self,
        tenant: &TenantId,
        request: NewExecution,
    ) -> Result<Stored<Run>, AppError> {
        self.execute_with(tenant, request, None).await
    }

    /// The same, with one more server that is for this execution alone and is written nowhere.
    pub(crate) async fn execute_with(
        &self,
        tenant: &TenantId,
        request: NewExecution,
        door: Option<Server>,
    ) -> Result<Stored<Run>, AppError> {
        // 1. request
        request.check()?;
        if let Some(known) = self.known_execution(tenant, &request).await? {
            return Ok(known);
        }
        // 2. checks
        let means = self.means(tenant, &request, door.as_ref()).await?;
        self.check_storage(&means.tenant, request.user_input.len() as u64).await?;
        // 3. lock
        self.start_under_lock(tenant, &request, means, door.as_ref()).await
    }
}

/// What a worker needs to carry an execution that was started.
pub(crate) struct Errand {
    pub(super) means: Means,
    pub(super) prompt: String,
    /// Another process has begun it.
    pub(super) taken_up: bool,
    /// The tenant's place for one execution.
    pub(super) slot: Slot,
}

/// Whoever can end an execution besides its engine.
pub(crate) struct Stops {
    /// Somebody wants it stopped.
    pub(crate) cancel: CancellationToken,
    /// This node is stopping, or is no node any more.
    pub(crate) lost: CancellationToken,
}

/// Why an engine was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    Cancelled,
    Timeout,
    /// The node stops, or has lost the conversation.
    Interrupted,
    /// What it wrote brought its tenant over the limit of what may be stored.
    OverQuota(StorageExcess),
}

/// Steps 4 to 10, in the worker.
pub(crate) async fn carry(
    app: &App,
    started: &Stored<Run>,
    errand: Errand,
    node: Guard,
    lock: Guard,
    stops: Stops,
) -> Result<(), AppError> {
    // 4. context
    let taken_up = errand.taken_up;
    let mut context = Context::new(app, started, errand, node, lock, &stops);
    // 5. options
    let resume = context.means.conversation.value.session_id.clone();
    let prepared = app.order(&context.means, &context.prompt, resume.clone(), &stops.cancel);
    let Prepared { mut order, left_out, tool_news, door } = prepared.await?;
    context.means.unreachable.extend(left_out);
    context.door = door;
    context.tool_news = tool_news;
    if context.means.engine.is_native() {
        let begun = taken_up.then_some(&started.value);
        order.memory = app.memory(&context.means, resume.as_deref(), begun).await?;
    } else if let Some(session) = resume {
        app.unpack(&context.means, &order.home, &session).await?;
    }
    context.expect(&order);
    if taken_up {
        context.catch_up(&order.memory.spent).await?;
    }
    let carried = context.work(started, order, &stops).await;
    if carried.is_err() {
        // Whoever ends it now bills what is written: let that be all, if the store is there.
        context.outbox.give_up(STOP_GRACE).await;
    }
    carried
}

/// Everything about one execution under way.
pub(super) struct Context<'a> {
    app: &'a App,
    pub(super) means: Means,
    pub(super) prompt: String,
    pub(super) node: Guard,
    pub(super) lock: Locked,
    /// The engine's.
    pub(super) home: PathBuf,
    /// When the request was taken.
    pub(super) asked_at: Timestamp,
    /// When this process began with it.
    begun_at: Timestamp,
    /// Whether its steps are kept, so that it can go on elsewhere.
    goes_on: bool,
    pub(super) processor: Processor,
    turn: u64,
    /// Through which a program finds this run's tools.
    door: Option<Door>,
    /// What the servers' owner should know of their tools.
    tool_news: ToolNews,
    outbox: Arc<Outbox>,
    begun: Instant,
    /// This node is stopping, or is no node any more.
    node_lost: CancellationToken,
    /// The tenant's place, until its work is done.
    slot: Option<Slot>,
}

/// How the engine ended.
pub(super) struct Ended {
    pub(super) stopped: Option<Stopped>,
    pub(super) outcome: Result<(), EngineError>,
    pub(super) took: Duration,
}

impl<'a> Context<'a> {
    fn new(
        app: &'a App,
        started: &'a Stored<Run>,
        errand: Errand,
        node: Guard,
        lock: Guard,
        stops: &Stops,
    ) -> Self {
        let run = &started.value;
        let Errand { means, prompt, slot, .. } = errand;
        let guards = vec![node.clone(), lock.clone()];
        let outbox = Outbox::new(Arc::clone(&app.store), run.tenant.clone(), run.stream(), guards);
        let goes_on = run.goes_on();
        let outbox = if goes_on { outbox.with_journal(journal_of(run)) } else { outbox };
        let outbox = Arc::new(outbox);
        Self {
            app,
            prompt,
            node,
            lock: Locked::new(app, lock),
            home: PathBuf::new(),
            asked_at: started.created_at,
            begun_at: started.created_at,
            goes_on,
            processor: Processor::default(),
            turn: run.execution.as_ref().map_or(1, |execution| execution.turn),
            door: None,
            tool_news: Vec::new(),
            outbox,
            begun: Instant::now(),
            node_lost: stops.lost.clone(),
            means,
            slot: Some(slot),
        }
    }

    /// What the engine was ordered is what its words are understood by.
    fn expect(&mut self, order: &Order) {
        self.home.clone_from(&order.home);
        let fallback = &self.means.model.model_name;
        self.processor = Processor::new(Expected {
            turn: self.turn,
            resumed: order.resume.is_some(),
            prices: self.means.prices(),
            aliases: order.aliases.clone(),
            subagent_model: order.subagent_model.as_ref().unwrap_or(fallback).clone(),
        });
    }

    /// Goes on where another process stopped.
    async fn catch_up(&mut self, spent: &[UsageRow]) -> Result<(), AppError> {
        self.begun_at = self.app.store.now().await?;
        self.processor.carry_over(spent);
        Ok(())
    }

    async fn work(
        &mut self,
        started: &Stored<Run>,
        order: Order,
        stops: &Stops,
    ) -> Result<(), AppError> {
        let app = self.app;
        let left_out = self.means.unreachable.iter().map(|(server, why)| {
            let code = "MCP_SERVER_UNAVAILABLE";
            let data = json!({ "code": code, "message": why, "server": server });
            NewEvent::from_value("warning", &data)
        });
        let tool_news = self.tool_news.iter().map(|data| NewEvent::from_value("warning", data));
        // Before the model sees the tools.
        self.tell_all(left_out.chain(tool_news).collect()).await?;
        // 6. engine run, with 7. messages and 8. tools inside
        let ended = self.run_engine(order, stops).await?;
        self.door = None;
        if ended.stopped == Some(Stopped::Interrupted) && self.goes_on {
            // Its steps are kept: another process takes it up.
            return Err(AppError::Unavailable("this node is stopping".to_owned()));
        }
        // 9. results
        let left = self.processor.close();
        self.tell_all(left).await?;
        self.warn_of_prices().await?;
        let mut report = Report::new(&self.processor, &ended, app.options.execution_timeout);
        if report.is_success() && self.means.conversation.value.title.is_none() {
            report.title = Some(self.give_title(&report).await?);
            report.bill(&self.processor);
        }
        // 10. commit, and with it release
        self.unless_gone(self.outbox.settled()).await?;
        // Before anybody can see the end: whoever does may want the place for the next turn.
        self.slot = None;
        app.conclude(started, self, report, &stops.lost).await
    }

    async fn run_engine(&mut self, order: Order, stops: &Stops) -> Result<Ended, AppError> {
        let (told, mut heard) = Told::channel();
        let stop = CancellationToken::new();
        let engine = Arc::clone(&self.means.engine);
        let mut work = engine.run(order, told, stop.clone());
        let (mut outcome, mut stopped) = (None, None);
        let mut words = Vec::with_capacity(TAKEN_AT_ONCE);
        let limit = self.begun + self.app.options.execution_timeout;
        let mut end = limit;
        let lock_lost = self.lock.lost().clone();
        let (app, tenant) = (self.app, self.means.tenant.clone());
        let conversation = self.means.conversation.value.id.clone();
        let mut over_quota = std::pin::pin!(app.watch_storage(&tenant, &conversation));
        loop {
            let why = tokio::select! {
                taken = heard.take(&mut words, TAKEN_AT_ONCE) => {
                    if taken == 0 && outcome.is_some() {
                        break;
                    }
                    self.take_all(&mut words).await?;
                    continue;
                }
                // What it told before is still in the channel.
                ended = &mut work, if outcome.is_none() => {
                    outcome = Some(ended);
                    continue;
                }
                () = tokio::time::sleep_until(end) => {
                    if stopped.is_some() {
                        break;
                    }
                    Stopped::Timeout
                }
                () = stops.cancel.cancelled(), if stopped.is_none() => Stopped::Cancelled,
                () = stops.lost.cancelled(), if stopped.is_none() => Stopped::Interrupted,
                () = lock_lost.cancelled(), if stopped.is_none() => Stopped::Interrupted,
                excess = &mut over_quota, if stopped.is_none() => Stopped::OverQuota(excess),
            };
            if outcome.is_none() {
                stopped = Some(why);
            }
            end = Instant::now() + STOP_GRACE;
            stop.cancel();
        }
        if tenant.limits.stored_bytes.is_some() {
            app.measure_folders(&tenant.id, &conversation).await;
        }
        // What it told before it was dropped counts: it may be what it spent.
        heard.take_left(&mut words);
        self.take_all(&mut words).await?;
        let outcome = outcome.unwrap_or(Ok(()));
        let took = self.begun_at.since(self.asked_at) + self.begun.elapsed();
        Ok(Ended { stopped, outcome, took })
    }

    /// 7 and 8: what was told, as events in the order in which it was told.
    async fn take_all(&mut self, words: &mut Vec<Word>) -> Result<(), AppError> {
        // This process's time will do for how long a tool took; a store that is away must not end
        // the engine's work.
        let now = self.begun_at + self.begun.elapsed();
        let mut events = Vec::with_capacity(words.len());
        for word in words.drain(..) {
            match word {
                Word::Message(message) => events.append(&mut self.processor.take(message, now)),
                Word::Again { messages, at } => {
                    messages.into_iter().for_each(|m| self.processor.take_again(m, at));
                }
                Word::Step { entry, messages, kept } => {
                    self.tell_all(std::mem::take(&mut events)).await?;
                    self.keep(&entry, messages, kept, now).await?;
                }
            }
        }
        self.tell_all(events).await?;
        if let Some(note) = self.note()? {
            self.outbox.note(note);
        }
        Ok(())
    }

    /// A step and what is told of it, in one commit. Whoever waits for it is told afterwards.
    async fn keep(
        &mut self,
        entry: &Value,
        messages: Vec<EngineMessage>,
        kept: Kept,
        now: Timestamp,
    ) -> Result<(), AppError> {
        let mut events = Vec::new();
        for message in messages {
            events.append(&mut self.processor.take(message, now));
        }
        if !self.goes_on {
            self.tell_all(events).await?;
            kept.done();
            return Ok(());
        }
        let (step, note) = (NewEvent::from_value(STEP, entry), self.note()?);
        let ticket = self.unless_gone(self.outbox.push_step(events, step, note)).await?;
        let outbox = Arc::clone(&self.outbox);
        tokio::spawn(async move {
            if outbox.committed(ticket).await.is_ok() {
                kept.done();
            }
        });
        Ok(())
    }

    /// What was spent, if that has changed. Whoever finds this execution without its node writes
    /// the bill from it.
    fn note(&mut self) -> Result<Option<String>, AppError> {
        let has_spent = self.processor.take_spent();
        Ok(has_spent.then(|| serde_json::to_string(&self.processor.rows())).transpose()?)
    }

    async fn tell_all(&self, events: Vec<shikiri_model::event::NewEvent>) -> Result<(), AppError> {
        self.unless_gone(self.outbox.push_all(events)).await
    }

    /// A node that must end does not wait for a store that is away: another one ends this.
    async fn unless_gone<T>(
        &self,
        write: impl Future<Output = Result<T, CommitError>>,
    ) -> Result<T, AppError> {
        let gone = async {
            self.node_lost.cancelled().await;
            tokio::time::sleep(STOP_GRACE).await;
        };
        tokio::select! {
            biased;
            written = write => Ok(written?),
            () = gone => Err(AppError::Unavailable("the store is away".to_owned())),
        }
    }

    /// A bill with a model of unknown price is too low, and should say so.
    async fn warn_of_prices(&self) -> Result<(), AppError> {
        let prices = self.means.prices();
        let mut unknown: Vec<_> = self.processor.rows().into_iter().map(|row| row.model).collect();
        unknown.retain(|model| prices.of(model).is_none());
        unknown.sort_unstable();
        unknown.dedup();
        let warning = |model: String| {
            let text =
                format!("no model record has prices for {model}: its tokens cost nothing here");
            let data = json!({ "code": "PRICE_UNKNOWN", "message": text, "model": model });
            NewEvent::from_value("warning", &data)
        };
        self.tell_all(unknown.into_iter().map(warning).collect()).await
    }

    /// From the engine's light model, or else the first words of the input.
    async fn give_title(&mut self, report: &Report) -> Result<String, AppError> {
        let (text, spent) = title(self.app, &self.means, &self.prompt, report.answer()).await;
        if let Some(spent) = spent {
            self.processor.take(spent, Timestamp::default());
        }
        let data = json!({ "title": text });
        self.tell_all(vec![NewEvent::from_value("title", &data)]).await?;
        Ok(text)
    }
}

/// A write that was refused because the lease is gone leaves nothing to be done here.
pub(super) fn is_lost(error: &CommitError) -> bool {
    matches!(error, CommitError::Lease(_))
}

#[cfg(test)]
mod tests {
    /// Row 1.35: the flow is told in ten steps, and each is done where it is told.
    #[test]
    fn the_ten_steps_stand_in_their_order() {
        let text = include_str!("flow.rs");
        let steps = [
            "// 1. request",
            "// 2. checks",
            "// 3. lock",
            "// 4. context",
            "// 5. options",
            "// 6. engine run, with 7. messages and 8. tools",
            "// 9. results",
            "// 10. commit",
        ];
        let mut rest = text;
        for step in steps {
            let (_, after) = rest.split_once(step).unwrap_or_else(|| panic!("{step} is missing"));
            rest = after;
        }
    }
}
