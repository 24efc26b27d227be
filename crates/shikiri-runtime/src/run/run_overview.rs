//! What a tenant's runs do as a whole, without reading those that have ended: how many have which
//! status, which failed lately, and which questions wait for an answer.

use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::record::{RecordPosition, RecordQuery, StoredDocument};
use shikiri_model::run::{RUN_COUNTS, Run, RunCounts, RunQuestion, RunStatus};
use shikiri_model::total::TotalQuery;

use crate::error::AppError;
use crate::runtime::Runtime;

/// A question of a run that waits for its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenQuestion {
    pub run: RunId,
    pub agent: String,
    /// With its kind, message, form and `expires_at`.
    pub question: RunQuestion,
}

impl OpenQuestion {
    /// Its place in the list. It stays the same when others are answered.
    fn position(&self) -> RecordPosition {
        RecordPosition {
            created_at: self.run.minted_at().unwrap_or_default(),
            id: format!("{}-{:010}", self.run, self.question.index),
        }
    }
}

impl Runtime {
    /// How many runs of a tenant have which status, executions apart. The numbers are kept by the
    /// commits that change them, so this reads no run.
    pub async fn count_runs_by_status(&self, tenant: &TenantId) -> Result<RunCounts, AppError> {
        self.tenant(tenant).await?;
        let totals = self.store.totals(TotalQuery::of(RUN_COUNTS, tenant)).await?;
        Ok(RunCounts::from_totals(&totals))
    }

    /// The newest failed runs and executions of a tenant.
    pub async fn newest_failed_runs(
        &self,
        tenant: &TenantId,
        limit: u32,
    ) -> Result<Vec<StoredDocument<Run>>, AppError> {
        Ok(self.list_runs(tenant, Some(RunStatus::Failed), None, limit).await?.0)
    }

    /// The questions of a tenant's runs that have no answer and have not expired, oldest run first.
    /// A run that works may have some, too.
    pub async fn open_questions(&self, tenant: &TenantId) -> Result<Vec<OpenQuestion>, AppError> {
        self.tenant(tenant).await?;
        let now = self.store.now().await?;
        let mut runs: Vec<Run> = Vec::new();
        for status in [RunStatus::Waiting, RunStatus::Running, RunStatus::Queued] {
            let query = RecordQuery {
                state: Some(status.as_str().to_owned()),
                ..RecordQuery::of::<Run>(tenant)
            };
            for run in self.list_all::<Run>(query).await? {
                // A run may have changed its status between the lists.
                if !run.questions.is_empty() && runs.iter().all(|known| known.id != run.id) {
                    runs.push(run);
                }
            }
        }
        // Ids sort by time.
        runs.sort_by(|a, b| a.id.cmp(&b.id));
        let questions = runs.into_iter().flat_map(|run| {
            let (id, agent) = (run.id, run.agent);
            run.questions.into_iter().map(move |question| OpenQuestion {
                run: id.clone(),
                agent: agent.clone(),
                question,
            })
        });
        Ok(questions.filter(|open| open.question.expires_at.is_none_or(|at| at > now)).collect())
    }

    /// A page of the open questions, and where the next one begins.
    pub async fn list_open_questions(
        &self,
        tenant: &TenantId,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<OpenQuestion>, Option<RecordPosition>), AppError> {
        let mut open = self.open_questions(tenant).await?;
        open.sort_by_key(|open| open.position().id);
        if let Some(after) = after {
            open.retain(|open| open.position().id > after.id);
        }
        let limit = limit as usize;
        let has_more = open.len() > limit;
        open.truncate(limit);
        let next = open.last().filter(|_| has_more).map(OpenQuestion::position);
        Ok((open, next))
    }
}
