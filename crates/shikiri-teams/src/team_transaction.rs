//! A commit that is being prepared.

use std::collections::BTreeSet;

use shikiri_model::event::NewEvent;
use shikiri_model::ids::TenantId;
use shikiri_model::record::{Document, ExpectedVersion, RecordChange, StoredDocument};
use shikiri_model::team::{
    AgentKind, Dialogue, InboxItem, InboxItemKind, ProjectMember, ProjectMembership, TeamAgent,
    TeamCause,
};
use shikiri_model::tenant::TenantStatus;
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;
use shikiri_store::{Commit, CommitError, StoreExt, StreamAppend};

use super::TeamError;
use crate::Teams;

pub(super) struct TeamTransaction {
    pub(super) now: Timestamp,
    tenant: TenantId,
    commit: Commit,
    to_wake: BTreeSet<ProjectMember>,
}

impl TeamTransaction {
    pub(super) async fn begin(teams: &Teams, tenant: &TenantId) -> Result<Self, TeamError> {
        Ok(Self {
            now: teams.runtime.store().now().await?,
            tenant: tenant.clone(),
            commit: Commit::new(),
            to_wake: BTreeSet::new(),
        })
    }

    /// For what is created from outside: only an active tenant may create, and nothing is created
    /// while the tenant is removed.
    pub(super) async fn for_active(teams: &Teams, tenant: &TenantId) -> Result<Self, TeamError> {
        let owner = teams.runtime.tenant(tenant).await?;
        if owner.value.status == TenantStatus::Inactive {
            return Err(AppError::Inactive { kind: "tenant", id: tenant.to_string() }.into());
        }
        teams.runtime.check_storage(&owner.value, 0).await?;
        let mut transaction = Self::begin(teams, tenant).await?;
        transaction.require(&owner);
        Ok(transaction)
    }

    pub(super) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    pub(super) fn add<T: Document>(&mut self, value: &T) -> Result<(), TeamError> {
        self.commit.records.push(RecordChange::put(value, ExpectedVersion::New)?);
        Ok(())
    }

    /// Writes a record over the version that was read; version 0 is a new one.
    pub(super) fn put<T: Document>(&mut self, stored: &StoredDocument<T>) -> Result<(), TeamError> {
        let expected = match stored.version {
            0 => ExpectedVersion::New,
            version => ExpectedVersion::Version(version),
        };
        let put = RecordChange::put(&stored.value, expected)?;
        self.commit.records.push(put);
        Ok(())
    }

    pub(super) fn remove<T: Document>(&mut self, stored: &StoredDocument<T>) {
        let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
        self.commit.records.push(delete);
    }

    /// Makes the commit fail if this record has changed since it was read.
    pub(super) fn require<T: Document>(&mut self, stored: &StoredDocument<T>) {
        self.commit.requires.push((stored.value.key(), stored.version));
    }

    /// Requires an agent's membership, and records the cause of what is put in its inbox.
    pub(super) fn set_off(
        &mut self,
        teams: &Teams,
        membership: &mut StoredDocument<ProjectMembership>,
        cause: Option<&TeamCause>,
    ) -> Result<(), TeamError> {
        let longest = teams.limits.delegation_wall;
        match cause {
            Some(cause) if membership.value.set_off(cause, longest, self.now) => {
                self.put(membership)
            }
            _ => {
                self.require(membership);
                Ok(())
            }
        }
    }

    /// Records changes of who may do what.
    pub(super) fn audit<T: Document>(
        &mut self,
        teams: &Teams,
        before: Option<&T>,
        after: Option<&T>,
    ) -> Result<(), TeamError> {
        self.commit.appends.extend(teams.runtime.audit(before, after)?);
        Ok(())
    }

    /// Appends events to a dialogue's log; the end closes it.
    pub(super) fn tell(&mut self, dialogue: &Dialogue, events: Vec<NewEvent>) {
        let append = StreamAppend::new(self.tenant.clone(), dialogue.stream(), events);
        self.commit.appends.push(StreamAppend { close: !dialogue.is_living(), ..append });
    }

