//! Bills from before there were totals. The migration made them due; whoever reports first adds them
//! to the totals of their days.
//!
//! A bill and its totals are one commit, so a process that dies in between leaves the rest to the
//! next, and of two processes at once each bill is added by one.

use std::collections::BTreeSet;
use std::time::Duration;

use shikiri_model::execution::{UsageLog, bill_totals};
use shikiri_model::ids::TenantId;
use shikiri_model::record::{Document, ExpectedVersion, RecordChange, RecordClaim, RecordQuery};
use shikiri_runtime::AppError;
use shikiri_store::{Commit, CommitError, store};

use crate::Tenancy;

const CLAIMED: u32 = 500;
/// How long another process has for the bills that it claimed.
const HOLD: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);

impl Tenancy {
    /// Returns when all bills are in the totals.
    pub async fn total_old_bills(&self) -> Result<(), AppError> {
        let store = self.runtime.store();
        let mut added = 0;
        while store.next_due(UsageLog::KIND).await?.is_some() {
            let claim = RecordClaim {
                kind: UsageLog::KIND,
                tenant: None,
                parent: None,
                owner: None,
                hold: HOLD,
                limit: CLAIMED,
            };
            let claimed = store.commit(Commit::new().claim(claim)).await?.claimed;
            if claimed.is_empty() {
                // Another process works on the last of them.
                tokio::time::sleep(POLL).await;
                continue;
            }
            let of = |record: shikiri_model::record::Record| {
                Some((record.key.tenant, record.columns.parent?))
            };
            let executions: BTreeSet<_> = claimed.into_iter().filter_map(of).collect();
            added += self.add_old_bills(executions).await?;
        }
        if added > 0 {
            tracing::info!(executions = added, "bills of earlier executions are in the totals");
        }
        Ok(())
    }

    /// Returns how many were added.
    async fn add_old_bills(
        &self,
        executions: BTreeSet<(TenantId, String)>,
    ) -> Result<usize, AppError> {
        let mut bills = Vec::new();
        for (tenant, execution) in executions {
            bills.extend(self.old_bill(&tenant, execution).await?);
        }
        let mut together = Commit::new();
        for bill in &bills {
            together.records.extend_from_slice(&bill.records);
            together.totals.extend_from_slice(&bill.totals);
        }
        match self.runtime.store().commit(together).await {
            Ok(_) => return Ok(bills.len()),
            Err(CommitError::Conflict(_)) => {}
            Err(other) => return Err(other.into()),
        }
        // Another process has added some of them.
        let mut added = 0;
        for bill in bills {
            match self.runtime.store().commit(bill).await {
                Ok(_) => added += 1,
                Err(CommitError::Conflict(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(added)
    }

    /// The commit that adds the bill of an execution; None if it was added meanwhile.
    async fn old_bill(
        &self,
        tenant: &TenantId,
        execution: String,
    ) -> Result<Option<Commit>, AppError> {
        let mut commit = Commit::new();
        let mut logs = Vec::new();
        let mut query = RecordQuery {
            parent: Some(execution),
            limit: 200,
            ..RecordQuery::of::<UsageLog>(tenant)
        };
        loop {
            let (rows, next) = self.runtime.list_page(query.clone()).await?;
            for row in rows.iter().filter(|row| row.columns.due_at.is_some()) {
                let log = store::decode::<UsageLog>(row)?.value;
                let expect = ExpectedVersion::Version(row.version);
                commit.records.push(RecordChange::put(&log, expect)?);
                logs.push(log);
            }
            query.after = next;
            if query.after.is_none() {
                break;
            }
        }
        commit.totals = bill_totals(&logs);
        Ok((!logs.is_empty()).then_some(commit))
    }
}
