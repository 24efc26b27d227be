//! An execution from the request to the end, in ten steps:
//!
//!  1. request      validate the request, or recognise a repeated one
//!  2. checks       look up tenant, conversation, model, servers, skills and tokens
//!  3. lock         acquire the conversation's lease, with a fence
//!  4. context      gather everything that the turn needs
//!  5. options      build the engine's request
//!  6. engine run   run the engine until it ends or its time limit passes
//!  7. messages     turn its output into events and stored messages
//!  8. tools        track each tool call from its start to its end
//!  9. results      determine the outcome, the usage and the conversation's title
//! 10. commit       store everything at once, and release the lock
//!
//! Steps 1 to 3 run in the caller's request, so that errors are returned to it. Steps 4 to 10 run
//! in the worker, even if no client is connected.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::event::NewEvent;
use shikiri_model::execution::{EngineMessage, MessageProcessor, ProcessorConfig, UsageRow};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::LeaseGuard;
use shikiri_model::record::StoredDocument;
use shikiri_model::run::{ExecutionEventName, Run, WarningCode};
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;
use shikiri_runtime::run::{Outbox, StopSignals};
use shikiri_runtime::storage::StorageExcess;
use shikiri_store::CommitError;
use shikiri_tenancy::slot_pool::TenantSlot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::engine::{EngineError, ResolvedServer, TurnRequest};
use super::engine_channel::{EngineOutput, EngineSender, PersistAck};
use super::execution_request::{ExecutionStart, NewExecution, ResolvedRequest};
use super::finish_execution::{ExecutionReport, title};
use super::start_execution::ConversationLock;
use super::turn_journal::{STEP, journal_of};
use super::turn_options::PreparedTurn;
use crate::Executions;
use crate::tools::{LoopbackMcpServer, ToolWarnings};

/// How long a stopped engine may take to report its usage.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Messages received from the engine at a time.
const TAKEN_AT_ONCE: usize = 64;

impl Executions {
    /// Starts one turn of a conversation. If the idempotency key is known, returns its execution.
    pub async fn execute(
        &self,
        tenant: &TenantId,
        request: NewExecution,
    ) -> Result<StoredDocument<Run>, AppError> {
        self.execute_with(tenant, request, None).await
    }

    /// The same, with one more server for this execution only. It is not stored.
    pub async fn execute_with(
        &self,
        tenant: &TenantId,
        request: NewExecution,
        own_server: Option<ResolvedServer>,
    ) -> Result<StoredDocument<Run>, AppError> {
        Ok(self.start_or_attach(tenant, request, own_server).await?.run)
    }

    /// As `execute`, and tells whether the execution is that of an earlier request.
    pub async fn execute_or_attach(
        &self,
        tenant: &TenantId,
        request: NewExecution,
    ) -> Result<ExecutionStart, AppError> {
        self.start_or_attach(tenant, request, None).await
    }

    async fn start_or_attach(
        &self,
        tenant: &TenantId,
        request: NewExecution,
        own_server: Option<ResolvedServer>,
    ) -> Result<ExecutionStart, AppError> {
        // 1. request
        request.check()?;
        if let Some(known) = self.known_execution(tenant, &request).await? {
            return Ok(ExecutionStart::repeated(known));
        }
        // 2. checks
        let resolved = self.resolve_request(tenant, &request, own_server.as_ref()).await?;
        self.runtime.check_storage(&resolved.tenant, request.user_input.len() as u64).await?;
        // 3. lock
        self.start_under_lock(tenant, &request, resolved, own_server.as_ref()).await
    }
}

/// What a worker needs to run a started execution.
pub(crate) struct ExecutionJob {
    pub(crate) executions: Executions,
    pub(super) resolved: ResolvedRequest,
    pub(super) prompt: String,
    /// Whether another process began it.
    pub(super) is_resumed: bool,
    /// The tenant's slot for one execution.
    pub(super) slot: TenantSlot,
}

/// Why an engine was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecutionStopReason {
    Cancelled,
    Timeout,
    /// The node stops, or has lost the conversation's lock.
    Interrupted,
    /// Its files brought the tenant over its storage limit.
    OverQuota(StorageExcess),
}

