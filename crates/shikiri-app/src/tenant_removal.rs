//! Removing a tenant, which concerns every domain.

use std::time::Duration;

use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::record::{Document as _, RecordChange};
use shikiri_model::run::Run;
use shikiri_model::tenant::TenantStatus;
use shikiri_runtime::leased_change::run_to_completion;
use shikiri_runtime::{AppError, transact};
use shikiri_store::{Commit, CommitError, StoreExt as _};
use shikiri_tenancy::tenants::TenantPatch;
use tokio::time::Instant;

use crate::App;

/// Time for runs to end: engines have 5 s to stop.
const STOP_WAIT: Duration = Duration::from_secs(6);
const STOP_POLL: Duration = Duration::from_millis(50);

impl App {
    /// Removes a tenant with its keys and all its data, for good. The tenant is set inactive first,
    /// so that nothing new is created for it. Its record is deleted last: if the removal is
    /// interrupted, repeating it finishes it.
    pub async fn delete_tenant(&self, id: &TenantId) -> Result<(), AppError> {
        if *id == TenantId::local() {
            return Err(AppError::NotNow("the tenant local cannot be removed".to_owned()));
        }
        let (app, id) = (self.clone(), id.clone());
        run_to_completion(async move { app.remove_tenant(&id).await }).await
    }

    async fn remove_tenant(&self, id: &TenantId) -> Result<(), AppError> {
        let inactive =
            TenantPatch { status: Some(TenantStatus::Inactive), ..TenantPatch::default() };
        transact("tenant", id.as_str(), || async {
            let stored = self.tenancy.update_tenant(id, inactive.clone()).await?;
            self.stop_runs_of(id).await?;
            self.executions.remove_files_of(id).await?;
            self.runtime.store().erase(id).await?;
            self.tenancy.revoke_all_keys(id).await?;
            let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
            let mut commit = Commit::new().record(delete);
            commit.appends.extend(self.runtime.audit(Some(&stored.value), None)?);
            match self.runtime.store().commit(commit).await {
                // The tenant changed meanwhile, maybe to active: new data must be removed too.
                Err(CommitError::Conflict(_)) => Ok(None),
                other => {
                    self.runtime.forget_storage(id);
                    other.map(|_| Some(())).map_err(AppError::from)
                }
            }
        })
        .await
    }

    /// Cancels a tenant's runs and waits until they end: an engine that still runs could create
    /// files again that were just removed. A run that does not end in time is not waited for.
    async fn stop_runs_of(&self, tenant: &TenantId) -> Result<(), AppError> {
        let open = self.runtime.open_runs(tenant, None).await?;
        for run in &open {
            match self.runtime.cancel_run(tenant, run).await {
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
        let found = self.runtime.store().load::<Run>(tenant, run.as_str()).await?;
        Ok(found.is_some_and(|run| !run.value.status.is_terminal()))
    }
}
