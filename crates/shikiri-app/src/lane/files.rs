//! Lanes out of files and into files.

use serde_json::Value;
use shikiri_model::ids::{LaneId, TenantId};
use shikiri_model::lane::{FileError, Roster, export, plan_import, read_sessions};
use shikiri_model::record::{Expect, RecordChange};
use shikiri_store::{Commit, CommitError, StoreExt};

use crate::app::{App, busy, entropy, max_tries};
use crate::error::AppError;

/// What an import did.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Of the file: 1 or 2.
    pub version: u8,
    /// The names of the new lanes.
    pub lanes: Vec<String>,
    /// The file's names of what was here already.
    pub known: Vec<String>,
    /// Addresses that are no chats and were left out.
    pub left_out: Vec<String>,
}

impl App {
    /// Takes in a `sessions.json`, whole or not at all. What is here already stays as it is.
    pub async fn import_lanes(&self, tenant: &TenantId, text: &str) -> Result<Imported, AppError> {
        let file = read_sessions(text).map_err(refused)?;
        self.tenant(tenant).await?;
        for _ in 0..max_tries() {
            let (roster, expect) = match self.store.load::<Roster>(tenant, Roster::ID).await? {
                Some(stored) => (stored.value, Expect::Version(stored.version)),
                None => (Roster { tenant: tenant.clone(), opened: 0 }, Expect::New),
            };
            let existing = self.lanes_of(tenant, None, None).await?;
            let existing: Vec<_> = existing.into_iter().map(|stored| stored.value).collect();
            let now = self.store.now().await?;
            let mut ids = Vec::new();
            for _ in &file.entries {
                ids.push(LaneId::mint(now, entropy()?));
            }
            let mint = || ids.pop().unwrap_or_else(|| LaneId::mint(now, [0; 10]));
            let limits = &self.options.lanes.limits;
            let plan = plan_import(&file, &existing, tenant, limits, now, mint);
            let imported = Imported {
                version: file.version,
                lanes: plan.lanes.iter().map(|lane| lane.name.clone()).collect(),
                known: plan.known,
                left_out: file.left_out.clone(),
            };
            if plan.lanes.is_empty() {
                return Ok(imported);
            }
            let opened = roster.opened + plan.lanes.len() as u64;
            let roster = Roster { opened, ..roster };
            let mut commit = Commit::new().record(RecordChange::put(&roster, expect)?);
            for lane in &plan.lanes {
                commit = commit.record(RecordChange::put(lane, Expect::New)?);
            }
            match self.store.commit(commit).await {
                Ok(_) => return Ok(imported),
                Err(
                    CommitError::Conflict(_) | CommitError::Exists(_) | CommitError::NotUnique(_),
                ) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Err(busy("lanes", tenant.as_str()))
    }

    /// The open lanes, in the form of a `sessions.json` of version 2.
    pub async fn export_lanes(&self, tenant: &TenantId) -> Result<Value, AppError> {
        self.tenant(tenant).await?;
        let open = self.lanes_of(tenant, Some("open"), None).await?;
        Ok(export(open.iter().map(|stored| &stored.value), &self.options.lanes.limits))
    }
}

fn refused(error: FileError) -> AppError {
    AppError::invalid("file", error.to_string())
}