/// Steps 4 to 10, in the worker.
pub(crate) async fn execute_job(
    executions: &Executions,
    started: &StoredDocument<Run>,
    job: ExecutionJob,
    node: LeaseGuard,
    lock: LeaseGuard,
    stops: StopSignals,
) -> Result<(), AppError> {
    // 4. context
    let is_resumed = job.is_resumed;
    let mut context = ExecutionContext::new(executions, started, job, node, lock, &stops);
    // 5. options
    let resume = context.resolved.conversation.value.session_id.clone();
    let prepared = executions.build_turn_request(
        &context.resolved,
        &context.prompt,
        resume.clone(),
        &stops.cancel,
    );
    let PreparedTurn { mut request, left_out, tool_warnings, loopback_server } = prepared.await?;
    context.resolved.unreachable.extend(left_out);
    context.loopback_server = loopback_server;
    context.tool_warnings = tool_warnings;
    if context.resolved.engine.is_native() {
        let begun = is_resumed.then_some(&started.value);
        request.memory =
            executions.load_resume_state(&context.resolved, resume.as_deref(), begun).await?;
    } else if let Some(session) = resume {
        executions.restore_session_files(&context.resolved, &request.home, &session).await?;
    }
    context.set_expectations(&request);
    if is_resumed {
        context.restore_progress(&request.memory.spent).await?;
    }
    let carried = context.run_turn(started, request, &stops).await;
    if carried.is_err() {
        // The next process bills what is recorded: flush the rest, if the store is available.
        context.outbox.give_up(STOP_GRACE).await;
    }
    carried
}

/// The state of a running execution.
pub(super) struct ExecutionContext<'a> {
    executions: &'a Executions,
    pub(super) resolved: ResolvedRequest,
    pub(super) prompt: String,
    pub(super) node: LeaseGuard,
    pub(super) lock: ConversationLock,
    /// The engine's home folder.
    pub(super) home: PathBuf,
    /// When the request was accepted.
    pub(super) asked_at: Timestamp,
    /// When this process began the turn.
    begun_at: Timestamp,
    /// Whether its steps are journaled, so that another process can resume it.
    is_resumable: bool,
    pub(super) processor: MessageProcessor,
    turn: u64,
    /// Offers this run's API tools to an engine that is a separate program.
    loopback_server: Option<LoopbackMcpServer>,
    /// Warnings about tools for the servers' owner.
    tool_warnings: ToolWarnings,
    outbox: Arc<Outbox>,
    begun: Instant,
    /// Cancelled when this node stops or loses its lease.
    node_lost: CancellationToken,
    /// The tenant's slot, until the work is done.
    slot: Option<TenantSlot>,
}

/// How the engine ended.
pub(super) struct EngineOutcome {
    pub(super) stopped: Option<ExecutionStopReason>,
    pub(super) outcome: Result<(), EngineError>,
    pub(super) took: Duration,
}

impl<'a> ExecutionContext<'a> {
    fn new(
        executions: &'a Executions,
        started: &'a StoredDocument<Run>,
        job: ExecutionJob,
        node: LeaseGuard,
        lock: LeaseGuard,
        stops: &StopSignals,
    ) -> Self {
        let run = &started.value;
        let ExecutionJob { resolved, prompt, slot, .. } = job;
        let guards = vec![node.clone(), lock.clone()];
        let outbox = Outbox::new(
            Arc::clone(executions.runtime.store()),
            run.tenant.clone(),
            run.stream(),
            guards,
        );
        let is_resumable = run.is_resumable();
        let outbox = if is_resumable { outbox.with_journal(journal_of(run)) } else { outbox };
        let outbox = Arc::new(outbox);
        Self {
            executions,
            prompt,
            node,
            lock: ConversationLock::new(executions, lock),
            home: PathBuf::new(),
            asked_at: started.created_at,
            begun_at: started.created_at,
            is_resumable,
            processor: MessageProcessor::default(),
            turn: run.execution.as_ref().map_or(1, |execution| execution.turn),
            loopback_server: None,
            tool_warnings: Vec::new(),
            outbox,
            begun: Instant::now(),
            node_lost: stops.lost.clone(),
            resolved,
            slot: Some(slot),
        }
    }

    /// Sets up the message processor according to the engine's request.
    fn set_expectations(&mut self, request: &TurnRequest) {
        self.home.clone_from(&request.home);
        let fallback = &self.resolved.model.model_name;
        self.processor = MessageProcessor::new(ProcessorConfig {
            turn: self.turn,
            resumed: request.resume.is_some(),
            prices: self.resolved.prices(),
            aliases: request.aliases.clone(),
            subagent_model: request.subagent_model.as_ref().unwrap_or(fallback).clone(),
        });
    }

