//! The end of an execution: what it came to, and the one commit that writes it down.

use std::time::Duration;

use serde_json::json;
use shikiri_model::conversation::{Conversation, lock_of, title_from};
use shikiri_model::execution::{
    Conclusion, Ending, EngineMessage, Message, MessageKind, MessageLog, Processor, Spender,
    ToolLog, UsageLog, UsageRow, total,
};
use shikiri_model::ids::{NodeId, RunId, TenantId};
use shikiri_model::lease::{Guard, LeaseChange, LeaseRefusal};
use shikiri_model::record::{Expect, RecordChange, Stored};
use shikiri_model::run::{Command, Run, RunError, RunStatus, decide};
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, CommitError, StoreError};
use tokio_util::sync::CancellationToken;

use super::engine::TitleOrder;
use super::flow::{Context, Ended, Stopped, is_lost};
use super::journal::closing;
use super::options::{aliases, environment};
use super::request::Means;
use crate::app::{App, busy, max_tries};
use crate::error::AppError;
use crate::failpoint;
use crate::run::apply;
use crate::storage::StorageExcess;

/// The terminal event waits no longer for a title.
const TITLE_WAIT: Duration = Duration::from_secs(5);
/// Between two attempts to write the end while the store is away.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How an execution ended and what follows from it.
pub(super) struct Report {
    ending: Ending,
    rows: Vec<UsageRow>,
    session_id: Option<String>,
    pub(super) title: Option<String>,
    is_success: bool,
}

impl Report {
    pub(super) fn new(processor: &Processor, ended: &Ended, limit: Duration) -> Self {
        let rows = processor.rows();
        let ending = ending(processor, ended, limit, &rows);
        let is_success = match &ending {
            Ending::Result { data, error } => error.is_none() && data["partial"] == json!(false),
            Ending::Error(_) => false,
        };
        let session_id = processor.session_id().map(str::to_owned);
        Self { ending, rows, session_id, title: None, is_success }
    }

    /// The engine did what it was asked for: only this changes the conversation.
    pub(super) fn is_success(&self) -> bool {
        self.is_success
    }

    pub(super) fn answer(&self) -> &str {
        match &self.ending {
            Ending::Result { data, .. } => data["result"].as_str().unwrap_or_default(),
            Ending::Error(_) => "",
        }
    }

    /// Takes over what was spent since: the title had its price too.
    pub(super) fn bill(&mut self, processor: &Processor) {
        self.rows = processor.rows();
        if let Ending::Result { data, .. } = &mut self.ending {
            let (usage, cost) = total(&self.rows);
            data["usage"] = json!(usage);
            data["total_cost_usd"] = json!(cost);
        }
    }

    fn conclusion(&self) -> Conclusion {
        let (usage, total_cost_usd) = total(&self.rows);
        Conclusion { ending: self.ending.clone(), usage, total_cost_usd }
    }
}

fn ending(processor: &Processor, ended: &Ended, limit: Duration, rows: &[UsageRow]) -> Ending {
    let error = |code, message: String| Ending::Error(RunError::new(code, message));
    let (usage, cost) = total(rows);
    let result = |text: &str, is_error: bool, errors: &[String], turns: u64, partial: bool| {
        json!({
            "result": text,
            "is_error": is_error,
            "errors": errors,
            "usage": usage,
            "total_cost_usd": cost,
            "num_turns": turns,
            "duration_ms": u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX),
            "session_id": processor.session_id(),
            "partial": partial,
        })
    };
    match (ended.stopped, &ended.outcome, processor.finish()) {
        (Some(Stopped::Cancelled), ..) => {
            error("CANCELLED", "the execution was cancelled".to_owned())
        }
        (Some(Stopped::Interrupted), ..) => {
            error("INTERRUPTED", "the server stopped before the engine ended".to_owned())
        }
        (Some(Stopped::OverQuota(excess)), ..) => {
            let StorageExcess { used, limit } = excess;
            let message = format!(
                "the run was ended: its tenant stores {used} bytes, and stored_bytes allows \
                 {limit}. Remove conversations or files, or ask the admin of the server to raise it"
            );
            error("QUOTA_EXCEEDED", message)
        }
        (Some(Stopped::Timeout), ..) if processor.text().is_empty() => {
            error("TIMEOUT", format!("no output within {} s", limit.as_secs_f64()))
        }
        (Some(Stopped::Timeout), ..) => {
            let errors = [format!("stopped after {} s", limit.as_secs_f64())];
            let data = result(processor.text(), false, &errors, 0, true);
            Ending::Result { data, error: None }
        }
        (None, Err(failed), _) => error("SDK_ERROR", failed.to_string()),
        (None, Ok(()), None) => error("SDK_ERROR", "the engine ended without a result".to_owned()),
        (None, Ok(()), Some(finish)) => {
            let mut data =
                result(&finish.result, finish.is_error, &finish.errors, finish.num_turns, false);
            if let Some(limit) = finish.limit {
                data["limit"] = json!(limit);
            }
            let why = || match finish.errors.is_empty() {
                true => finish.result.clone(),
                false => finish.errors.join("; "),
            };
            let error = finish.is_error.then(|| RunError::new("SDK_ERROR", why()));
            Ending::Result { data, error }
        }
    }
}

