//! What goes on in a tenant, for a person who asks: what waits for them, what runs, what it costs.

use std::time::Duration;

use shikiri_model::ids::TenantId;
use shikiri_model::lane::Lane;
use shikiri_model::record::StoredDocument;
use shikiri_model::run::{QuestionKind, Run, RunCounts, RunStatus};
use shikiri_model::team::{Dialogue, DialogueEndReason};
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;
use shikiri_runtime::run::{NodeView, OpenQuestion, RunView};
use shikiri_subagents::ClaudeSessionView;
use shikiri_tenancy::usage::{GroupBy, ReportPeriod, UsageReport};

use crate::App;

/// Records of a kind that are read to find those that matter now.
const MOST_READ: u32 = 100;
/// Sessions of Claude Code, and runs with their progress.
const MOST_SHOWN: u32 = 10;

/// A session of Claude Code without an event for so long is not shown: it may have ended untold.
const RECENT: Duration = Duration::from_secs(24 * 3_600);

/// A tenant's affairs at one moment. Every list is newest first and bounded.
#[derive(Clone, Debug)]
pub struct StatusReport {
    pub at: Timestamp,
    /// Processes of the whole store.
    pub nodes: Vec<NodeView>,
    /// Those with an event in the last 24 hours.
    pub claude_sessions: Vec<ClaudeSessionView>,
    pub counts: RunCounts,
    /// Runs and executions that run or are in the queue.
    pub active: Vec<RunView>,
    /// Questions to a person, of which there may be more.
    pub questions: Vec<WaitingQuestion>,
    pub question_count: usize,
    /// Runs and executions that failed today.
    pub failed: Vec<StoredDocument<Run>>,
    /// Dialogues that have not ended.
    pub dialogues: Vec<StoredDocument<Dialogue>>,
    /// Dialogues that were cancelled today.
    pub cancelled_dialogues: Vec<StoredDocument<Dialogue>>,
    pub lanes: Vec<StoredDocument<Lane>>,
    /// What executions spent today, by model.
    pub spend: Option<UsageReport>,
}

/// A question that waits for a person.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingQuestion {
    pub open: OpenQuestion,
    pub since: Timestamp,
}

impl App {
    /// What goes on in a tenant, where "today" began at `today`.
    pub async fn status(
        &self,
        tenant: &TenantId,
        today: Timestamp,
    ) -> Result<StatusReport, AppError> {
        let mut report = StatusReport {
            at: self.runtime.store().now().await?,
            nodes: self.runtime.list_nodes().await?,
            claude_sessions: Vec::new(),
            counts: RunCounts::default(),
            active: Vec::new(),
            questions: Vec::new(),
            question_count: 0,
            failed: Vec::new(),
            dialogues: Vec::new(),
            cancelled_dialogues: Vec::new(),
            lanes: Vec::new(),
            spend: None,
        };
        report.claude_sessions =
            self.subagents.claude_sessions(tenant, MOST_SHOWN as usize).await?;
        let now = report.at;
        report.claude_sessions.retain(|session| now.since(session.activity.last_at) < RECENT);
        match self.runtime.tenant(tenant).await {
            Ok(_) => {}
            // Hooks write for it before it is created.
            Err(AppError::NotFound { .. }) if *tenant == TenantId::local() => return Ok(report),
            Err(error) => return Err(error),
        }
        self.read_runs(tenant, today, &mut report).await?;
        self.read_dialogues(tenant, today, &mut report).await?;
        report.lanes = self.lanes.list_lanes(tenant, false, None, MOST_READ).await?.0;
        report.lanes.sort_by_key(|lane| std::cmp::Reverse(lane.value.last_access));
        let period = ReportPeriod { from: Some(today), to: None };
        report.spend = Some(self.tenancy.usage(Some(tenant), GroupBy::Model, period).await?);
        Ok(report)
    }

    async fn read_runs(
        &self,
        tenant: &TenantId,
        today: Timestamp,
        report: &mut StatusReport,
    ) -> Result<(), AppError> {
        report.counts = self.runtime.count_runs_by_status(tenant).await?;
        for status in [RunStatus::Running, RunStatus::Queued] {
            let found = self.runtime.list_runs(tenant, Some(status), None, MOST_SHOWN).await?.0;
            for run in found {
                match self.runtime.run(tenant, &run.value.id).await {
                    Ok(view) => report.active.push(view),
                    // Its tenant is being removed.
                    Err(AppError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.read_questions(tenant, report).await?;
        report.failed = self.runtime.newest_failed_runs(tenant, MOST_READ).await?;
        report.failed.retain(|run| run.value.ended_at.is_some_and(|at| at >= today));
        Ok(())
    }

    /// The newest questions to a person. The run's last change tells since when it waits.
    async fn read_questions(
        &self,
        tenant: &TenantId,
        report: &mut StatusReport,
    ) -> Result<(), AppError> {
        let mut open = self.runtime.open_questions(tenant).await?;
        open.retain(|open| open.question.kind == QuestionKind::Human);
        report.question_count = open.len();
        for open in open.into_iter().rev().take(MOST_READ as usize) {
            match self.runtime.load_run(tenant, &open.run).await {
                Ok(run) => {
                    report.questions.push(WaitingQuestion { open, since: run.updated_at });
                }
                // Its tenant is being removed.
                Err(AppError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn read_dialogues(
        &self,
        tenant: &TenantId,
        today: Timestamp,
        report: &mut StatusReport,
    ) -> Result<(), AppError> {
        for dialogue in self.teams.newest_dialogues(tenant, MOST_READ).await? {
            match &dialogue.value.end {
                None => report.dialogues.push(dialogue),
                Some(end) if end.reason == DialogueEndReason::Cancelled && end.at >= today => {
                    report.cancelled_dialogues.push(dialogue);
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
