//! Secrets at rest. The secrets of a record (a model's `env`, literal headers of servers, logins at
//! remote servers) are sealed before it is stored. The key lies in a file of its own: neither the
//! store nor the key alone reveals a secret.
//!
//! All nodes of a store share one key. A record of the store holds the id of the key.

mod key_file;
mod migration;
mod sealed_store;
mod secret_fields;

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use key_file::KeyFile;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest;
use serde::{Deserialize, Serialize};
use shikiri_model::ids::TenantId;
use shikiri_model::record::{Document, ExpectedVersion, RecordChange, RecordColumns};
use shikiri_store::{Commit, CommitError, Store, StoreError, StoreExt};
use tokio::sync::OnceCell;

use crate::runtime::random;
pub use sealed_store::SealedStore;
pub use secret_fields::refuse_sealed;

/// What a sealed text begins with. The id of its key and the rest follow.
const PREFIX: &str = "sealed:v1:";

#[derive(Clone, Debug, thiserror::Error)]
pub enum SealingError {
    #[error("cannot use the sealing key {}: {cause}", path.display())]
    Unusable { path: PathBuf, cause: String },
    #[error(
        "{} does not hold a sealing key: put the one back with which this store was sealed",
        .0.display()
    )]
    NotAKey(PathBuf),
    #[error("others may read the sealing key {}: chmod 600 {}", .0.display(), .0.display())]
    Exposed(PathBuf),
    #[error(
        "this store is sealed with another key than the one in {}: copy the key file of a node that \
         serves this store, or name it with SHIKIRI_SEALING_KEY_FILE",
        .0.display()
    )]
    AnotherKey(PathBuf),
    #[error(
        "this store is sealed and its key is not in {}: copy the key file of a node that serves this \
         store, or name it with SHIKIRI_SEALING_KEY_FILE",
        .0.display()
    )]
    Missing(PathBuf),
    #[error("a secret could not be sealed")]
    NotSealed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SealingError {
    /// Whether another key file would help.
    pub fn is_about_the_key(&self) -> bool {
        !matches!(self, Self::Store(_) | Self::NotSealed)
    }
}

/// How a key file and a store fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealingState {
    /// Nothing was ever sealed.
    Unused,
    /// The key is the store's.
    Fits,
}

/// Which key the store is sealed with.
#[derive(Serialize, Deserialize)]
struct StoreSealing {
    key_id: String,
    /// Whether secrets from before there was a key are sealed too.
    #[serde(default)]
    is_migrated: bool,
}

impl Document for StoreSealing {
    const KIND: &'static str = "sealing_key";

    fn tenant(&self) -> TenantId {
        TenantId::system()
    }

    fn id(&self) -> &str {
        CURRENT
    }

    fn columns(&self) -> RecordColumns {
        RecordColumns { state: "current".to_owned(), ..RecordColumns::default() }
    }
}

const CURRENT: &str = "current";

/// A key that seals texts.
#[derive(Clone)]
pub struct SealingKey {
    id: String,
    key: [u8; 32],
}

impl SealingKey {
    fn new(key: [u8; 32]) -> Self {
        // The key is random, so its hash reveals nothing about it.
        let named = [b"shikiri sealing key id\n".as_slice(), &key].concat();
        let hash = digest::digest(&digest::SHA256, &named);
        let id = hex::encode(&hash.as_ref()[..8]);
        Self { id, key }
    }

