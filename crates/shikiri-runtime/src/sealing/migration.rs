//! Seals what is stored in plain text, at the first start with a sealing key.

use shikiri_model::ids::TenantId;
use shikiri_model::models::Model;
use shikiri_model::record::{
    Document, ExpectedVersion, Record, RecordChange, RecordPosition, RecordQuery,
};
use shikiri_model::server::McpServer;
use shikiri_model::tenant::Tenant;
use shikiri_store::{Commit, CommitError, Store, StoreError, StoreExt};

use super::secret_fields::secret_field;
use super::{CURRENT, SealingError, SealingKeys, StoreSealing};
use crate::runtime::Runtime;

const PAGE: u32 = 200;

impl Runtime {
    /// Makes sure that a key seals this store, and that nothing of an earlier version is left in
    /// plain text. Refuses a key that is not the store's. Does nothing without sealing keys.
    pub async fn ensure_sealed(&self) -> Result<(), SealingError> {
        let Some(keys) = &self.sealing else { return Ok(()) };
        keys.for_sealing(&*self.store).await?;
        let known = self.store.load::<StoreSealing>(&TenantId::system(), CURRENT).await?;
        if known.as_ref().is_none_or(|known| known.value.is_migrated) {
            return Ok(());
        }
        let mut sealed = self.seal_plain::<Model>(keys, &TenantId::system()).await?;
        let mut after = None;
        loop {
            let (tenants, next) = page::<Tenant>(&*self.store, &TenantId::system(), after).await?;
            for tenant in tenants {
                let tenant = tenant.key.id.parse().map_err(StoreError::broken)?;
                sealed += self.seal_plain::<McpServer>(keys, &tenant).await?;
            }
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        if sealed > 0 {
            tracing::info!(records = sealed, "secrets that were stored in plain text are sealed");
        }
        self.note_migrated().await
    }

    async fn seal_plain<T: Document>(
        &self,
        keys: &SealingKeys,
        tenant: &TenantId,
    ) -> Result<usize, SealingError> {
        let Some(field) = secret_field(T::KIND) else { return Ok(0) };
        let (mut after, mut count) = (None, 0);
        loop {
            // Reads below the sealing store: sealed values must not look plain.
            let (records, next) = page::<T>(&*self.bare_store, tenant, after).await?;
            for record in records.iter().filter(|record| field.has_plain_secret(&record.doc)) {
                let sealing = keys.for_sealing(&*self.store).await?;
                let doc = field.seal(sealing, &record.key, &record.doc)?;
                count += usize::from(replace(&*self.bare_store, record, doc).await?);
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(count),
            }
        }
    }

    async fn note_migrated(&self) -> Result<(), SealingError> {
        let found = self.store.load::<StoreSealing>(&TenantId::system(), CURRENT).await?;
        let Some(mut known) = found else { return Ok(()) };
        known.value.is_migrated = true;
        let put = RecordChange::put(&known.value, ExpectedVersion::Version(known.version));
        let put = put.map_err(StoreError::broken)?;
        match self.store.commit(Commit::new().record(put)).await {
            // Another node has done the same.
            Ok(_) | Err(CommitError::Conflict(_)) => Ok(()),
            Err(CommitError::Store(error)) => Err(error.into()),
            Err(error) => Err(StoreError::broken(error).into()),
        }
    }
}

async fn page<T: Document>(
    store: &dyn Store,
    tenant: &TenantId,
    after: Option<RecordPosition>,
) -> Result<(Vec<Record>, Option<RecordPosition>), StoreError> {
    let query = RecordQuery { after, limit: PAGE, ..RecordQuery::of::<T>(tenant) };
    let records = store.list(query).await?;
    let is_full = records.len() as u32 == PAGE;
    let next = records.last().filter(|_| is_full).map(Record::position);
    Ok((records, next))
}

/// False if the record changed meanwhile: that write has sealed it.
async fn replace(store: &dyn Store, record: &Record, doc: String) -> Result<bool, StoreError> {
    let put = RecordChange::Put {
        key: record.key.clone(),
        expect: ExpectedVersion::Version(record.version),
        columns: record.columns.clone(),
        doc,
    };
    match store.commit(Commit::new().record(put)).await {
        Ok(_) => Ok(true),
        Err(CommitError::Conflict(_)) => Ok(false),
        Err(CommitError::Store(error)) => Err(error),
        Err(error) => Err(StoreError::broken(error)),
    }
}
