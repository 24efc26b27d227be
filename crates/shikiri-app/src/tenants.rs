//! Tenants: make, change, list, remove.

use std::time::Duration;

use shikiri_model::ids::{ModelId, RunId, TenantId};
use shikiri_model::models::Model;
use shikiri_model::record::{
    Document, Expect, Position, Record, RecordChange, RecordQuery, Stored,
};
use shikiri_model::run::Run;
use shikiri_model::tenant::{EgressPolicy, Limits, Tenant, TenantStatus};
use shikiri_store::{Commit, CommitError, StoreExt, store};
use tokio::time::Instant;

use crate::app::{App, busy, entropy, max_tries};
use crate::error::AppError;
use crate::fields::set;
use crate::hold::to_its_end;

/// What a caller may set; absent fields stay as they are.
#[derive(Clone, Debug, Default)]
pub struct TenantPatch {
    pub name: Option<String>,
    pub system_prompt: Option<String>,
    pub model_id: Option<Option<String>>,
    pub status: Option<TenantStatus>,
    pub workspace_enabled: Option<bool>,
    pub egress: Option<EgressPolicy>,
    pub limits: LimitsPatch,
}

/// Likewise; `Some(None)` lifts a limit.
#[derive(Clone, Debug, Default)]
pub struct LimitsPatch {
    pub max_concurrent_executions: Option<Option<u32>>,
    pub max_streams: Option<Option<u32>>,
    pub requests_per_minute: Option<Option<u32>>,
    pub stored_bytes: Option<Option<u64>>,
}

const MAX_NAME: usize = 200;
const MAX_PROMPT: usize = 100_000;
/// Of documents, for a page of any list: a client asks for a number of them, not for megabytes.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Records that are read at a time. Few at first: only those that were seen tell how large they are.
const FIRST_SLICE: u32 = 4;
const MAX_SLICE: u32 = 64;
/// For runs to end: engines have 5 s to stop.
const STOP_WAIT: Duration = Duration::from_secs(6);
const STOP_POLL: Duration = Duration::from_millis(50);

impl TenantPatch {
    fn check(&self) -> Result<(), AppError> {
        let name = self.name.as_deref().unwrap_or("x");
        if name.trim().is_empty() || name.chars().count() > MAX_NAME {
            return Err(AppError::invalid("name", "must have 1 to 200 characters"));
        }
        if self.system_prompt.as_ref().is_some_and(|text| text.chars().count() > MAX_PROMPT) {
            return Err(AppError::invalid("system_prompt", "must be under 100,000 characters"));
        }
        Ok(())
    }

    fn apply(&self, tenant: &mut Tenant) {
        set(&mut tenant.name, self.name.as_ref());
        set(&mut tenant.system_prompt, self.system_prompt.as_ref());
        set(&mut tenant.model_id, self.model_id.as_ref());
        set(&mut tenant.status, self.status.as_ref());
        set(&mut tenant.workspace_enabled, self.workspace_enabled.as_ref());
        set(&mut tenant.egress, self.egress.as_ref());
        self.limits.apply(&mut tenant.limits);
    }
}

impl LimitsPatch {
    fn apply(&self, limits: &mut Limits) {
        set(&mut limits.max_concurrent_executions, self.max_concurrent_executions.as_ref());
        set(&mut limits.max_streams, self.max_streams.as_ref());
        set(&mut limits.requests_per_minute, self.requests_per_minute.as_ref());
        set(&mut limits.stored_bytes, self.stored_bytes.as_ref());
    }
}