    fn cipher(&self) -> Result<LessSafeKey, SealingError> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.key);
        key.map(LessSafeKey::new).map_err(|_| SealingError::NotSealed)
    }

    /// Seals a secret. It can be opened only with the same label.
    pub fn seal(&self, label: &str, secret: &[u8]) -> Result<String, SealingError> {
        let nonce: [u8; NONCE_LEN] = random().map_err(|_| SealingError::NotSealed)?;
        let mut text = secret.to_vec();
        self.cipher()?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(label.as_bytes()),
                &mut text,
            )
            .map_err(|_| SealingError::NotSealed)?;
        let sealed = STANDARD.encode([nonce.as_slice(), &text].concat());
        Ok(format!("{PREFIX}{}:{sealed}", self.id))
    }

    /// None if it was sealed with another key or another label.
    pub fn open(&self, label: &str, sealed: &str) -> Option<Vec<u8>> {
        let (id, rest) = sealed.strip_prefix(PREFIX)?.split_once(':')?;
        if id != self.id {
            return None;
        }
        self.open_bytes(label, rest)
    }

    /// As `open`, for the earlier form without a key id: nonce and secret alone.
    pub fn open_bytes(&self, label: &str, encoded: &str) -> Option<Vec<u8>> {
        let bytes = STANDARD.decode(encoded).ok()?;
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let label = Aad::from(label.as_bytes());
        let opened = self.cipher().ok()?.open_in_place(nonce, label, &mut text).ok()?;
        Some(opened.to_vec())
    }
}

pub fn is_sealed(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// The key of one store, read when it is first needed.
pub struct SealingKeys {
    file: KeyFile,
    /// The key in the file, once it is known to be the store's.
    store_key: OnceCell<SealingKey>,
}

impl SealingKeys {
    /// The file is created when something is first sealed.
    pub fn new(path: PathBuf) -> Self {
        Self { file: KeyFile::new(path), store_key: OnceCell::new() }
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The key in the file, for opening what it has sealed. None if there is none.
    pub async fn for_opening(&self) -> Result<Option<SealingKey>, SealingError> {
        if let Some(key) = self.store_key.get() {
            return Ok(Some(key.clone()));
        }
        Ok(self.file.read().await?.map(SealingKey::new))
    }

    /// The store's key, for sealing. A store that has none gets one.
    pub async fn for_sealing(&self, store: &dyn Store) -> Result<&SealingKey, SealingError> {
        self.store_key.get_or_try_init(|| self.establish(store)).await
    }

    async fn establish(&self, store: &dyn Store) -> Result<SealingKey, SealingError> {
        loop {
            if let Some(known) = store_sealing(store).await? {
                return self.compare(&known).await;
            }
            let key = SealingKey::new(self.file.read_or_make().await?);
            let sealing = StoreSealing { key_id: key.id.clone(), is_migrated: false };
            let put =
                RecordChange::put(&sealing, ExpectedVersion::New).map_err(StoreError::broken)?;
            match store.commit(Commit::new().record(put)).await {
                Ok(_) => return Ok(key),
                // Another node was first: its key is the store's.
                Err(CommitError::Exists(_) | CommitError::Conflict(_)) => {}
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(error) => return Err(StoreError::broken(error).into()),
            }
        }
    }

    async fn compare(&self, known: &StoreSealing) -> Result<SealingKey, SealingError> {
        match self.file.read().await?.map(SealingKey::new) {
            Some(key) if key.id == known.key_id => Ok(key),
            Some(_) => Err(SealingError::AnotherKey(self.path().to_owned())),
            None => Err(SealingError::Missing(self.path().to_owned())),
        }
    }

    /// Whether the file's key is the store's. Creates nothing.
    pub async fn state(&self, store: &dyn Store) -> Result<SealingState, SealingError> {
        match store_sealing(store).await? {
            Some(known) => self.compare(&known).await.map(|_| SealingState::Fits),
            None => Ok(SealingState::Unused),
        }
    }

    /// Keeps other processes with this key file out until the guard is dropped.
    pub async fn lock(&self) -> Result<Box<dyn Send>, SealingError> {
        self.file.lock().await
    }
}

async fn store_sealing(store: &dyn Store) -> Result<Option<StoreSealing>, StoreError> {
    let found = store.load::<StoreSealing>(&TenantId::system(), CURRENT).await?;
    Ok(found.map(|stored| stored.value))
}

#[cfg(test)]
#[path = "sealing_tests.rs"]
mod tests;
