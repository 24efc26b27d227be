//! Tenants: make, change, list, remove.

use shikiri_model::ids::{ModelId, TenantId};
use shikiri_model::models::Model;
use shikiri_model::record::{Document, Expect, Position, RecordChange, RecordQuery, Stored};
use shikiri_model::tenant::{Limits, Tenant, TenantStatus};
use shikiri_store::{Commit, CommitError, StoreExt, store};

use crate::app::{App, busy, entropy, max_tries};
use crate::error::AppError;
use crate::fields::set;

/// What a caller may set; absent fields stay as they are.
#[derive(Clone, Debug, Default)]
pub struct TenantPatch {
    pub name: Option<String>,
    pub system_prompt: Option<String>,
    pub model_id: Option<Option<String>>,
    pub status: Option<TenantStatus>,
    pub workspace_enabled: Option<bool>,
    pub limits: LimitsPatch,
}

/// Likewise; `Some(None)` lifts a limit.
#[derive(Clone, Debug, Default)]
pub struct LimitsPatch {
    pub max_concurrent_executions: Option<Option<u32>>,
    pub max_streams: Option<Option<u32>>,
    pub requests_per_minute: Option<Option<u32>>,
}

const MAX_NAME: usize = 200;
const MAX_PROMPT: usize = 100_000;

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
        self.limits.apply(&mut tenant.limits);
    }
}

impl LimitsPatch {
    fn apply(&self, limits: &mut Limits) {
        set(&mut limits.max_concurrent_executions, self.max_concurrent_executions.as_ref());
        set(&mut limits.max_streams, self.max_streams.as_ref());
        set(&mut limits.requests_per_minute, self.requests_per_minute.as_ref());
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
        let put = RecordChange::put(&tenant, Expect::New)?;
        let committed = self.store.commit(Commit::new().record(put)).await?;
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
            kind: Tenant::KIND,
            tenant: Some(TenantId::system()),
            after,
            limit,
            ..RecordQuery::default()
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
        let inactive =
            TenantPatch { status: Some(TenantStatus::Inactive), ..TenantPatch::default() };
        for _ in 0..max_tries() {
            let stored = self.update_tenant(id, inactive.clone()).await?;
            for run in self.open_runs(id, None).await? {
                match self.cancel_run(id, &run).await {
                    Ok(_) | Err(AppError::NotNow(_) | AppError::NotFound { .. }) => {}
                    Err(other) => return Err(other),
                }
            }
            self.remove_files_of(id).await?;
            self.store.erase(id).await?;
            self.revoke_all_keys(id).await?;
            let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
            match self.store.commit(Commit::new().record(delete)).await {
                // Somebody changed it, maybe to active: whatever was made since must go too.
                Err(CommitError::Conflict(_)) => {}
                other => return other.map(drop).map_err(AppError::from),
            }
        }
        Err(busy("tenant", id.as_str()))
    }

    /// Makes something that belongs to an active tenant.
    pub(crate) async fn create_in_tenant<T: Document>(
        &self,
        tenant: &TenantId,
        value: T,
    ) -> Result<Stored<T>, AppError> {
        let put = RecordChange::put(&value, Expect::New)?;
        let at = self.commit_in_tenant(tenant, Commit::new().record(put)).await?.at;
        Ok(Stored { version: 1, attempts: 0, created_at: at, updated_at: at, value })
    }

    /// Removes something of a tenant, whatever has become of it meanwhile.
    pub(crate) async fn delete_record<T: Document + Send>(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<(), AppError> {
        for _ in 0..max_tries() {
            let Some(stored) = self.store.load::<T>(tenant, id).await? else {
                return Err(AppError::not_found(T::KIND, id));
            };
            let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
            match self.store.commit(Commit::new().record(delete)).await {
                Err(CommitError::Conflict(_)) => {}
                other => return other.map(drop).map_err(AppError::from),
            }
        }
        Err(busy(T::KIND, id))
    }

    /// A page of documents, and where the next page starts.
    pub(crate) async fn list_records<T: Document>(
        &self,
        query: RecordQuery,
    ) -> Result<(Vec<Stored<T>>, Option<Position>), AppError> {
        let limit = query.limit;
        // One more than asked for tells whether there is a next page.
        let mut records =
            self.store.list(RecordQuery { limit: limit.saturating_add(1), ..query }).await?;
        let more = records.len() > limit as usize;
        records.truncate(limit as usize);
        let next = more.then(|| records.last().map(|r| r.position())).flatten();
        let values = records.iter().map(store::decode).collect::<Result<_, _>>()?;
        Ok((values, next))
    }
}
