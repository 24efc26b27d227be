//! What one can ask of runs besides starting them: look, list, answer, cancel.

use std::sync::Arc;

use serde_json::{Value, json};
use shikiri_model::connection::Continuation;
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{NodeId, QuestionId, RunId, TenantId};
use shikiri_model::lease::Guard;
use shikiri_model::record::{Document, Expect, Position, RecordChange, RecordQuery, Stored};
use shikiri_model::run::{
    Answer, AnswerAction, Command, Decision, QuestionKind, Run, RunStatus, decide, fill_in,
    stream_of,
};
use shikiri_model::tenant::TenantStatus;
use shikiri_model::time::Timestamp;
use shikiri_store::{Append, Commit, CommitError, Committed, StoreExt};

use super::agent::Agent;
use super::node::control_stream;
use crate::app::{App, busy, max_tries};
use crate::error::AppError;
use crate::failpoint;

/// A run as the outside sees it.
#[derive(Clone, Debug)]
pub struct RunView {
    pub run: Run,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The latest progress: `{"progress", "total", "message"}`.
    pub progress: Option<Value>,
}

impl App {
    pub fn agent(&self, name: &str) -> Option<&Arc<dyn Agent>> {
        self.agents.get(name)
    }

    /// The agents that this process can run, by name.
    pub fn agents(&self) -> impl Iterator<Item = &Arc<dyn Agent>> {
        self.agents.iter()
    }

