//! Imports lanes from files and exports them.

use serde_json::Value;
use shikiri_model::ids::{LaneId, TenantId};
use shikiri_model::lane::{LaneCounter, SessionsFileError, export, plan_import, read_sessions};
use shikiri_model::record::{ExpectedVersion, RecordChange};
use shikiri_runtime::{AppError, entropy, transact};
use shikiri_store::{Commit, CommitError, StoreExt};

use crate::Lanes;

/// The result of an import.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneImportReport {
    /// The file's version: 1 or 2.
    pub version: u8,
    /// The names of the new lanes.
    pub lanes: Vec<String>,
    /// The names in the file of lanes that existed already.
    pub known: Vec<String>,
    /// Addresses that are not chats and were left out.
    pub left_out: Vec<String>,
}

impl Lanes {
    /// Imports a `sessions.json`, all or nothing. Existing lanes stay as they are.
    pub async fn import_lanes(
        &self,
        tenant: &TenantId,
        text: &str,
    ) -> Result<LaneImportReport, AppError> {
        let file = read_sessions(text).map_err(refused)?;
        self.runtime.tenant(tenant).await?;
        transact("lanes", tenant.as_str(), || async {
            let (roster, expect) =
                match self.runtime.store().load::<LaneCounter>(tenant, LaneCounter::ID).await? {
                    Some(stored) => (stored.value, ExpectedVersion::Version(stored.version)),
                    None => {
                        (LaneCounter { tenant: tenant.clone(), opened: 0 }, ExpectedVersion::New)
                    }
                };
            let existing = self.lanes_of(tenant, None, None).await?;
            let existing: Vec<_> = existing.into_iter().map(|stored| stored.value).collect();
            let now = self.runtime.store().now().await?;
            let mut ids = Vec::new();
            for _ in &file.entries {
                ids.push(LaneId::mint(now, entropy()?));
            }
            let mint = || ids.pop().unwrap_or_else(|| LaneId::mint(now, [0; 10]));
            let limits = &self.options().limits;
            let plan = plan_import(&file, &existing, tenant, limits, now, mint);
            let imported = LaneImportReport {
                version: file.version,
                lanes: plan.lanes.iter().map(|lane| lane.name.clone()).collect(),
                known: plan.known,
                left_out: file.left_out.clone(),
            };
            if plan.lanes.is_empty() {
                return Ok(Some(imported));
            }
            let opened = roster.opened + plan.lanes.len() as u64;
            let roster = LaneCounter { opened, ..roster };
            let mut commit = Commit::new().record(RecordChange::put(&roster, expect)?);
            for lane in &plan.lanes {
                commit = commit.record(RecordChange::put(lane, ExpectedVersion::New)?);
            }
            match self.runtime.store().commit(commit).await {
                Ok(_) => Ok(Some(imported)),
                Err(
                    CommitError::Conflict(_) | CommitError::Exists(_) | CommitError::NotUnique(_),
                ) => Ok(None),
                Err(other) => Err(other.into()),
            }
        })
        .await
    }

    /// The open lanes, in the form of a `sessions.json` of version 2.
    pub async fn export_lanes(&self, tenant: &TenantId) -> Result<Value, AppError> {
        self.runtime.tenant(tenant).await?;
        let open = self.lanes_of(tenant, Some("open"), None).await?;
        Ok(export(open.iter().map(|stored| &stored.value), &self.options().limits))
    }
}

fn refused(error: SessionsFileError) -> AppError {
    AppError::invalid("file", error.to_string())
}
