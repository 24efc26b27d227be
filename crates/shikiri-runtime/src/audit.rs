//! The audit log: written with every change of who may do what, and read by admins.

use shikiri_model::audit::{
    AUDIT_EVENT, AuditAction, AuditEntry, AuditRecord, TRUST_KIND, audit_entry, audit_stream,
};
use shikiri_model::event::{NewEvent, Seq};
use shikiri_model::ids::TenantId;
use shikiri_model::record::Document;
use shikiri_store::{Commit, StoreError, StreamAppend};

use crate::error::AppError;
use crate::runtime::Runtime;
use crate::watch::Watch;

/// Bytes that are read from the log at a time.
const PAGE_BYTES: usize = 256 * 1024;

impl Runtime {
    /// The audit entry of a change, for the commit of that change. None if the change is not
    /// audited.
    pub fn audit<T: Document>(
        &self,
        before: Option<&T>,
        after: Option<&T>,
    ) -> Result<Option<StreamAppend>, AppError> {
        let Some(entry) = audit_entry(&self.origin, before, after)? else { return Ok(None) };
        let event = NewEvent::new(AUDIT_EVENT, &entry)?;
        Ok(Some(StreamAppend::new(TenantId::system(), audit_stream(), vec![event])))
    }

    /// Records that a person trusted files of a project, or withdrew that trust.
    pub async fn audit_trust(
        &self,
        action: AuditAction,
        folder: String,
        files: Vec<String>,
    ) -> Result<(), AppError> {
        let entry = AuditEntry {
            who: self.origin.actor.clone(),
            from: self.origin.from.clone(),
            action,
            kind: TRUST_KIND.to_owned(),
            id: folder,
            tenant: None,
            fields: files,
        };
        let event = NewEvent::new(AUDIT_EVENT, &entry)?;
        let append = StreamAppend::new(TenantId::system(), audit_stream(), vec![event]);
        self.store.commit(Commit::new().append(append)).await?;
        Ok(())
    }

    /// A page of entries after a cursor, oldest first, and the cursor of the next page if there is
    /// one.
    pub async fn audit_page(
        &self,
        after: Seq,
        limit: usize,
    ) -> Result<(Vec<AuditRecord>, Option<Seq>), AppError> {
        let (system, stream) = (TenantId::system(), audit_stream());
        let (mut entries, mut cursor) = (Vec::new(), after);
        loop {
            let page = match self.store.read(&system, &stream, cursor, PAGE_BYTES).await {
                Err(StoreError::NoStream(_)) if cursor == 0 => return Ok((entries, None)),
                page => page?,
            };
            for event in page.chunks.iter().flat_map(|chunk| chunk.events()) {
                if event.seq <= cursor {
                    continue;
                }
                if entries.len() == limit {
                    return Ok((entries, Some(cursor)));
                }
                cursor = event.seq;
                entries.push(AuditRecord::read(event).map_err(|error| {
                    AppError::Broken(format!("audit entry {} cannot be read: {error}", event.seq))
                })?);
            }
            if cursor >= page.extent.head {
                return Ok((entries, None));
            }
        }
    }

    /// The newest entries; the oldest of them comes first.
    pub async fn newest_audit_entries(&self, limit: usize) -> Result<Vec<AuditRecord>, AppError> {
        let state = self.store.stream(&TenantId::system(), &audit_stream()).await?;
        let head = state.map_or(0, |state| state.extent.head);
        Ok(self.audit_page(head.saturating_sub(limit as u64), limit).await?.0)
    }

    /// Creates the log if it does not exist yet, so that it can be followed.
    pub async fn open_audit_log(&self) -> Result<(), AppError> {
        let system = TenantId::system();
        if self.store.stream(&system, &audit_stream()).await?.is_none() {
            let empty = StreamAppend::new(system, audit_stream(), Vec::new());
            self.store.commit(Commit::new().append(empty)).await?;
        }
        Ok(())
    }

    /// Follows the audit log.
    pub async fn watch_audit(&self, after: Seq) -> Result<Watch, AppError> {
        self.open_audit_log().await?;
        Ok(self.watch(&TenantId::system(), audit_stream(), after).await?)
    }
}
