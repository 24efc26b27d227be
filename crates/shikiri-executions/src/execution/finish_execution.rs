//! The end of an execution: its outcome, and the one commit that stores it.

use std::time::Duration;

use serde_json::json;
use shikiri_model::conversation::{Conversation, title_from};
use shikiri_model::execution::{
    ConversationMessage, EngineMessage, ExecutionConclusion, ExecutionOutcome, MessageKind,
    MessageLog, MessageProcessor, TokenSpender, ToolLog, UsageLog, UsageRow, bill_totals, total,
};
use shikiri_model::lease::LeaseChange;
use shikiri_model::record::{ExpectedVersion, RecordChange, StoredDocument};
use shikiri_model::run::{Run, RunCommand, RunError, RunErrorCode, decide};
use shikiri_model::time::Timestamp;
use shikiri_runtime::run::apply;
use shikiri_runtime::storage::StorageExcess;
use shikiri_runtime::{AppError, failpoint};
use shikiri_store::{Commit, CommitError, StoreError};
use tokio_util::sync::CancellationToken;

use super::engine::TitleRequest;
use super::execution_request::ResolvedRequest;
use super::flow::{EngineOutcome, ExecutionContext, ExecutionStopReason, is_lost};
use super::turn_journal::close_journal;
use super::turn_options::{aliases, environment};
use crate::Executions;

/// How long the terminal event waits for a title.
const TITLE_WAIT: Duration = Duration::from_secs(5);
/// Pause between two attempts to store the outcome while the store is unavailable.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The outcome of an execution and the usage to bill.
pub(super) struct ExecutionReport {
    ending: ExecutionOutcome,
    rows: Vec<UsageRow>,
    session_id: Option<String>,
    pub(super) title: Option<String>,
    is_success: bool,
}

impl ExecutionReport {
    pub(super) fn new(
        processor: &MessageProcessor,
        ended: &EngineOutcome,
        limit: Duration,
    ) -> Self {
        let rows = processor.rows();
        let ending = ending(processor, ended, limit, &rows);
        let is_success = match &ending {
            ExecutionOutcome::Result { data, error } => {
                error.is_none() && data["partial"] == json!(false)
            }
            ExecutionOutcome::Error { .. } => false,
        };
        let session_id = processor.session_id().map(str::to_owned);
        Self { ending, rows, session_id, title: None, is_success }
    }

    /// Whether the engine completed the turn. Only then does the conversation change.
    pub(super) fn is_success(&self) -> bool {
        self.is_success
    }

    pub(super) fn answer(&self) -> &str {
        match &self.ending {
            ExecutionOutcome::Result { data, .. } => data["result"].as_str().unwrap_or_default(),
            ExecutionOutcome::Error { .. } => "",
        }
    }

    /// Updates the usage: generating the title costs tokens too.
    pub(super) fn bill(&mut self, processor: &MessageProcessor) {
        self.rows = processor.rows();
        if let ExecutionOutcome::Result { data, .. } = &mut self.ending {
            let (usage, cost) = total(&self.rows);
            data["usage"] = json!(usage);
            data["total_cost_usd"] = json!(cost);
        }
    }

    fn conclusion(&self) -> ExecutionConclusion {
        let (usage, total_cost_usd) = total(&self.rows);
        ExecutionConclusion { ending: self.ending.clone(), usage, total_cost_usd }
    }
}

fn ending(
    processor: &MessageProcessor,
    ended: &EngineOutcome,
    limit: Duration,
    rows: &[UsageRow],
) -> ExecutionOutcome {
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
    let has_text = !processor.text().is_empty();
    let error = |code: RunErrorCode, message: String| {
        let partial = has_text.then(|| result(processor.text(), true, &[], 0, true));
        ExecutionOutcome::Error { error: RunError::new(code.as_str(), message), partial }
    };
    match (ended.stopped, &ended.outcome, processor.finish()) {
        (Some(ExecutionStopReason::Cancelled), ..) => {
            error(RunErrorCode::Cancelled, "the execution was cancelled".to_owned())
        }
        (Some(ExecutionStopReason::Interrupted), ..) => error(
            RunErrorCode::Interrupted,
            "the server stopped before the engine ended".to_owned(),
        ),
        (Some(ExecutionStopReason::OverQuota(excess)), ..) => {
            let StorageExcess { used, limit } = excess;
            let message = format!(
                "the run was ended: its tenant stores {used} bytes, and stored_bytes allows \
                 {limit}. Remove conversations or files, or ask the admin of the server to raise it"
            );
            error(RunErrorCode::QuotaExceeded, message)
        }
        (Some(ExecutionStopReason::Timeout), ..) if !has_text => {
            error(RunErrorCode::Timeout, timeout_text(processor, limit))
        }
        (Some(ExecutionStopReason::Timeout), ..) => {
            let errors = [format!("stopped after {} s", limit.as_secs_f64())];
            let data = result(processor.text(), false, &errors, 0, true);
            ExecutionOutcome::Result { data, error: None }
        }
        (None, Err(failed), _) => error(RunErrorCode::SdkError, failed.to_string()),
        (None, Ok(()), None) => {
            error(RunErrorCode::SdkError, "the engine ended without a result".to_owned())
        }
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
            let error =
                finish.is_error.then(|| RunError::new(RunErrorCode::SdkError.as_str(), why()));
            ExecutionOutcome::Result { data, error }
        }
    }
}

/// What a turn without text did until its time was over.
fn timeout_text(processor: &MessageProcessor, limit: Duration) -> String {
    let limit = limit.as_secs_f64();
    let tools = processor.tools();
    let Some(last) = tools.last() else { return format!("no output within {limit} s") };
    let open = tools.iter().filter(|call| call.ended_at.is_none()).count();
    format!(
        "no text within {limit} s, but {} calls of tools, {open} of them without an answer; the \
         last was {}",
        tools.len(),
        last.tool_name
    )
}

