//! A commit in the making.

use std::collections::BTreeSet;

use shikiri_model::event::NewEvent;
use shikiri_model::ids::TenantId;
use shikiri_model::record::{Document, Expect, RecordChange, Stored};
use shikiri_model::team::{AgentKind, Dialogue, Place, TeamAgent, Waiting, What};
use shikiri_model::tenant::TenantStatus;
use shikiri_model::time::Timestamp;
use shikiri_store::{Append, Commit, CommitError, StoreExt};

use super::TeamError;
use crate::app::App;
use crate::error::AppError;

pub(super) struct Draft {
    pub(super) now: Timestamp,
    tenant: TenantId,
    commit: Commit,
    bells: BTreeSet<Place>,
}

impl Draft {
    pub(super) async fn begin(app: &App, tenant: &TenantId) -> Result<Self, TeamError> {
        Ok(Self {
            now: app.store.now().await?,
            tenant: tenant.clone(),
            commit: Commit::new(),
            bells: BTreeSet::new(),
        })
    }

    /// For what somebody makes from outside: only an active tenant gets more, and nothing comes to
    /// be while one is removed.
    pub(super) async fn for_active(app: &App, tenant: &TenantId) -> Result<Self, TeamError> {
        let owner = app.tenant(tenant).await?;
        if owner.value.status == TenantStatus::Inactive {
            return Err(AppError::Inactive { kind: "tenant", id: tenant.to_string() }.into());
        }
        app.check_storage(&owner.value, 0).await?;
        let mut draft = Self::begin(app, tenant).await?;
        draft.require(&owner);
        Ok(draft)
    }

    pub(super) fn add<T: Document>(&mut self, value: &T) -> Result<(), TeamError> {
        self.commit.records.push(RecordChange::put(value, Expect::New)?);
        Ok(())
    }

    pub(super) fn put<T: Document>(&mut self, stored: &Stored<T>) -> Result<(), TeamError> {
        let put = RecordChange::put(&stored.value, Expect::Version(stored.version))?;
        self.commit.records.push(put);
        Ok(())
    }

    pub(super) fn remove<T: Document>(&mut self, stored: &Stored<T>) {
        let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
        self.commit.records.push(delete);
    }

    /// Nothing is written if this has changed since it was read.
    pub(super) fn require<T: Document>(&mut self, stored: &Stored<T>) {
        self.commit.requires.push((stored.value.key(), stored.version));
    }

    /// Adds to what was said; the end closes it.
    pub(super) fn tell(&mut self, dialogue: &Dialogue, events: Vec<NewEvent>) {
        let append = Append::new(self.tenant.clone(), dialogue.stream(), events);
        self.commit.appends.push(Append { close: !dialogue.is_living(), ..append });
    }

    pub(super) fn ring(&mut self, place: Place) {
        self.bells.insert(place);
    }

    /// Puts something on an agent's list.
    pub(super) async fn await_agent(
        &mut self,
        app: &App,
        place: Place,
        what: What,
    ) -> Result<(), TeamError> {
        let item = self.item(app, place.clone(), what).await?;
        self.add(&item)?;
        self.ring(place);
        Ok(())
    }

    /// Something for an agent's list, up for starting the agent if that can be.
    pub(super) async fn item(
        &self,
        app: &App,
        place: Place,
        what: What,
    ) -> Result<Waiting, TeamError> {
        let agent = app.store.load::<TeamAgent>(&self.tenant, place.agent.as_str()).await?;
        let can_be_started = agent.is_some_and(|agent| agent.value.can_be_started());
        let due_at = can_be_started.then_some(self.now);
        Ok(Waiting::new(self.tenant.clone(), place, what, due_at))
    }

    /// Takes something off an agent's list, if it is there.
    pub(super) async fn stop_waiting(&mut self, app: &App, id: &str) -> Result<(), TeamError> {
        if let Some(waiting) = app.store.load::<Waiting>(&self.tenant, id).await? {
            self.remove(&waiting);
        }
        Ok(())
    }

    pub(super) fn into_commit(self) -> Commit {
        let mut commit = self.commit;
        for place in self.bells {
            let bell = place.bell(&self.tenant);
            let ring = Append::new(self.tenant.clone(), bell, Vec::new());
            commit.appends.push(Append { note: Some(self.now.to_string()), ..ring });
        }
        commit
    }

    /// Commits it. None if somebody else was first: then nothing is written.
    pub(super) async fn settle<T>(self, app: &App, answer: T) -> Result<Option<T>, TeamError> {
        match app.store.commit(self.into_commit()).await {
            Ok(_) => Ok(Some(answer)),
            Err(
                CommitError::Conflict(_)
                | CommitError::Exists(_)
                | CommitError::NotUnique(_)
                | CommitError::Closed(_),
            ) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }
}

/// Whether talk with this agent is between machines.
pub(super) fn is_human(agent: &TeamAgent) -> bool {
    agent.kind == AgentKind::Human
}