/// A title for the conversation, and what it cost to find.
pub(super) async fn title(
    app: &App,
    means: &Means,
    input: &str,
    answer: &str,
) -> (String, Option<EngineMessage>) {
    let env = environment(&app.options.engine_env.0, &means.model);
    let light_model = aliases(means, &env)
        .get("haiku")
        .cloned()
        .unwrap_or_else(|| means.model.model_name.clone());
    let order = TitleOrder {
        model: means.model.clone(),
        light_model,
        input: input.to_owned(),
        answer: answer.to_owned(),
        env,
    };
    let fallback = || title_from(input).unwrap_or_else(|| "Untitled".to_owned());
    match tokio::time::timeout(TITLE_WAIT, means.engine.title(&order)).await {
        Ok(Some(Ok(titled))) => {
            let spent = EngineMessage::Spent {
                who: Spender::Main,
                request: "title".to_owned(),
                model: titled.model,
                usage: titled.usage,
            };
            (title_from(&titled.text).unwrap_or_else(fallback), Some(spent))
        }
        Ok(Some(Err(error))) => {
            tracing::warn!(%error, "no title from the model; the input's first words do");
            (fallback(), None)
        }
        Ok(None) | Err(_) => (fallback(), None),
    }
}

impl App {
    /// Writes the end of an execution, all of it or nothing, and frees the conversation with it.
    /// While the store is away it tries again, for as long as this is a node.
    pub(super) async fn conclude(
        &self,
        started: &Stored<Run>,
        context: &Context<'_>,
        report: Report,
        lost: &CancellationToken,
    ) -> Result<(), AppError> {
        let mut run = started.clone();
        let mut conversation = context.means.conversation.clone();
        loop {
            let commit = self.ending_commit(&run, &conversation, context, &report).await;
            let committed = match commit {
                Ok(commit) => {
                    failpoint::hit("execution.before_conclude");
                    self.store.commit(commit).await
                }
                Err(AppError::Unavailable(_)) => Err(StoreError::unavailable("").into()),
                Err(other) => return Err(other),
            };
            match committed {
                Ok(_) => {
                    failpoint::hit("execution.after_conclude");
                    return Ok(());
                }
                // Somebody asked it to stop, or changed the conversation: decide again.
                Err(CommitError::Conflict(_)) => {
                    let Conversation { tenant, id, .. } = &conversation.value;
                    run = self.load_run(tenant, &run.value.id).await?;
                    conversation = self.conversation(tenant, id).await?;
                }
                Err(CommitError::Store(StoreError::Unavailable(cause))) => {
                    if lost.is_cancelled() {
                        return Err(AppError::Unavailable(cause.to_string()));
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) if is_lost(&error) => {
                    return Err(AppError::Unavailable(error.to_string()));
                }
                Err(other) => return Err(other.into()),
            }
        }
    }

    async fn ending_commit(
        &self,
        run: &Stored<Run>,
        conversation: &Stored<Conversation>,
        context: &Context<'_>,
        report: &Report,
    ) -> Result<Commit, AppError> {
        let now = self.store.now().await?;
        let decision = decide(&run.value, Command::Conclude(report.conclusion()), now)?;
        let mut commit = apply(Commit::new(), &decision, Expect::Version(run.version))?
            .guarded_by(context.node.clone())
            .guarded_by(context.lock.guard.clone())
            .lease(LeaseChange::Release { guard: context.lock.guard.clone() });
        commit.records.extend(bill(&decision.run, &report.rows, now)?);
        commit.appends.extend(run.value.goes_on().then(|| closing(&run.value)));
        if report.is_success {
            commit.records.extend(kept(&decision.run, context)?);
            commit.records.push(continued(conversation, report)?);
            if let Some(session) = &report.session_id {
                let packed = self.pack(&context.means, &context.home, session).await?;
                commit.records.extend(packed);
            }
        }
        Ok(commit)
    }

    /// Ends an execution that its node cannot end in good order: what it had spent by its last sign
    /// of life is billed, and its conversation is free. Does nothing if it is not that node's any
    /// more. A node that ends its own gives its guard; who sweeps has fenced it.
    pub(crate) async fn abort_execution(
        &self,
        tenant: &TenantId,
        id: &RunId,
        node: &NodeId,
        error: RunError,
        guard: Option<&Guard>,
    ) -> Result<(), AppError> {
        for _ in 0..max_tries() {
            let run = self.load_run(tenant, id).await?;
            if run.value.status != RunStatus::Running || run.value.node.as_ref() != Some(node) {
                return Ok(());
            }
            let mut commit = self.aborting(&run, &error).await?;
            commit.guards.extend(guard.cloned());
            match self.store.commit(commit).await {
                Err(CommitError::Lease(LeaseRefusal::Lost { name }))
                    if guard.is_some_and(|guard| guard.name == name) =>
                {
                    return Err(AppError::Unavailable("this is no node any more".to_owned()));
                }
                // The lock ran out just now, or somebody asked it to stop.
                Err(CommitError::Conflict(_) | CommitError::Lease(_)) => {}
                other => return other.map(drop).map_err(AppError::from),
            }
        }
        Err(busy("execution", id.as_str()))
    }

    async fn aborting(&self, stored: &Stored<Run>, error: &RunError) -> Result<Commit, AppError> {
        let run = &stored.value;
        let rows = self.noted(run).await?;
        let (usage, total_cost_usd) = total(&rows);
        let ending = Ending::Error(error.clone());
        let conclusion = Conclusion { ending, usage, total_cost_usd };
        let now = self.store.now().await?;
        let decision = decide(run, Command::Conclude(conclusion), now)?;
        let mut commit = apply(Commit::new(), &decision, Expect::Version(stored.version))?;
        commit.records.extend(bill(&decision.run, &rows, now)?);
        commit.appends.extend(run.goes_on().then(|| closing(run)));
        if let Some(execution) = &run.execution {
            let lock = self.store.lease(&lock_of(&execution.conversation)).await?;
            let own = lock.filter(|(lease, lapsed)| lease.owner == run.id.as_str() && !lapsed);
            commit
                .leases
                .extend(own.map(|(lease, _)| LeaseChange::Release { guard: lease.guard() }));
        }
        Ok(commit)
    }
}

/// The conversation after a turn that was completed.
fn continued(
    conversation: &Stored<Conversation>,
    report: &Report,
) -> Result<RecordChange, AppError> {
    let mut next = conversation.value.clone();
    next.session_id.clone_from(&report.session_id);
    next.turns += 1;
    if next.title.is_none() {
        next.title.clone_from(&report.title);
    }
    Ok(RecordChange::put(&next, Expect::Version(conversation.version))?)
}

/// A record for each row of the bill.
fn bill(run: &Run, rows: &[UsageRow], now: Timestamp) -> Result<Vec<RecordChange>, AppError> {
    let logs = rows.iter().zip(1..);
    let logs = logs.filter_map(|(row, number)| UsageLog::new(run, number, row.clone(), now));
    logs.map(|log| Ok(RecordChange::put(&log, Expect::New)?)).collect()
}

/// A record for each message and each call of a tool.
fn kept(run: &Run, context: &Context<'_>) -> Result<Vec<RecordChange>, AppError> {
    let Some(execution) = &run.execution else { return Ok(Vec::new()) };
    let asked = Message {
        kind: MessageKind::User,
        subtype: None,
        content: json!({ "type": "text", "text": context.prompt }),
        parent_tool_use_id: None,
        at: context.asked_at,
    };
    let messages = std::iter::once(&asked).chain(context.processor.messages()).zip(1..);
    let messages = messages.map(|(message, seq)| {
        let (conversation, turn) = (&execution.conversation, execution.turn);
        RecordChange::put(&MessageLog::new(run, conversation, turn, seq, message), Expect::New)
    });
    let tools = context.processor.tools().iter().zip(1..);
    let tools = tools.map(|(call, n)| RecordChange::put(&ToolLog::new(run, n, call), Expect::New));
    Ok(messages.chain(tools).collect::<Result<_, _>>()?)
}