    /// Takes over the progress of another process.
    async fn restore_progress(&mut self, spent: &[UsageRow]) -> Result<(), AppError> {
        self.begun_at = self.executions.runtime.store().now().await?;
        self.processor.carry_over(spent);
        Ok(())
    }

    async fn run_turn(
        &mut self,
        started: &StoredDocument<Run>,
        request: TurnRequest,
        stops: &StopSignals,
    ) -> Result<(), AppError> {
        let executions = self.executions;
        let left_out = self.resolved.unreachable.iter().map(|(server, why)| {
            let code = WarningCode::McpServerUnavailable.as_str();
            let data = json!({ "code": code, "message": why, "server": server });
            NewEvent::from_value(ExecutionEventName::Warning.as_str(), &data)
        });
        let tool_warnings = self
            .tool_warnings
            .iter()
            .map(|data| NewEvent::from_value(ExecutionEventName::Warning.as_str(), data));
        // Before the model sees the tools.
        self.append_events(left_out.chain(tool_warnings).collect()).await?;
        // 6. engine run, with 7. messages and 8. tools inside
        let ended = self.run_engine(request, stops).await?;
        self.loopback_server = None;
        if ended.stopped == Some(ExecutionStopReason::Interrupted) && self.is_resumable {
            // Its steps are journaled: another process resumes it.
            return Err(AppError::Unavailable("this node is stopping".to_owned()));
        }
        // 9. results
        let left = self.processor.close();
        self.append_events(left).await?;
        self.warn_of_prices().await?;
        let mut report = ExecutionReport::new(&self.processor, &ended, executions.options.timeout);
        if report.is_success() && self.resolved.conversation.value.title.is_none() {
            report.title = Some(self.give_title(&report).await?);
            report.bill(&self.processor);
        }
        // 10. commit, and with it release
        self.write_unless_node_lost(self.outbox.wait_all_committed()).await?;
        // Before the end is visible: a client that sees it may start the next turn at once.
        self.slot = None;
        executions.conclude(started, self, report, &stops.lost).await
    }

    async fn run_engine(
        &mut self,
        request: TurnRequest,
        stops: &StopSignals,
    ) -> Result<EngineOutcome, AppError> {
        let (sender, mut receiver) = EngineSender::channel();
        let stop = CancellationToken::new();
        let engine = Arc::clone(&self.resolved.engine);
        let mut work = engine.run(request, sender, stop.clone());
        let (mut outcome, mut stopped) = (None, None);
        let mut outputs = Vec::with_capacity(TAKEN_AT_ONCE);
        let limit = self.begun + self.executions.options.timeout;
        let mut end = limit;
        let lock_lost = self.lock.lost().clone();
        let (executions, tenant) = (self.executions, self.resolved.tenant.clone());
        let conversation = self.resolved.conversation.value.id.clone();
        let mut over_quota =
            std::pin::pin!(executions.runtime.watch_storage(&tenant, &conversation));
        loop {
            let why = tokio::select! {
                taken = receiver.recv_many(&mut outputs, TAKEN_AT_ONCE) => {
                    if taken == 0 && outcome.is_some() {
                        break;
                    }
                    self.process_outputs(&mut outputs).await?;
                    continue;
                }
                // Earlier output is still in the channel.
                ended = &mut work, if outcome.is_none() => {
                    outcome = Some(ended);
                    continue;
                }
                () = tokio::time::sleep_until(end) => {
                    if stopped.is_some() {
                        break;
                    }
                    ExecutionStopReason::Timeout
                }
                () = stops.cancel.cancelled(), if stopped.is_none() => ExecutionStopReason::Cancelled,
                () = stops.lost.cancelled(), if stopped.is_none() => ExecutionStopReason::Interrupted,
                () = lock_lost.cancelled(), if stopped.is_none() => ExecutionStopReason::Interrupted,
                excess = &mut over_quota, if stopped.is_none() => ExecutionStopReason::OverQuota(excess),
            };
            if outcome.is_none() {
                stopped = Some(why);
            }
            end = Instant::now() + STOP_GRACE;
            stop.cancel();
        }
        if tenant.limits.stored_bytes.is_some() {
            executions.runtime.measure_folders(&tenant.id, &conversation).await;
        }
        // Output sent before the engine was dropped counts: it may be its usage.
        receiver.drain(&mut outputs);
        self.process_outputs(&mut outputs).await?;
        let outcome = outcome.unwrap_or(Ok(()));
        let took = self.begun_at.since(self.asked_at) + self.begun.elapsed();
        Ok(EngineOutcome { stopped, outcome, took })
    }

