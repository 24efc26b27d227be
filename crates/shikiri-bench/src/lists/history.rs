//! A store with the history of a tenant: half of its runs are executions with bills, spread evenly
//! over the same days, conversations, people and models, however many runs there are. A few runs of
//! each open status are the last ones; the others have ended.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use shikiri_model::conversation::{Conversation, ConversationStatus};
use shikiri_model::event::NewEvent;
use shikiri_model::execution::{
    Cost, Execution, ExecutionUser, SpenderKind, TokenUsage, UsageLog, UsageRow, bill_totals,
};
use shikiri_model::ids::{ConversationId, ModelId, RunId, TenantId};
use shikiri_model::models::EngineKind;
use shikiri_model::record::{ExpectedVersion, RecordChange};
use shikiri_model::run::{QuestionKind, Run, RunError, RunQuestion, RunStatus};
use shikiri_store::{Clock as _, Commit, FakeClock, Store, StreamAppend};

pub(super) const DAYS: u64 = 90;
const CONVERSATIONS: u64 = 20;
const EVENTS: u64 = 10;
/// Of each open status.
const OPEN: u64 = 25;
/// 2026-08-03, a Monday.
pub(super) const BEGIN: &str = "2026-08-03T00:00:00Z";

pub(super) struct HistorySize {
    pub(super) runs: u64,
}

impl HistorySize {
    /// Two commits a day, so that every store has the same days.
    fn runs_per_commit(&self) -> u64 {
        (self.runs / (2 * DAYS)).max(1)
    }

    /// Milliseconds between two runs.
    fn pace(&self) -> u64 {
        DAYS * 24 * 3_600 * 1_000 / self.runs
    }
}

/// Through the store's own commits, on a clock that goes with them.
pub(super) async fn write(
    store: &dyn Store,
    clock: &Arc<FakeClock>,
    size: &HistorySize,
) -> Result<()> {
    let mut number = 0;
    while number < size.runs {
        let mut commit = Commit::new();
        for _ in 0..size.runs_per_commit().min(size.runs - number) {
            add_run(&mut commit, number, size, clock)?;
            number += 1;
        }
        store.commit(commit).await?;
        clock.advance(Duration::from_millis(size.runs_per_commit() * size.pace()));
    }
    Ok(())
}

/// A conversation that belongs to a part of the days.
pub(super) fn conversation(number: u64, size: &HistorySize) -> ConversationId {
    let known = format!("cnv_{:04}", number * CONVERSATIONS / size.runs);
    known.parse().unwrap_or_else(|_| unreachable!("a valid id"))
}

fn add_run(
    commit: &mut Commit,
    number: u64,
    size: &HistorySize,
    clock: &Arc<FakeClock>,
) -> Result<()> {
    let now = clock.now();
    let tenant = TenantId::local();
    let is_execution = number.is_multiple_of(2);
    let mut entropy = [0; 10];
    entropy[..8].copy_from_slice(&number.to_be_bytes());
    let id =
        if is_execution { RunId::mint_execution(now, entropy) } else { RunId::mint(now, entropy) };
    let input = json!({ "task": "資料をまとめる", "number": number });
    let mut run = Run::new(id, tenant.clone(), "writer".into(), input, now);
    run.due_at = None;
    run.status = status(size.runs - number - 1);
    match run.status {
        RunStatus::Completed => run.result = Some(json!({ "text": "済みました".repeat(20) })),
        RunStatus::Failed => run.error = Some(RunError::new("FAILED", "a tool failed")),
        RunStatus::Waiting => run.questions.push(question(number)?),
        _ => {}
    }
    if is_execution {
        add_bill(commit, &mut run, number, size, clock)?;
    }
    let events =
        (0..EVENTS).map(|n| NewEvent::from_value("log", &json!({ "text": "一行", "n": n })));
    let mut append = StreamAppend::new(tenant, run.stream(), events.collect());
    append.close = run.status.is_terminal();
    commit.appends.push(append);
    commit.records.push(RecordChange::put(&run, ExpectedVersion::New)?);
    // As many conversations as a tenth of the runs, half of them archived.
    if number.is_multiple_of(10) {
        let mut one = Conversation::new(format!("cnv_of_{number}").parse()?, TenantId::local());
        one.title = Some("議事録".to_owned());
        if number.is_multiple_of(20) {
            one.status = ConversationStatus::Archived;
        }
        commit.records.push(RecordChange::put(&one, ExpectedVersion::New)?);
    }
    Ok(())
}

/// By how many runs come later.
fn status(later: u64) -> RunStatus {
    match later {
        _ if later < OPEN => RunStatus::Queued,
        _ if later < 2 * OPEN => RunStatus::Running,
        _ if later < 3 * OPEN => RunStatus::Waiting,
        _ if later.is_multiple_of(19) => RunStatus::Failed,
        _ if later.is_multiple_of(17) => RunStatus::Cancelled,
        _ => RunStatus::Completed,
    }
}

fn question(number: u64) -> Result<RunQuestion> {
    Ok(RunQuestion {
        id: format!("qst_{number}").parse()?,
        index: 1,
        name: None,
        kind: QuestionKind::Human,
        message: "続けますか".to_owned(),
        schema: json!({}),
        expires_at: None,
    })
}

fn add_bill(
    commit: &mut Commit,
    run: &mut Run,
    number: u64,
    size: &HistorySize,
    clock: &Arc<FakeClock>,
) -> Result<()> {
    let user_id = ["ann", "bo", "千"][(number / 2 % 3) as usize].to_owned();
    run.execution = Some(Box::new(Execution {
        conversation: conversation(number, size),
        turn: 1,
        model_id: ModelId::offline(),
        engine: EngineKind::Offline,
        executor: ExecutionUser { user_id, name: None, email: None },
        is_resumable: false,
        confinement: None,
        usage: TokenUsage::default(),
        total_cost_usd: Cost::default(),
    }));
    if !run.status.is_terminal() {
        return Ok(());
    }
    let row = |kind, model: &str, subagent_type: Option<&str>| UsageRow {
        kind,
        tool_use_id: None,
        agent_id: None,
        subagent_type: subagent_type.map(str::to_owned),
        model: model.to_owned(),
        usage: TokenUsage { input_tokens: number, output_tokens: 7, ..TokenUsage::default() },
        cost_usd: Cost::from_picos(u128::from(number) * 1_000_003),
    };
    let rows = [
        row(SpenderKind::Main, "opus", None),
        row(SpenderKind::Subagent, "haiku", Some(["調査", "Plan"][(number / 2 % 2) as usize])),
    ];
    let logs = rows.into_iter().zip(1..);
    let logs: Vec<_> =
        logs.filter_map(|(row, nth)| UsageLog::new(run, nth, row, clock.now())).collect();
    for log in &logs {
        commit.records.push(RecordChange::put(log, ExpectedVersion::New)?);
    }
    commit.totals.extend(bill_totals(&logs));
    Ok(())
}