    pub(super) fn wake_agent(&mut self, member: ProjectMember) {
        self.to_wake.insert(member);
    }

    /// Adds an item to an agent's inbox.
    pub(super) async fn add_inbox_item(
        &mut self,
        teams: &Teams,
        member: ProjectMember,
        what: InboxItemKind,
    ) -> Result<(), TeamError> {
        let item = self.item(teams, member.clone(), what).await?;
        self.add(&item)?;
        self.wake_agent(member);
        Ok(())
    }

    /// Adds an item for which no agent is started: its next session sees it.
    pub(super) fn add_unstarted_item(
        &mut self,
        member: ProjectMember,
        what: InboxItemKind,
    ) -> Result<(), TeamError> {
        self.add(&InboxItem::new(self.tenant.clone(), member.clone(), what, None))?;
        self.wake_agent(member);
        Ok(())
    }

    /// A new inbox item. It is due at once if the agent can be started for it.
    pub(super) async fn item(
        &self,
        teams: &Teams,
        member: ProjectMember,
        what: InboxItemKind,
    ) -> Result<InboxItem, TeamError> {
        let agent =
            teams.runtime.store().load::<TeamAgent>(&self.tenant, member.agent.as_str()).await?;
        let can_be_started = agent.is_some_and(|agent| agent.value.can_be_started());
        let due_at = can_be_started.then_some(self.now);
        Ok(InboxItem::new(self.tenant.clone(), member, what, due_at))
    }

    /// Removes an item from an agent's inbox, if it is there.
    pub(super) async fn remove_inbox_item(
        &mut self,
        teams: &Teams,
        id: &str,
    ) -> Result<(), TeamError> {
        if let Some(waiting) = teams.runtime.store().load::<InboxItem>(&self.tenant, id).await? {
            self.remove(&waiting);
        }
        Ok(())
    }

    pub(super) fn into_commit(self) -> Commit {
        let mut commit = self.commit;
        for member in self.to_wake {
            let bell = member.wake_stream(&self.tenant);
            let ring = StreamAppend::new(self.tenant.clone(), bell, Vec::new());
            commit.appends.push(StreamAppend { note: Some(self.now.to_string()), ..ring });
        }
        commit
    }

    /// Commits it. None on a conflict: then nothing is written.
    pub(super) async fn try_commit<T>(
        self,
        teams: &Teams,
        answer: T,
    ) -> Result<Option<T>, TeamError> {
        Ok(self.try_commit_at(teams).await?.map(|_| answer))
    }

    /// Commits it, with a new record, which has the time of the commit.
    pub(super) async fn try_create<T>(
        self,
        teams: &Teams,
        value: T,
    ) -> Result<Option<StoredDocument<T>>, TeamError> {
        let made = self.try_commit_at(teams).await?;
        Ok(made.map(|at| StoredDocument {
            version: 1,
            attempts: 0,
            created_at: at,
            updated_at: at,
            value,
        }))
    }

    /// Commits it, with a record that was put, which has the next version and the time of the
    /// commit.
    pub(super) async fn try_change<T>(
        self,
        teams: &Teams,
        mut stored: StoredDocument<T>,
    ) -> Result<Option<StoredDocument<T>>, TeamError> {
        let changed = self.try_commit_at(teams).await?;
        Ok(changed.map(|at| {
            stored.version += 1;
            stored.updated_at = at;
            stored
        }))
    }

    /// The time of the commit. None on a conflict.
    async fn try_commit_at(self, teams: &Teams) -> Result<Option<Timestamp>, TeamError> {
        match teams.runtime.store().commit(self.into_commit()).await {
            Ok(committed) => Ok(Some(committed.at)),
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

/// Whether this agent is a person, so that talk with it is not between machines.
pub(super) fn is_human(agent: &TeamAgent) -> bool {
    agent.kind == AgentKind::Human
}