    /// 7 and 8: turns the engine's output into events, in order.
    async fn process_outputs(&mut self, outputs: &mut Vec<EngineOutput>) -> Result<(), AppError> {
        // The local clock is precise enough for the duration of a tool call. An unavailable store
        // must not end the engine's work.
        let now = self.begun_at + self.begun.elapsed();
        let mut events = Vec::with_capacity(outputs.len());
        for output in outputs.drain(..) {
            match output {
                EngineOutput::Message(message) => {
                    events.append(&mut self.processor.process(message, now))
                }
                EngineOutput::Again { messages, at } => {
                    messages.into_iter().for_each(|m| self.processor.replay(m, at));
                }
                EngineOutput::Step { entry, messages, kept } => {
                    self.append_events(std::mem::take(&mut events)).await?;
                    self.persist_step(&entry, messages, kept, now).await?;
                }
            }
        }
        self.append_events(events).await?;
        if let Some(note) = self.note()? {
            self.outbox.note(note);
        }
        Ok(())
    }

    /// Writes a step and its events in one commit, then confirms it to the engine.
    async fn persist_step(
        &mut self,
        entry: &Value,
        messages: Vec<EngineMessage>,
        kept: PersistAck,
        now: Timestamp,
    ) -> Result<(), AppError> {
        let mut events = Vec::new();
        for message in messages {
            events.append(&mut self.processor.process(message, now));
        }
        if !self.is_resumable {
            self.append_events(events).await?;
            kept.confirm();
            return Ok(());
        }
        let (step, note) = (NewEvent::from_value(STEP, entry), self.note()?);
        let ticket = self.write_unless_node_lost(self.outbox.push_step(events, step, note)).await?;
        let outbox = Arc::clone(&self.outbox);
        tokio::spawn(async move {
            if outbox.wait_committed(ticket).await.is_ok() {
                kept.confirm();
            }
        });
        Ok(())
    }

    /// The usage, if it has changed. If this node is lost, the execution is billed from it.
    fn note(&mut self) -> Result<Option<String>, AppError> {
        let has_spent = self.processor.take_usage_changed();
        Ok(has_spent.then(|| serde_json::to_string(&self.processor.rows())).transpose()?)
    }

    async fn append_events(
        &self,
        events: Vec<shikiri_model::event::NewEvent>,
    ) -> Result<(), AppError> {
        self.write_unless_node_lost(self.outbox.push_all(events)).await
    }

    /// A lost node does not wait for an unavailable store: another node ends this execution.
    async fn write_unless_node_lost<T>(
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

    /// Warns that the cost is too low because a model's price is unknown.
    async fn warn_of_prices(&self) -> Result<(), AppError> {
        let prices = self.resolved.prices();
        let mut unknown: Vec<_> = self.processor.rows().into_iter().map(|row| row.model).collect();
        unknown.retain(|model| prices.of(model).is_none());
        unknown.sort_unstable();
        unknown.dedup();
        let warning = |model: String| {
            let text =
                format!("no model record has prices for {model}: its tokens cost nothing here");
            let data = json!({
                "code": WarningCode::PriceUnknown.as_str(), "message": text, "model": model,
            });
            NewEvent::from_value(ExecutionEventName::Warning.as_str(), &data)
        };
        self.append_events(unknown.into_iter().map(warning).collect()).await
    }

    /// Generates the title with the engine's light model, or takes the first words of the input.
    async fn give_title(&mut self, report: &ExecutionReport) -> Result<String, AppError> {
        let (text, spent) =
            title(self.executions, &self.resolved, &self.prompt, report.answer()).await;
        if let Some(spent) = spent {
            self.processor.process(spent, Timestamp::default());
        }
        let data = json!({ "title": text });
        self.append_events(vec![NewEvent::from_value(ExecutionEventName::Title.as_str(), &data)])
            .await?;
        Ok(text)
    }
}

/// Whether a write was refused because the lease is lost. Then there is nothing left to do here.
pub(super) fn is_lost(error: &CommitError) -> bool {
    matches!(error, CommitError::Lease(_))
}