/// Generates a title for the conversation, and returns what that cost.
pub(super) async fn title(
    executions: &Executions,
    resolved: &ResolvedRequest,
    input: &str,
    answer: &str,
) -> (String, Option<EngineMessage>) {
    let env = environment(&executions.options.engine_env.0, &resolved.model);
    let light_model = aliases(resolved, &env)
        .get("haiku")
        .cloned()
        .unwrap_or_else(|| resolved.model.model_name.clone());
    let request = TitleRequest {
        model: resolved.model.clone(),
        light_model,
        input: input.to_owned(),
        answer: answer.to_owned(),
        env,
    };
    let fallback = || title_from(input).unwrap_or_else(|| "Untitled".to_owned());
    match tokio::time::timeout(TITLE_WAIT, resolved.engine.generate_title(&request)).await {
        Ok(Some(Ok(titled))) => {
            let spent = EngineMessage::Spent {
                who: TokenSpender::Main,
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

impl Executions {
    /// Stores the outcome of an execution and releases the conversation, in one commit.
    /// Retries while the store is unavailable, until this node loses its lease.
    pub(super) async fn conclude(
        &self,
        started: &StoredDocument<Run>,
        context: &ExecutionContext<'_>,
        report: ExecutionReport,
        lost: &CancellationToken,
    ) -> Result<(), AppError> {
        let mut run = started.clone();
        let mut conversation = context.resolved.conversation.clone();
        loop {
            let commit = self.ending_commit(&run, &conversation, context, &report).await;
            let committed = match commit {
                Ok(commit) => {
                    failpoint::hit("execution.before_conclude");
                    self.runtime.store().commit(commit).await
                }
                Err(AppError::Unavailable(_)) => Err(StoreError::unavailable("").into()),
                Err(other) => return Err(other),
            };
            match committed {
                Ok(_) => {
                    failpoint::hit("execution.after_conclude");
                    return Ok(());
                }
                // A cancellation or a change of the conversation came in between: decide again.
                Err(CommitError::Conflict(_)) => {
                    let Conversation { tenant, id, .. } = &conversation.value;
                    run = self.runtime.load_run(tenant, &run.value.id).await?;
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
        run: &StoredDocument<Run>,
        conversation: &StoredDocument<Conversation>,
        context: &ExecutionContext<'_>,
        report: &ExecutionReport,
    ) -> Result<Commit, AppError> {
        let now = self.runtime.store().now().await?;
        let decision = decide(&run.value, RunCommand::Conclude(report.conclusion()), now)?;
        let mut commit = apply(Commit::new(), &decision, ExpectedVersion::Version(run.version))?
            .guarded_by(context.node.clone())
            .guarded_by(context.lock.guard.clone())
            .lease(LeaseChange::Release { guard: context.lock.guard.clone() });
        add_bill(&mut commit, &decision.run, &report.rows, now)?;
        commit.appends.extend(run.value.is_resumable().then(|| close_journal(&run.value)));
        if report.is_success {
            commit.records.extend(message_records(&decision.run, context)?);
            commit.records.push(advance_conversation(conversation, report)?);
            if let Some(session) = &report.session_id {
                let packed =
                    self.session_files_change(&context.resolved, &context.home, session).await?;
                commit.records.extend(packed);
            }
        }
        Ok(commit)
    }
}

/// The conversation after a completed turn.
fn advance_conversation(
    conversation: &StoredDocument<Conversation>,
    report: &ExecutionReport,
) -> Result<RecordChange, AppError> {
    let mut next = conversation.value.clone();
    next.session_id.clone_from(&report.session_id);
    next.turns += 1;
    if next.title.is_none() {
        next.title.clone_from(&report.title);
    }
    Ok(RecordChange::put(&next, ExpectedVersion::Version(conversation.version))?)
}

/// One record for each usage row, and what they add to the totals of their day.
pub(super) fn add_bill(
    commit: &mut Commit,
    run: &Run,
    rows: &[UsageRow],
    now: Timestamp,
) -> Result<(), AppError> {
    let logs = rows.iter().zip(1..);
    let logs = logs.filter_map(|(row, number)| UsageLog::new(run, number, row.clone(), now));
    let logs: Vec<_> = logs.collect();
    for log in &logs {
        commit.records.push(RecordChange::put(log, ExpectedVersion::New)?);
    }
    commit.totals.extend(bill_totals(&logs));
    Ok(())
}

/// One record for each message and each tool call.
fn message_records(
    run: &Run,
    context: &ExecutionContext<'_>,
) -> Result<Vec<RecordChange>, AppError> {
    let Some(execution) = &run.execution else { return Ok(Vec::new()) };
    let asked = ConversationMessage {
        kind: MessageKind::User,
        subtype: None,
        content: json!({ "type": "text", "text": context.prompt }),
        parent_tool_use_id: None,
        at: context.asked_at,
    };
    let messages = std::iter::once(&asked).chain(context.processor.messages()).zip(1..);
    let messages = messages.map(|(message, seq)| {
        let (conversation, turn) = (&execution.conversation, execution.turn);
        RecordChange::put(
            &MessageLog::new(run, conversation, turn, seq, message),
            ExpectedVersion::New,
        )
    });
    let tools = context.processor.tools().iter().zip(1..);
    let tools =
        tools.map(|(call, n)| RecordChange::put(&ToolLog::new(run, n, call), ExpectedVersion::New));
    Ok(messages.chain(tools).collect::<Result<_, _>>()?)
}