    pub fn agent_names(&self) -> Vec<&'static str> {
        self.agents.names().collect()
    }

    pub async fn run(&self, tenant: &TenantId, id: &RunId) -> Result<RunView, AppError> {
        self.view(self.load_run(tenant, id).await?).await
    }

    pub(crate) async fn load_run(
        &self,
        tenant: &TenantId,
        id: &RunId,
    ) -> Result<Stored<Run>, AppError> {
        let found = self.store.load::<Run>(tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("run", id))
    }

    pub async fn list_runs(
        &self,
        tenant: &TenantId,
        status: Option<RunStatus>,
        after: Option<Position>,
        limit: u32,
    ) -> Result<(Vec<Stored<Run>>, Option<Position>), AppError> {
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

    /// Stops a run and the runs that it called. Stopping an ended run is refused, but what a
    /// cancelled one left behind is stopped all the same.
    pub async fn cancel_run(&self, tenant: &TenantId, id: &RunId) -> Result<RunView, AppError> {
        let cancelled = self.change_run(tenant, id, None, |_| Command::Cancel).await;
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
                // A child that ended meanwhile needs no stopping.
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
        answer: Answer,
    ) -> Result<RunView, AppError> {
        let answer = self.checked(tenant, id, question, answer).await?;
        let command =
            |_: &Run| Command::Answer { question: question.clone(), answer: answer.clone() };
        self.change_run(tenant, id, None, command).await?;
        self.run(tenant, id).await
    }

    /// Gives the answers that the holder of a ticket brings, and uses the ticket up: all of it
    /// happens or nothing, so that who is cut off before can send the same again. Returns how many
    /// fitted an open question; None if the ticket was used meanwhile.
    pub async fn answer_run_with(
        &self,
        ticket: &Stored<Continuation>,
        answers: &[(QuestionId, Answer)],
    ) -> Result<Option<usize>, AppError> {
        let (key, version) = (ticket.value.key(), ticket.version);
        let Continuation { tenant, run, .. } = &ticket.value;
        for _ in 0..max_tries() {
            let stored = self.load_run(tenant, run).await?;
            let now = self.store.now().await?;
            let (decision, taken) = answer_all(stored.value, answers, now);
            let mut commit =
                Commit::new().record(RecordChange::Delete { key: key.clone(), version });
            if taken > 0 {
                commit = apply(commit, &decision, Expect::Version(stored.version))?;
            }
            match self.store.commit(commit).await {
                Ok(_) => return Ok(Some(taken)),
                Err(CommitError::Conflict(changed)) if changed == key => return Ok(None),
                Err(CommitError::Conflict(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Err(busy("run", run.as_str()))
    }

    async fn checked(
        &self,
        tenant: &TenantId,
        id: &RunId,
        question: &QuestionId,
        answer: Answer,
    ) -> Result<Answer, AppError> {
        let run = self.load_run(tenant, id).await?.value;
        fitting(&run, question, answer).map_err(|reason| AppError::invalid("content", reason))
    }

    async fn view(&self, stored: Stored<Run>) -> Result<RunView, AppError> {
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
    pub(crate) async fn open_runs(
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

    /// Commits only while the tenant is active: nothing is made for one that is being removed.
    pub(crate) async fn commit_in_tenant(
        &self,
        tenant: &TenantId,
        commit: Commit,
    ) -> Result<Committed, CommitOrRefusal> {
        for _ in 0..max_tries() {
            let stored = self.tenant(tenant).await?;
            if stored.value.status == TenantStatus::Inactive {
                let id = tenant.to_string();
                return Err(AppError::Inactive { kind: "tenant", id }.into());
            }
            let key = stored.value.key();
            let commit = commit.clone().requiring(key.clone(), stored.version);
            match self.store.commit(commit).await {
                Err(CommitError::Conflict(changed)) if changed == key => {}
                other => return Ok(other?),
            }
        }
        Err(busy("tenant", tenant.as_str()).into())
    }

    /// Loads the run, decides and commits, starting over when somebody else was first. With a
    /// guard, only while that lease is held.
    pub(super) async fn change_run(
        &self,
        tenant: &TenantId,
        id: &RunId,
        guard: Option<&Guard>,
        command: impl Fn(&Run) -> Command,
    ) -> Result<Stored<Run>, AppError> {
        for _ in 0..max_tries() {
            let stored = self.load_run(tenant, id).await?;
            let command = command(&stored.value);
            match self.commit_run(&stored, command, guard).await {
                Err(CommitOrRefusal::Commit(CommitError::Conflict(_))) => {}
                // The node to be told is gone, and so the run is not its any more.
                Err(CommitOrRefusal::Commit(CommitError::Closed(told)))
                    if told != stream_of(id) => {}
                other => return Ok(other?),
            }
        }
        Err(busy("run", id.as_str()))
    }

    /// One decision about a run, committed with what follows from it for others: its parent
    /// learns that it ended, its node that it should stop.
    pub(super) async fn commit_run(
        &self,
        stored: &Stored<Run>,
        command: Command,
        guard: Option<&Guard>,
    ) -> Result<Stored<Run>, CommitOrRefusal> {
        let now = self.store.now().await.map_err(CommitError::from)?;
        let before = &stored.value;
        let decision = decide(before, command, now).map_err(AppError::from)?;
        let mut commit = apply(Commit::new(), &decision, Expect::Version(stored.version))?;
        commit.guards.extend(guard.cloned());
        if !before.cancel_requested && decision.run.cancel_requested {
            commit.appends.extend(before.node.as_ref().map(|node| stop_note(node, &before.id)));
        }
        if decision.run.status.is_terminal() {
            commit = self.tell_parent(commit, &decision.run, now).await?;
        }
        failpoint::hit("run.before_commit");
        let committed = self.store.commit(commit).await?;
        failpoint::hit("run.after_commit");
        Ok(Stored {
            version: stored.version + 1,
            attempts: 0,
            created_at: stored.created_at,
            updated_at: committed.at,
            value: decision.run,
        })
    }

    async fn tell_parent(
        &self,
        commit: Commit,
        run: &Run,
        now: Timestamp,
    ) -> Result<Commit, CommitOrRefusal> {
        let (Some(parent), Some(outcome)) = (&run.parent, run.outcome()) else {
            return Ok(commit);
        };
        let found = self.store.load::<Run>(&run.tenant, parent.run.as_str()).await;
        let Some(stored) = found.map_err(CommitError::from)? else { return Ok(commit) };
        let child = run.id.to_string();
        let command = Command::ChildEnded { index: parent.index, child, outcome };
        match decide(&stored.value, command, now) {
            Ok(decision) => apply(commit, &decision, Expect::Version(stored.version)),
            // A parent that has ended does not wait.
            Err(_) => Ok(commit),
        }
    }
}

/// A failed `commit_run`: the caller may try again only for the first kind.
#[derive(Debug)]
pub(crate) enum CommitOrRefusal {
    Commit(CommitError),
    Refused(AppError),
}

impl From<CommitOrRefusal> for AppError {
    fn from(error: CommitOrRefusal) -> Self {
        match error {
            CommitOrRefusal::Commit(error) => error.into(),
            CommitOrRefusal::Refused(error) => error,
        }
    }
}

impl From<CommitError> for CommitOrRefusal {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<AppError> for CommitOrRefusal {
    fn from(error: AppError) -> Self {
        Self::Refused(error)
    }
}

/// A person's yes must fit the form that it answers; what was left out is filled in.
fn fitting(run: &Run, question: &QuestionId, mut answer: Answer) -> Result<Answer, String> {
    let asked = run.questions.iter().find(|asked| asked.id == *question);
    let form = asked.filter(|asked| asked.kind == QuestionKind::Human).map(|a| &a.schema);
    if let (Some(form), AnswerAction::Accept) = (form, answer.action) {
        answer.content = fill_in(form, &answer.content)?;
    }
    Ok(answer)
}

/// What becomes of a run by those of the answers that fit an open question, and how many do.
fn answer_all(run: Run, answers: &[(QuestionId, Answer)], now: Timestamp) -> (Decision, usize) {
    let (mut decision, mut taken) = (Decision { run, events: Vec::new() }, 0);
    for (question, answer) in answers {
        let Ok(answer) = fitting(&decision.run, question, answer.clone()) else { continue };
        let command = Command::Answer { question: question.clone(), answer };
        if let Ok(Decision { run, events }) = decide(&decision.run, command, now) {
            decision.run = run;
            decision.events.extend(events);
            taken += 1;
        }
    }
    (decision, taken)
}

/// The commit that makes a new run.
pub(super) fn enqueue(run: &Run, now: Timestamp) -> Result<Commit, AppError> {
    let decision = decide(run, Command::Enqueue, now)?;
    Ok(apply(Commit::new(), &decision, Expect::New)?)
}

pub(crate) fn apply(
    mut commit: Commit,
    decision: &Decision,
    expect: Expect,
) -> Result<Commit, CommitOrRefusal> {
    let run = &decision.run;
    commit.records.push(RecordChange::put(run, expect).map_err(AppError::from)?);
    commit.appends.push(Append {
        tenant: run.tenant.clone(),
        stream: stream_of(&run.id),
        create: expect == Expect::New,
        events: decision.events.clone(),
        note: None,
        close: run.status.is_terminal(),
    });
    Ok(commit)
}

fn stop_note(node: &NodeId, run: &RunId) -> Append {
    let event = NewEvent::from_value("stop_run", &json!({ "run_id": run }));
    Append::new(TenantId::system(), control_stream(node), vec![event])
}
