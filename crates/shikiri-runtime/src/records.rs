//! Creates, changes, deletes and lists records of any kind.

use shikiri_model::ids::TenantId;
use shikiri_model::record::{
    Document, ExpectedVersion, Record, RecordChange, RecordPosition, RecordQuery, StoredDocument,
};
use shikiri_model::tenant::{Tenant, TenantStatus};
use shikiri_store::{Commit, CommitError, CommitReceipt, StoreExt, store};

use crate::error::AppError;
use crate::run::RunCommitError;
use crate::runtime::Runtime;
use crate::transact::transact;

/// Bytes of documents in one page of a list. A client asks for a number of records, not for
/// megabytes.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Records that are read at a time. The first slice is small, because their size is not known yet.
const FIRST_SLICE: u32 = 4;
const MAX_SLICE: u32 = 64;

impl Runtime {
    pub async fn tenant(&self, id: &TenantId) -> Result<StoredDocument<Tenant>, AppError> {
        let found = self.store.load::<Tenant>(&TenantId::system(), id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("tenant", id))
    }

    /// Changes a record by a pure function. Tries again after a conflicting write.
    pub async fn update<T: Document + Clone + Send + Sync>(
        &self,
        tenant: &TenantId,
        id: &str,
        change: impl Fn(&mut T) -> Result<(), AppError> + Send + Sync,
    ) -> Result<StoredDocument<T>, AppError> {
        transact(T::KIND, id, || async {
            let Some(mut stored) = self.store.load::<T>(tenant, id).await? else {
                return Err(AppError::not_found(T::KIND, id));
            };
            let before = stored.value.clone();
            change(&mut stored.value)?;
            let put = RecordChange::put(&stored.value, ExpectedVersion::Version(stored.version))?;
            let mut commit = Commit::new().record(put);
            commit.appends.extend(self.audit(Some(&before), Some(&stored.value))?);
            match self.store.commit(commit).await {
                Ok(committed) => {
                    stored.version += 1;
                    stored.updated_at = committed.at;
                    Ok(Some(stored))
                }
                Err(CommitError::Conflict(_)) => Ok(None),
                Err(other) => Err(other.into()),
            }
        })
        .await
    }

    /// Commits only while the tenant is active: a tenant that is being removed gets no new records.
    pub async fn commit_in_tenant(
        &self,
        tenant: &TenantId,
        commit: Commit,
    ) -> Result<CommitReceipt, RunCommitError> {
        transact("tenant", tenant.as_str(), || async {
            let stored = self.tenant(tenant).await?;
            if stored.value.status == TenantStatus::Inactive {
                let id = tenant.to_string();
                return Err(AppError::Inactive { kind: "tenant", id }.into());
            }
            let key = stored.value.key();
            let commit = commit.clone().requiring(key.clone(), stored.version);
            match self.store.commit(commit).await {
                Err(CommitError::Conflict(changed)) if changed == key => Ok(None),
                other => Ok(Some(other?)),
            }
        })
        .await
    }

    /// Creates a record of an active tenant.
    pub async fn create_in_tenant<T: Document>(
        &self,
        tenant: &TenantId,
        value: T,
    ) -> Result<StoredDocument<T>, AppError> {
        let put = RecordChange::put(&value, ExpectedVersion::New)?;
        let size = Commit::new().record(put.clone()).size() as u64;
        self.check_storage(&self.tenant(tenant).await?.value, size).await?;
        let mut commit = Commit::new().record(put);
        commit.appends.extend(self.audit(None, Some(&value))?);
        let at = self.commit_in_tenant(tenant, commit).await?.at;
        Ok(StoredDocument { version: 1, attempts: 0, created_at: at, updated_at: at, value })
    }

    /// Deletes a record of a tenant, even if it changes meanwhile.
    pub async fn delete_record<T: Document + Send>(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<(), AppError> {
        transact(T::KIND, id, || async {
            Ok(self.try_delete::<T>(tenant, id, None).await?.then_some(()))
        })
        .await
    }

    /// Deletes a record of a tenant and, in the same commit, applies `related`. False if one of the
    /// two records has changed meanwhile.
    pub async fn try_delete<T: Document + Send>(
        &self,
        tenant: &TenantId,
        id: &str,
        related: Option<RecordChange>,
    ) -> Result<bool, AppError> {
        let Some(stored) = self.store.load::<T>(tenant, id).await? else {
            return Err(AppError::not_found(T::KIND, id));
        };
        let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
        let mut commit = Commit::new().record(delete);
        commit.records.extend(related);
        commit.appends.extend(self.audit(Some(&stored.value), None)?);
        match self.store.commit(commit).await {
            Ok(_) => Ok(true),
            Err(CommitError::Conflict(_)) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    /// A page of documents and the position of the next page. A page holds at most the number asked
    /// for, and about 4 MiB.
    pub async fn list_records<T: Document>(
        &self,
        query: RecordQuery,
    ) -> Result<(Vec<StoredDocument<T>>, Option<RecordPosition>), AppError> {
        let (records, next) = self.list_page(query).await?;
        let values = records.iter().map(store::decode).collect::<Result<_, _>>()?;
        Ok((values, next))
    }

    /// All documents that match the query, read page by page.
    pub async fn list_all<T: Document>(&self, mut query: RecordQuery) -> Result<Vec<T>, AppError> {
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

    /// A page of stored records and the position of the next page.
    pub async fn list_page(
        &self,
        mut query: RecordQuery,
    ) -> Result<(Vec<Record>, Option<RecordPosition>), AppError> {
        let limit = query.limit;
        let (mut page, mut page_bytes) = (Vec::new(), 0);
        let (mut slice, mut largest) = (FIRST_SLICE, 1);
        loop {
            // Reading one more than asked for shows whether there is a next page.
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
