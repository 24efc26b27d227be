//! Use cases of runs besides starting them: read, list, answer, cancel.

use std::sync::Arc;

use serde_json::{Value, json};
use shikiri_model::connection::CallContinuation;
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{NodeId, QuestionId, RunId, TenantId};
use shikiri_model::lease::LeaseGuard;
use shikiri_model::record::{
    Document, ExpectedVersion, RecordChange, RecordPosition, RecordQuery, StoredDocument,
};
use shikiri_model::run::{
    AnswerAction, QuestionAnswer, QuestionKind, Run, RunCommand, RunDecision, RunStatus, decide,
    fill_form_defaults, run_stream,
};
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, CommitError, StoreExt, StreamAppend};

use super::agent::DurableAgent;
use super::node::control_stream;
use crate::error::AppError;
use crate::failpoint;
use crate::runtime::Runtime;
use crate::transact::transact;

/// A run as clients see it.
#[derive(Clone, Debug)]
pub struct RunView {
    pub run: Run,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The latest progress: `{"progress", "total", "message"}`.
    pub progress: Option<Value>,
}

impl Runtime {
    pub fn agent(&self, name: &str) -> Option<&Arc<dyn DurableAgent>> {
        self.agents.get(name)
    }

    /// The agents that this process can run, by name.
    pub fn agents(&self) -> impl Iterator<Item = &Arc<dyn DurableAgent>> {
        self.agents.iter()
    }

