//! A store that seals the secrets of records on their way in and opens them on their way out.

use std::sync::Arc;

use async_trait::async_trait;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseGuard};
use shikiri_model::record::{Record, RecordChange, RecordKey, RecordQuery};
use shikiri_model::time::Timestamp;
use shikiri_model::total::{StoredTotal, TotalQuery};
use shikiri_store::{
    ChunkPage, Commit, CommitError, CommitReceipt, HookStore, Hub, Store, StoreError, StreamState,
};

use super::secret_fields::secret_field;
use super::{SealingError, SealingKeys};

pub struct SealedStore {
    pub store: Arc<dyn Store>,
    pub keys: Arc<SealingKeys>,
}

impl SealedStore {
    async fn seal(&self, commit: &mut Commit) -> Result<(), SealingError> {
        for change in &mut commit.records {
            let RecordChange::Put { key, doc, .. } = change else { continue };
            let Some(field) = secret_field(key.kind) else { continue };
            if field.has_plain_secret(doc) {
                let sealing = self.keys.for_sealing(&*self.store).await?;
                *doc = field.seal(sealing, key, doc)?;
            }
        }
        Ok(())
    }

    async fn open(&self, mut record: Record) -> Record {
        let Some(field) = secret_field(record.key.kind) else { return record };
        if !field.has_sealed(&record.doc) {
            return record;
        }
        // Without the key it stays sealed, and using it is refused.
        if let Ok(Some(sealing)) = self.keys.for_opening().await
            && let Some(doc) = field.open(&sealing, &record.key, &record.doc)
        {
            record.doc = doc;
        }
        record
    }

    async fn open_found(
        &self,
        found: Result<Option<Record>, StoreError>,
    ) -> Result<Option<Record>, StoreError> {
        match found? {
            Some(record) => Ok(Some(self.open(record).await)),
            None => Ok(None),
        }
    }
}

#[async_trait]
impl Store for SealedStore {
    async fn commit(&self, mut commit: Commit) -> Result<CommitReceipt, CommitError> {
        self.seal(&mut commit).await.map_err(|error| match error {
            SealingError::Store(error) => error,
            error => StoreError::broken(error),
        })?;
        self.store.commit(commit).await
    }

    async fn read(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<ChunkPage, StoreError> {
        self.store.read(tenant, stream, after, max_bytes).await
    }

    async fn stream(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
    ) -> Result<Option<StreamState>, StoreError> {
        self.store.stream(tenant, stream).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.open_found(self.store.get(key).await).await
    }

    async fn find(
        &self,
        kind: &'static str,
        tenant: &TenantId,
        unique: &str,
    ) -> Result<Option<Record>, StoreError> {
        self.open_found(self.store.find(kind, tenant, unique).await).await
    }

    async fn list(&self, query: RecordQuery) -> Result<Vec<Record>, StoreError> {
        let kind = query.kind;
        let found = self.store.list(query).await?;
        if secret_field(kind).is_none() {
            return Ok(found);
        }
        let mut opened = Vec::with_capacity(found.len());
        for record in found {
            opened.push(self.open(record).await);
        }
        Ok(opened)
    }

    async fn totals(&self, query: TotalQuery) -> Result<Vec<StoredTotal>, StoreError> {
        self.store.totals(query).await
    }

    async fn next_due(&self, kind: &'static str) -> Result<Option<Timestamp>, StoreError> {
        self.store.next_due(kind).await
    }

    async fn lease(&self, name: &str) -> Result<Option<(Lease, bool)>, StoreError> {
        self.store.lease(name).await
    }

    async fn lapsed_leases(&self, prefix: &str) -> Result<Vec<Lease>, StoreError> {
        self.store.lapsed_leases(prefix).await
    }

    async fn forget_lease(&self, guard: &LeaseGuard) -> Result<(), StoreError> {
        self.store.forget_lease(guard).await
    }

    async fn purge(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.store.purge(before, limit).await
    }

    async fn erase(&self, tenant: &TenantId) -> Result<(), StoreError> {
        self.store.erase(tenant).await
    }

    async fn erase_streams(
        &self,
        tenant: &TenantId,
        streams: &[StreamId],
    ) -> Result<(), StoreError> {
        self.store.erase_streams(tenant, streams).await
    }

    async fn stored_bytes(
        &self,
        tenant: &TenantId,
        kinds: &'static [&'static str],
    ) -> Result<u64, StoreError> {
        self.store.stored_bytes(tenant, kinds).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.store.probe().await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }

    fn hub(&self) -> &Arc<Hub> {
        self.store.hub()
    }

    fn hooks(&self) -> &dyn HookStore {
        self.store.hooks()
    }

    fn backend(&self) -> &'static str {
        self.store.backend()
    }
}
