//! Tenants: create, change, list.

use shikiri_model::ids::{ModelId, TenantId};
use shikiri_model::models::Model;
use shikiri_model::record::{
    ExpectedVersion, RecordChange, RecordPosition, RecordQuery, StoredDocument,
};
use shikiri_model::tenant::{EgressPolicy, Tenant, TenantLimits, TenantStatus, TenantUse};
use shikiri_runtime::field_checks::set;
use shikiri_runtime::{AppError, entropy, transact};
use shikiri_store::{Commit, CommitError, StoreExt};

use crate::Tenancy;

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

/// The limits that a caller may set; `Some(None)` lifts a limit.
#[derive(Clone, Debug, Default)]
pub struct LimitsPatch {
    pub max_concurrent_executions: Option<Option<u32>>,
    pub max_streams: Option<Option<u32>>,
    pub requests_per_minute: Option<Option<u32>>,
    pub stored_bytes: Option<Option<u64>>,
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
        set(&mut tenant.egress, self.egress.as_ref());
        self.limits.apply(&mut tenant.limits);
    }
}

impl LimitsPatch {
    fn apply(&self, limits: &mut TenantLimits) {
        set(&mut limits.max_concurrent_executions, self.max_concurrent_executions.as_ref());
        set(&mut limits.max_streams, self.max_streams.as_ref());
        set(&mut limits.requests_per_minute, self.requests_per_minute.as_ref());
        set(&mut limits.stored_bytes, self.stored_bytes.as_ref());
    }
}

impl Tenancy {
    /// Creates the tenant `local` and its model `offline`, if this is a new store or one from
    /// before there were models. Both come in one commit: if the model exists, nothing is left to
    /// do, and a default that was removed later stays removed.
    pub async fn ensure_local_tenant(&self) -> Result<(), AppError> {
        let (system, local) = (TenantId::system(), TenantId::local());
        transact("tenant", local.as_str(), || async {
            if self
                .runtime
                .store()
                .load::<Model>(&system, ModelId::offline().as_str())
                .await?
                .is_some()
            {
                return Ok(Some(()));
            }
            let found = self.runtime.store().load::<Tenant>(&system, local.as_str()).await?;
            let expect = found
                .as_ref()
                .map_or(ExpectedVersion::New, |found| ExpectedVersion::Version(found.version));
            let mut tenant = found.map_or_else(
                || Tenant::new(local.clone(), "Local".to_owned()),
                |found| found.value,
            );
            tenant.model_id.get_or_insert_with(|| ModelId::offline().to_string());
            let commit = Commit::new()
                .record(RecordChange::put(&tenant, expect)?)
                .record(RecordChange::put(&Model::offline(), ExpectedVersion::New)?);
            match self.runtime.store().commit(commit).await {
                Ok(_) => Ok(Some(())),
                // Another process does the same right now.
                Err(CommitError::Exists(_) | CommitError::Conflict(_)) => Ok(None),
                Err(other) => Err(other.into()),
            }
        })
        .await
    }

    pub async fn create_tenant(
        &self,
        id: Option<TenantId>,
        patch: TenantPatch,
    ) -> Result<StoredDocument<Tenant>, AppError> {
        self.check_patch(&patch).await?;
        let id = match id {
            Some(id) if id == TenantId::system() => {
                return Err(AppError::invalid("id", "is reserved: choose another"));
            }
            Some(id) => id,
            None => TenantId::mint(self.runtime.store().now().await?, entropy()?),
        };
        let mut tenant = Tenant::new(id.clone(), id.to_string());
        patch.apply(&mut tenant);
        let mut commit = Commit::new().record(RecordChange::put(&tenant, ExpectedVersion::New)?);
        commit.appends.extend(self.runtime.audit(None, Some(&tenant))?);
        let committed = self.runtime.store().commit(commit).await?;
        Ok(StoredDocument {
            version: 1,
            attempts: 0,
            created_at: committed.at,
            updated_at: committed.at,
            value: tenant,
        })
    }

    pub async fn update_tenant(
        &self,
        id: &TenantId,
        patch: TenantPatch,
    ) -> Result<StoredDocument<Tenant>, AppError> {
        self.check_patch(&patch).await?;
        self.runtime
            .update::<Tenant>(&TenantId::system(), id.as_str(), |tenant| {
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
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<Tenant>>, Option<RecordPosition>), AppError> {
        self.runtime
            .list_records(RecordQuery {
                after,
                limit,
                ..RecordQuery::of::<Tenant>(&TenantId::system())
            })
            .await
    }

    /// What a tenant has in use on this node.
    pub async fn tenant_use(&self, tenant: &TenantId) -> TenantUse {
        let executions = self.execution_slots().count_of(tenant);
        TenantUse {
            stored_bytes: self.runtime.stored_bytes(tenant).await,
            executions: u32::try_from(executions).unwrap_or(u32::MAX),
            streams: 0,
        }
    }
}