    pub fn agent_names(&self) -> Vec<&'static str> {
        self.agents.names().collect()
    }

    pub async fn run(&self, tenant: &TenantId, id: &RunId) -> Result<RunView, AppError> {
        self.view(self.load_run(tenant, id).await?).await
    }

    pub async fn load_run(
        &self,
        tenant: &TenantId,
        id: &RunId,
    ) -> Result<StoredDocument<Run>, AppError> {
        let found = self.store.load::<Run>(tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("run", id))
    }

    pub async fn list_runs(
        &self,
        tenant: &TenantId,
        status: Option<RunStatus>,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<Run>>, Option<RecordPosition>), AppError> {
        self.tenant(tenant).await?;
        self.list_records(RecordQuery {
            state: status.map(|status| status.as_str().to_owned()),
            after,
            newest_first: true,
            limit,
            ..RecordQuery::of::<Run>(tenant)
        })
        .await
    }

    /// Cancels a run and the runs that it called. An ended run is refused, but the open children of
    /// a cancelled one are cancelled all the same.
    pub async fn cancel_run(&self, tenant: &TenantId, id: &RunId) -> Result<RunView, AppError> {
        let cancelled = self.change_run(tenant, id, None, |_| RunCommand::Cancel).await;
        let view = self.run(tenant, id).await?;
        if view.run.cancel_requested || view.run.status == RunStatus::Cancelled {
            self.cancel_children(tenant, id).await?;
        }
        cancelled.map(|_| view)
    }

    pub(super) async fn cancel_children(
        &self,
        tenant: &TenantId,
        id: &RunId,
    ) -> Result<(), AppError> {
        for child in self.open_runs(tenant, Some(id)).await? {
            match Box::pin(self.cancel_run(tenant, &child)).await {
                // A child that ended meanwhile needs no cancelling.
                Ok(_) | Err(AppError::NotNow(_) | AppError::NotFound { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    pub async fn answer_run(
        &self,
        tenant: &TenantId,
        id: &RunId,
        question: &QuestionId,
        answer: QuestionAnswer,
    ) -> Result<RunView, AppError> {
        let answer = self.check_answer(tenant, id, question, answer).await?;
        let command =
            |_: &Run| RunCommand::Answer { question: question.clone(), answer: answer.clone() };
        self.change_run(tenant, id, None, command).await?;
        self.run(tenant, id).await
    }

    /// Applies the answers of a ticket's holder and writes that the ticket was used, in one commit:
    /// a caller that was cut off can send the same request again. `used` is the ticket as used, of
    /// which `version` was read. Returns how many answers fitted an open question; None if the
    /// ticket was used meanwhile.
    pub async fn answer_run_with(
        &self,
        used: &CallContinuation,
        version: u64,
        answers: &[(QuestionId, QuestionAnswer)],
    ) -> Result<Option<usize>, AppError> {
        let key = used.key();
        let CallContinuation { tenant, run, .. } = used;
        transact("run", run.as_str(), || async {
            let stored = self.load_run(tenant, run).await?;
            let now = self.store.now().await?;
            let (decision, taken) = answer_all(stored.value, answers, now);
            let put = RecordChange::put(used, ExpectedVersion::Version(version))?;
            let mut commit = Commit::new().record(put);
            if taken > 0 {
                commit = apply(commit, &decision, ExpectedVersion::Version(stored.version))?;
            }
            match self.store.commit(commit).await {
                Ok(_) => Ok(Some(Some(taken))),
                Err(CommitError::Conflict(changed)) if changed == key => Ok(Some(None)),
                Err(CommitError::Conflict(_)) => Ok(None),
                Err(other) => Err(other.into()),
            }
        })
        .await
    }

    async fn check_answer(
        &self,
        tenant: &TenantId,
        id: &RunId,
        question: &QuestionId,
        answer: QuestionAnswer,
    ) -> Result<QuestionAnswer, AppError> {
        let run = self.load_run(tenant, id).await?.value;
        validate_answer(&run, question, answer)
            .map_err(|reason| AppError::invalid("content", reason))
    }

    async fn view(&self, stored: StoredDocument<Run>) -> Result<RunView, AppError> {
        let run = stored.value;
        let state = self.store.stream(&run.tenant, &run.stream()).await?;
        let note = state.and_then(|state| state.note);
        Ok(RunView {
            progress: note.and_then(|note| serde_json::from_str(&note).ok()),
            created_at: stored.created_at,
            updated_at: stored.updated_at,
            run,
        })
    }

    /// The tenant's runs that have not ended, or those that `parent` called.
    pub async fn open_runs(
        &self,
        tenant: &TenantId,
        parent: Option<&RunId>,
    ) -> Result<Vec<RunId>, AppError> {
        let mut open = Vec::new();
        for status in [RunStatus::Queued, RunStatus::Running, RunStatus::Waiting] {
            let query = RecordQuery {
                state: Some(status.as_str().to_owned()),
                parent: parent.map(ToString::to_string),
                ..RecordQuery::of::<Run>(tenant)
            };
            let runs = self.list_all::<Run>(query).await?;
            open.extend(runs.into_iter().map(|run| run.id));
        }
        Ok(open)
    }

    /// Loads the run, decides and commits. Tries again after a conflicting write. With a guard,
    /// commits only while that lease is held.
    pub(super) async fn change_run(
        &self,
        tenant: &TenantId,
        id: &RunId,
        guard: Option<&LeaseGuard>,
        command: impl Fn(&Run) -> RunCommand,
    ) -> Result<StoredDocument<Run>, AppError> {
        transact("run", id.as_str(), || async {
            let stored = self.load_run(tenant, id).await?;
            let command = command(&stored.value);
            match self.commit_run(&stored, command, guard).await {
                Err(RunCommitError::Commit(CommitError::Conflict(_))) => Ok(None),
                // The run's node is gone, so the run has another owner by now.
                Err(RunCommitError::Commit(CommitError::Closed(closed)))
                    if closed != run_stream(id) =>
                {
                    Ok(None)
                }
                other => Ok(Some(other?)),
            }
        })
        .await
    }

    /// Commits one decision about a run together with its effects on others: the parent of an ended
    /// run is notified, and the node of a cancelled one is asked to stop it.
    pub(super) async fn commit_run(
        &self,
        stored: &StoredDocument<Run>,
        command: RunCommand,
        guard: Option<&LeaseGuard>,
    ) -> Result<StoredDocument<Run>, RunCommitError> {
        let now = self.store.now().await.map_err(CommitError::from)?;
        let before = &stored.value;
        let decision = decide(before, command, now).map_err(AppError::from)?;
        let mut commit = apply(Commit::new(), &decision, ExpectedVersion::Version(stored.version))?;
        commit.guards.extend(guard.cloned());
        if !before.cancel_requested && decision.run.cancel_requested {
            commit.appends.extend(before.node.as_ref().map(|node| stop_note(node, &before.id)));
        }
        if decision.run.status.is_terminal() {
            commit = self.notify_parent(commit, &decision.run, now).await?;
        }
        failpoint::hit("run.before_commit");
        let committed = self.store.commit(commit).await?;
        failpoint::hit("run.after_commit");
        Ok(StoredDocument {
            version: stored.version + 1,
            attempts: 0,
            created_at: stored.created_at,
            updated_at: committed.at,
            value: decision.run,
        })
    }

    async fn notify_parent(
        &self,
        commit: Commit,
        run: &Run,
        now: Timestamp,
    ) -> Result<Commit, RunCommitError> {
        let (Some(parent), Some(outcome)) = (&run.parent, run.outcome()) else {
            return Ok(commit);
        };
        let found = self.store.load::<Run>(&run.tenant, parent.run.as_str()).await;
        let Some(stored) = found.map_err(CommitError::from)? else { return Ok(commit) };
        let child = run.id.to_string();
        let command = RunCommand::ChildEnded { index: parent.index, child, outcome };
        match decide(&stored.value, command, now) {
            Ok(decision) => apply(commit, &decision, ExpectedVersion::Version(stored.version)),
            // A parent that has ended does not wait.
            Err(_) => Ok(commit),
        }
    }
}

/// A failed `commit_run`. The caller may try again only after `Commit`.
#[derive(Debug)]
pub enum RunCommitError {
    Commit(CommitError),
    Refused(AppError),
}

impl From<RunCommitError> for AppError {
    fn from(error: RunCommitError) -> Self {
        match error {
            RunCommitError::Commit(error) => error.into(),
            RunCommitError::Refused(error) => error,
        }
    }
}

impl From<CommitError> for RunCommitError {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<AppError> for RunCommitError {
    fn from(error: AppError) -> Self {
        Self::Refused(error)
    }
}

/// An accepting answer must fit the form of its question. Missing fields get their defaults.
fn validate_answer(
    run: &Run,
    question: &QuestionId,
    mut answer: QuestionAnswer,
) -> Result<QuestionAnswer, String> {
    let asked = run.questions.iter().find(|asked| asked.id == *question);
    let form = asked.filter(|asked| asked.kind == QuestionKind::Human).map(|a| &a.schema);
    if let (Some(form), AnswerAction::Accept) = (form, answer.action) {
        answer.content = fill_form_defaults(form, &answer.content)?;
    }
    Ok(answer)
}

/// Applies the answers that fit an open question. Returns the decision and how many fitted.
fn answer_all(
    run: Run,
    answers: &[(QuestionId, QuestionAnswer)],
    now: Timestamp,
) -> (RunDecision, usize) {
    let (mut decision, mut taken) = (RunDecision { run, events: Vec::new() }, 0);
    for (question, answer) in answers {
        let Ok(answer) = validate_answer(&decision.run, question, answer.clone()) else { continue };
        let command = RunCommand::Answer { question: question.clone(), answer };
        if let Ok(RunDecision { run, events }) = decide(&decision.run, command, now) {
            decision.run = run;
            decision.events.extend(events);
            taken += 1;
        }
    }
    (decision, taken)
}

/// The commit that creates a run.
pub(super) fn enqueue(run: &Run, now: Timestamp) -> Result<Commit, AppError> {
    let decision = decide(run, RunCommand::Enqueue, now)?;
    Ok(apply(Commit::new(), &decision, ExpectedVersion::New)?)
}

pub fn apply(
    mut commit: Commit,
    decision: &RunDecision,
    expect: ExpectedVersion,
) -> Result<Commit, RunCommitError> {
    let run = &decision.run;
    commit.records.push(RecordChange::put(run, expect).map_err(AppError::from)?);
    commit.appends.push(StreamAppend {
        tenant: run.tenant.clone(),
        stream: run_stream(&run.id),
        create: expect == ExpectedVersion::New,
        events: decision.events.clone(),
        note: None,
        close: run.status.is_terminal(),
    });
    Ok(commit)
}

fn stop_note(node: &NodeId, run: &RunId) -> StreamAppend {
    let event = NewEvent::from_value("stop_run", &json!({ "run_id": run }));
    StreamAppend::new(TenantId::system(), control_stream(node), vec![event])
}
