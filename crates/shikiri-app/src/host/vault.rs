//! What is kept of logins at other people's servers: in the store, sealed with a key that lies
//! beside it in a file of its own. Who has the one without the other has nothing.

use std::path::PathBuf;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::digest;
use serde::{Deserialize, Serialize};
use shikiri_client::Vault;
use shikiri_model::ids::TenantId;
use shikiri_model::record::{Columns, Document, Expect, Record, RecordChange, RecordKey};
use shikiri_store::{Commit, CommitError};

use super::vault_key::KeyFile;
use crate::app::{App, max_tries, random};

const NONCE: usize = 12;

/// A sealed login. Only where it is good can be read.
#[derive(Serialize, Deserialize)]
struct HostCredential {
    id: String,
    tenant: TenantId,
    place: String,
    /// Nonce, then what was sealed.
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

    fn columns(&self) -> Columns {
        Columns { state: "kept".to_owned(), ..Columns::default() }
    }
}

/// The vault of one tenant.
pub struct SealedVault {
    app: App,
    tenant: TenantId,
    key: KeyFile,
}

impl SealedVault {
    /// The key's file is made when something is first kept.
    pub fn new(app: App, tenant: TenantId, key_file: PathBuf) -> Self {
        Self { app, tenant, key: KeyFile::new(key_file) }
    }

    fn record_key(&self, place: &str) -> RecordKey {
        let hash = digest::digest(&digest::SHA256, place.as_bytes());
        let hex: String = hash.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        RecordKey {
            kind: HostCredential::KIND,
            tenant: self.tenant.clone(),
            id: format!("cred_{hex}"),
        }
    }

    async fn find(&self, place: &str) -> Result<Option<Record>, String> {
        self.app.store.get(&self.record_key(place)).await.map_err(|error| error.to_string())
    }

    /// What the seal is good for: one tenant, one place.
    fn label(&self, place: &str) -> Aad<String> {
        Aad::from(format!("shikiri host credential\n{}\n{place}", self.tenant))
    }

    fn seal(&self, key: &[u8; 32], place: &str, secret: &[u8]) -> Result<String, String> {
        let nonce: [u8; NONCE] = random().map_err(|error| error.to_string())?;
        let mut text = secret.to_vec();
        let sealing = sealer(key)?;
        sealing
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                self.label(place),
                &mut text,
            )
            .map_err(|_| "it could not be sealed".to_owned())?;
        Ok(STANDARD.encode([nonce.as_slice(), &text].concat()))
    }

    /// None if this key did not seal it, or not for this place.
    fn unseal(&self, key: &[u8; 32], place: &str, record: &Record) -> Option<Vec<u8>> {
        let credential: HostCredential = serde_json::from_str(&record.doc).ok()?;
        let bytes = STANDARD.decode(credential.sealed).ok()?;
        let (nonce, text) = bytes.split_at_checked(NONCE)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let opened = sealer(key).ok()?.open_in_place(nonce, self.label(place), &mut text).ok()?;
        Some(opened.to_vec())
    }

    async fn remove(&self, record: &Record) -> Result<(), String> {
        let delete = RecordChange::Delete { key: record.key.clone(), version: record.version };
        match self.app.store.commit(Commit::new().record(delete)).await {
            // Somebody else has just replaced or removed it.
            Ok(_) | Err(CommitError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn sealer(key: &[u8; 32]) -> Result<LessSafeKey, String> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|_| "the key is unfit".to_owned());
    key.map(LessSafeKey::new)
}

#[async_trait]
impl Vault for SealedVault {
    async fn open(&self, place: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(record) = self.find(place).await? else { return Ok(None) };
        let key = self.key.read().await?;
        let opened = key.and_then(|key| self.unseal(&key, place, &record));
        if opened.is_none() {
            tracing::warn!(
                "the login that is kept for {place} is damaged, or was kept with another key than \
                 the one in {}: it is forgotten, log in again",
                self.key.path().display()
            );
            self.remove(&record).await?;
        }
        Ok(opened)
    }

    async fn keep(&self, place: &str, secret: &[u8]) -> Result<(), String> {
        let key = self.key.read_or_make().await?;
        let credential = HostCredential {
            id: self.record_key(place).id,
            tenant: self.tenant.clone(),
            place: place.to_owned(),
            sealed: self.seal(&key, place, secret)?,
        };
        for _ in 0..max_tries() {
            let known = self.find(place).await?;
            let expect = known.map_or(Expect::New, |record| Expect::Version(record.version));
            let put = RecordChange::put(&credential, expect).map_err(|error| error.to_string())?;
            match self.app.store.commit(Commit::new().record(put)).await {
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

    async fn alone(&self) -> Result<Box<dyn Send>, String> {
        self.key.lock().await
    }
}
