//! Credentials for other servers. They are kept in the store, sealed with a key from a separate
//! file, so that neither the store nor the key file alone reveals them.

use std::path::PathBuf;

use async_trait::async_trait;
use ring::digest;
use serde::{Deserialize, Serialize};
use shikiri_client::TokenStore;
use shikiri_model::ids::TenantId;
use shikiri_model::record::{
    Document, ExpectedVersion, Record, RecordChange, RecordColumns, RecordKey,
};
use shikiri_runtime::sealing::{SealingKey, SealingKeys, is_sealed};
use shikiri_runtime::{Runtime, max_tries};
use shikiri_store::{Commit, CommitError};

/// A sealed login. Only the address of its server (`place`) is readable.
#[derive(Serialize, Deserialize)]
struct HostCredential {
    id: String,
    tenant: TenantId,
    place: String,
    sealed: String,
}

impl Document for HostCredential {
    const KIND: &'static str = "host_credential";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn columns(&self) -> RecordColumns {
        RecordColumns { state: "kept".to_owned(), ..RecordColumns::default() }
    }
}

/// The sealed credentials of one tenant.
pub struct SealedTokenStore {
    runtime: Runtime,
    tenant: TenantId,
    keys: SealingKeys,
}

impl SealedTokenStore {
    /// The key file is created when the first credential is stored.
    pub fn new(runtime: Runtime, tenant: TenantId, key_file: PathBuf) -> Self {
        Self { runtime, tenant, keys: SealingKeys::new(key_file) }
    }

    fn record_key(&self, place: &str) -> RecordKey {
        let hash = digest::digest(&digest::SHA256, place.as_bytes());
        RecordKey {
            kind: HostCredential::KIND,
            tenant: self.tenant.clone(),
            id: format!("cred_{}", hex::encode(&hash.as_ref()[..16])),
        }
    }

    async fn find(&self, place: &str) -> Result<Option<Record>, String> {
        self.runtime.store().get(&self.record_key(place)).await.map_err(|error| error.to_string())
    }

    /// The label of the seal: it is valid for one tenant and one server address.
    fn label(&self, place: &str) -> String {
        format!("shikiri host credential\n{}\n{place}", self.tenant)
    }

    /// None if it was sealed with another key or for another address.
    fn unseal(&self, key: &SealingKey, place: &str, record: &Record) -> Option<Vec<u8>> {
        let credential: HostCredential = serde_json::from_str(&record.doc).ok()?;
        let label = self.label(place);
        match is_sealed(&credential.sealed) {
            true => key.open(&label, &credential.sealed),
            // The format of an earlier version.
            false => key.open_bytes(&label, &credential.sealed),
        }
    }

    async fn remove(&self, record: &Record) -> Result<(), String> {
        let delete = RecordChange::Delete { key: record.key.clone(), version: record.version };
        match self.runtime.store().commit(Commit::new().record(delete)).await {
            // Another process has just replaced or removed it.
            Ok(_) | Err(CommitError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[async_trait]
impl TokenStore for SealedTokenStore {
    async fn open(&self, place: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(record) = self.find(place).await? else { return Ok(None) };
        let key = self.keys.for_opening().await.map_err(|error| error.to_string())?;
        let opened = key.and_then(|key| self.unseal(&key, place, &record));
        if opened.is_none() {
            // If only the store's key is missing here, the login is intact: report that instead.
            let fits = self.keys.state(self.runtime.store().as_ref()).await;
            fits.map_err(|error| error.to_string())?;
            tracing::warn!(
                "the login that is kept for {place} is damaged: it is forgotten, log in again"
            );
            self.remove(&record).await?;
        }
        Ok(opened)
    }

    async fn keep(&self, place: &str, secret: &[u8]) -> Result<(), String> {
        let key = self.keys.for_sealing(self.runtime.store().as_ref()).await;
        let key = key.map_err(|error| error.to_string())?;
        let sealed = key.seal(&self.label(place), secret).map_err(|error| error.to_string())?;
        let credential = HostCredential {
            id: self.record_key(place).id,
            tenant: self.tenant.clone(),
            place: place.to_owned(),
            sealed,
        };
        for _ in 0..max_tries() {
            let known = self.find(place).await?;
            let expect = known
                .map_or(ExpectedVersion::New, |record| ExpectedVersion::Version(record.version));
            let put = RecordChange::put(&credential, expect).map_err(|error| error.to_string())?;
            match self.runtime.store().commit(Commit::new().record(put)).await {
                Ok(_) => return Ok(()),
                Err(CommitError::Conflict(_) | CommitError::Exists(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("others change it all the time: try again".to_owned())
    }

    async fn forget(&self, place: &str) -> Result<(), String> {
        match self.find(place).await? {
            Some(record) => self.remove(&record).await,
            None => Ok(()),
        }
    }

    async fn lock(&self) -> Result<Box<dyn Send>, String> {
        self.keys.lock().await.map_err(|error| error.to_string())
    }
}