impl App {
    /// Makes the tenant `local` and the model `offline`, which it uses, if this is a fresh store or
    /// one from before there were models. The two come in one commit, so with the model there
    /// nothing is left to do, and a default that was taken away later stays away.
    pub async fn ensure_local_tenant(&self) -> Result<(), AppError> {
        let (system, local) = (TenantId::system(), TenantId::local());
        for _ in 0..max_tries() {
            if self.store.load::<Model>(&system, ModelId::offline().as_str()).await?.is_some() {
                return Ok(());
            }
            let found = self.store.load::<Tenant>(&system, local.as_str()).await?;
            let expect = found.as_ref().map_or(Expect::New, |found| Expect::Version(found.version));
            let mut tenant = found.map_or_else(
                || Tenant::new(local.clone(), "Local".to_owned()),
                |found| found.value,
            );
            tenant.model_id.get_or_insert_with(|| ModelId::offline().to_string());
            let commit = Commit::new()
                .record(RecordChange::put(&tenant, expect)?)
                .record(RecordChange::put(&Model::offline(), Expect::New)?);
            match self.store.commit(commit).await {
                Ok(_) => return Ok(()),
                // Another process does the same right now.
                Err(CommitError::Exists(_) | CommitError::Conflict(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Err(busy("tenant", local.as_str()))
    }

    pub async fn create_tenant(
        &self,
        id: Option<TenantId>,
        patch: TenantPatch,
    ) -> Result<Stored<Tenant>, AppError> {
        self.check_patch(&patch).await?;
        let id = match id {
            Some(id) if id == TenantId::system() => {
                return Err(AppError::invalid("id", "is reserved: choose another"));
            }
            Some(id) => id,
            None => TenantId::mint(self.store.now().await?, entropy()?),
        };
        let mut tenant = Tenant::new(id.clone(), id.to_string());
        patch.apply(&mut tenant);
        let mut commit = Commit::new().record(RecordChange::put(&tenant, Expect::New)?);
        commit.appends.extend(self.audit(None, Some(&tenant))?);
        let committed = self.store.commit(commit).await?;
        Ok(Stored {
            version: 1,
            attempts: 0,
            created_at: committed.at,
            updated_at: committed.at,
            value: tenant,
        })
    }

    pub async fn tenant(&self, id: &TenantId) -> Result<Stored<Tenant>, AppError> {
        let found = self.store.load::<Tenant>(&TenantId::system(), id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("tenant", id))
    }

    pub async fn update_tenant(
        &self,
        id: &TenantId,
        patch: TenantPatch,
    ) -> Result<Stored<Tenant>, AppError> {
        self.check_patch(&patch).await?;
        self.update::<Tenant>(&TenantId::system(), id.as_str(), |tenant| {
            patch.apply(tenant);
            Ok(())
        })
        .await
    }

    async fn check_patch(&self, patch: &TenantPatch) -> Result<(), AppError> {
        patch.check()?;
        match &patch.model_id {
            Some(Some(model)) => self.check_model_id(model).await,
            _ => Ok(()),
        }
    }

    pub async fn list_tenants(
        &self,
        after: Option<Position>,
        limit: u32,
    ) -> Result<(Vec<Stored<Tenant>>, Option<Position>), AppError> {
        self.list_records(RecordQuery {
            after,
            limit,
            ..RecordQuery::of::<Tenant>(&TenantId::system())
        })
        .await
    }

    /// Removes a tenant with its keys and all that it owns, for good. It is set inactive first, so
    /// that nothing is made for it any more, and its record goes last: if this is cut short, doing
    /// it again finishes it.
    pub async fn delete_tenant(&self, id: &TenantId) -> Result<(), AppError> {
        if *id == TenantId::local() {
            return Err(AppError::NotNow("the tenant local cannot be removed".to_owned()));
        }
        let (app, id) = (self.clone(), id.clone());
        to_its_end(async move { app.remove_tenant(&id).await }).await
    }

    async fn remove_tenant(&self, id: &TenantId) -> Result<(), AppError> {
        let inactive =
            TenantPatch { status: Some(TenantStatus::Inactive), ..TenantPatch::default() };
        for _ in 0..max_tries() {
            let stored = self.update_tenant(id, inactive.clone()).await?;
            self.stop_runs_of(id).await?;
            self.remove_files_of(id).await?;
            self.store.erase(id).await?;
            self.revoke_all_keys(id).await?;
            let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
            let mut commit = Commit::new().record(delete);
            commit.appends.extend(self.audit(Some(&stored.value), None)?);
            match self.store.commit(commit).await {
                // Somebody changed it, maybe to active: whatever was made since must go too.
                Err(CommitError::Conflict(_)) => {}
                other => {
                    self.storage.forget(id);
                    return other.map(drop).map_err(AppError::from);
                }
            }
        }
        Err(busy("tenant", id.as_str()))
    }

    /// Stops a tenant's runs and waits for their ends: an engine that is still there could make files
    /// again that were just removed. One that does not stop in time is not waited for.
    async fn stop_runs_of(&self, tenant: &TenantId) -> Result<(), AppError> {
        let open = self.open_runs(tenant, None).await?;
        for run in &open {
            match self.cancel_run(tenant, run).await {
                Ok(_) | Err(AppError::NotNow(_) | AppError::NotFound { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        let deadline = Instant::now() + STOP_WAIT;
        for run in &open {
            while Instant::now() < deadline && self.is_open(tenant, run).await? {
                tokio::time::sleep(STOP_POLL).await;
            }
        }
        Ok(())
    }

    async fn is_open(&self, tenant: &TenantId, run: &RunId) -> Result<bool, AppError> {
        let found = self.store.load::<Run>(tenant, run.as_str()).await?;
        Ok(found.is_some_and(|run| !run.value.status.is_terminal()))
    }

    /// Makes something that belongs to an active tenant.
    pub(crate) async fn create_in_tenant<T: Document>(
        &self,
        tenant: &TenantId,
        value: T,
    ) -> Result<Stored<T>, AppError> {
        let put = RecordChange::put(&value, Expect::New)?;
        let size = Commit::new().record(put.clone()).size() as u64;
        self.check_storage(&self.tenant(tenant).await?.value, size).await?;
        let mut commit = Commit::new().record(put);
        commit.appends.extend(self.audit(None, Some(&value))?);
        let at = self.commit_in_tenant(tenant, commit).await?.at;
        Ok(Stored { version: 1, attempts: 0, created_at: at, updated_at: at, value })
    }

    /// Removes something of a tenant, whatever has become of it meanwhile.
    pub(crate) async fn delete_record<T: Document + Send>(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<(), AppError> {
        for _ in 0..max_tries() {
            if self.try_delete::<T>(tenant, id, None).await? {
                return Ok(());
            }
        }
        Err(busy(T::KIND, id))
    }

    /// Removes something of a tenant, and in the same commit what belongs to it. False if one of the
    /// two has changed meanwhile.
    pub(crate) async fn try_delete<T: Document + Send>(
        &self,
        tenant: &TenantId,
        id: &str,
        beside: Option<RecordChange>,
    ) -> Result<bool, AppError> {
        let Some(stored) = self.store.load::<T>(tenant, id).await? else {
            return Err(AppError::not_found(T::KIND, id));
        };
        let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
        let mut commit = Commit::new().record(delete);
        commit.records.extend(beside);
        commit.appends.extend(self.audit(Some(&stored.value), None)?);
        match self.store.commit(commit).await {
            Ok(_) => Ok(true),
            Err(CommitError::Conflict(_)) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    /// A page of documents, and where the next page starts. It ends after as many as asked for, or
    /// 4 MiB of them.
    pub(crate) async fn list_records<T: Document>(
        &self,
        query: RecordQuery,
    ) -> Result<(Vec<Stored<T>>, Option<Position>), AppError> {
        let (records, next) = self.list_page(query).await?;
        let values = records.iter().map(store::decode).collect::<Result<_, _>>()?;
        Ok((values, next))
    }

    /// Every document that the query wants, page by page.
    pub(crate) async fn list_all<T: Document>(
        &self,
        mut query: RecordQuery,
    ) -> Result<Vec<T>, AppError> {
        let mut all = Vec::new();
        query.limit = 200;
        loop {
            let (page, next) = self.list_records::<T>(query.clone()).await?;
            all.extend(page.into_iter().map(|stored| stored.value));
            query.after = next;
            if query.after.is_none() {
                return Ok(all);
            }
        }
    }

    /// A page of records as they lie in the store.
    pub(crate) async fn list_page(
        &self,
        mut query: RecordQuery,
    ) -> Result<(Vec<Record>, Option<Position>), AppError> {
        let limit = query.limit;
        let (mut page, mut page_bytes) = (Vec::new(), 0);
        let (mut slice, mut largest) = (FIRST_SLICE, 1);
        loop {
            // One more than asked for tells whether there is a next page.
            query.limit = slice.min(limit.saturating_add(1) - page.len() as u32);
            let records = self.store.list(query.clone()).await?;
            let is_end = records.len() < query.limit as usize;
            for record in records {
                page_bytes += record.doc.len();
                largest = largest.max(record.doc.len());
                // A record that is larger than a page is a page of its own.
                let is_full = page_bytes > PAGE_BYTES && !page.is_empty();
                if is_full || page.len() == limit as usize {
                    let next = page.last().map(Record::position);
                    return Ok((page, next));
                }
                page.push(record);
            }
            if is_end {
                return Ok((page, None));
            }
            query.after = page.last().map(Record::position);
            let room = PAGE_BYTES.saturating_sub(page_bytes) / largest + 1;
            slice = (slice * 2).min(MAX_SLICE).min(u32::try_from(room).unwrap_or(MAX_SLICE));
        }
    }
}
