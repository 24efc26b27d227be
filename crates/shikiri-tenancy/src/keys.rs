//! API keys: the admin's, made at first start, and tenants'.

use shikiri_model::ids::{KeyId, TenantId};
use shikiri_model::key::{ApiKey, KeyScope, KeyUse, SecretToken};
use shikiri_model::record::{
    Document, ExpectedVersion, RecordChange, RecordPosition, RecordQuery, StoredDocument,
};
use shikiri_model::time::Timestamp;
use shikiri_runtime::{AppError, entropy, random};
use shikiri_store::{Commit, CommitError, StoreExt, store};

use crate::Tenancy;

/// A key to be made.
#[derive(Clone, Debug)]
pub struct NewApiKey {
    pub name: String,
    pub expires_at: Option<Timestamp>,
}

impl NewApiKey {
    /// A key that does not expire.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), expires_at: None }
    }
}

/// A key, and when it was last used.
pub struct ListedKey {
    pub stored: StoredDocument<ApiKey>,
    pub last_used_at: Option<Timestamp>,
}

impl Tenancy {
    /// Creates a key of a tenant. The secret is in the answer and nowhere else.
    pub async fn create_key(
        &self,
        tenant: &TenantId,
        new: NewApiKey,
    ) -> Result<(StoredDocument<ApiKey>, SecretToken), AppError> {
        self.make_named_key(new, KeyScope::Tenant(tenant.clone())).await
    }

    /// Creates a key that can only send hook events of a tenant.
    pub async fn create_hooks_key(
        &self,
        tenant: &TenantId,
        new: NewApiKey,
    ) -> Result<(StoredDocument<ApiKey>, SecretToken), AppError> {
        self.make_named_key(new, KeyScope::Hooks(tenant.clone())).await
    }

    /// The secret of a new admin key, for the file that only its owner can read.
    pub fn mint_secret() -> Result<SecretToken, AppError> {
        Ok(SecretToken::mint(random()?))
    }

    /// Creates the admin key with this secret, if there is no key with it.
    pub async fn ensure_admin_key(&self, secret: &SecretToken) -> Result<(), AppError> {
        if self.key_of(secret).await?.is_some() {
            return Ok(());
        }
        match self.make_key(NewApiKey::named("admin"), KeyScope::Admin, secret.clone()).await {
            Ok(_) => Ok(()),
            // Another process did the same a moment ago.
            Err(_) if self.key_of(secret).await?.is_some() => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// The number of other admin keys.
    pub async fn count_other_admin_keys(&self, secret: &SecretToken) -> Result<usize, AppError> {
        Ok(self.other_admin_keys(secret).await?.len())
    }

    /// Revokes every other admin key; returns how many there were.
    pub async fn revoke_other_admin_keys(&self, secret: &SecretToken) -> Result<usize, AppError> {
        let mut revoked = 0;
        for key in self.other_admin_keys(secret).await? {
            revoked += usize::from(self.remove_key(&key).await?);
        }
        Ok(revoked)
    }

    /// Revokes the key with this secret.
    pub async fn revoke_admin_key(&self, secret: &SecretToken) -> Result<(), AppError> {
        let hash = secret.hash();
        let found =
            self.runtime.store().find(ApiKey::KIND, &TenantId::system(), hash.as_str()).await?;
        if let Some(record) = found {
            self.remove_key(&store::decode::<ApiKey>(&record)?).await?;
        }
        Ok(())
    }

    async fn other_admin_keys(
        &self,
        secret: &SecretToken,
    ) -> Result<Vec<StoredDocument<ApiKey>>, AppError> {
        let all = RecordQuery { limit: 100, ..RecordQuery::of::<ApiKey>(&TenantId::system()) };
        let (mut others, mut after) = (Vec::new(), None);
        loop {
            let page = RecordQuery { after, ..all.clone() };
            let (keys, next) = self.runtime.list_records::<ApiKey>(page).await?;
            others.extend(keys.into_iter().filter(|key| {
                key.value.scope == KeyScope::Admin && key.value.hash != secret.hash()
            }));
            match next {
                Some(next) => after = Some(next),
                None => return Ok(others),
            }
        }
    }

    async fn make_named_key(
        &self,
        new: NewApiKey,
        scope: KeyScope,
    ) -> Result<(StoredDocument<ApiKey>, SecretToken), AppError> {
        let name = &new.name;
        if name.trim().is_empty() || name.chars().count() > 200 {
            return Err(AppError::invalid("name", "must have 1 to 200 characters"));
        }
        if let Some(end) = new.expires_at
            && end <= self.runtime.store().now().await?
        {
            return Err(AppError::invalid("expires_at", "must be in the future"));
        }
        self.make_key(new, scope, SecretToken::mint(random()?)).await
    }

    async fn make_key(
        &self,
        new: NewApiKey,
        scope: KeyScope,
        secret: SecretToken,
    ) -> Result<(StoredDocument<ApiKey>, SecretToken), AppError> {
        let id = KeyId::mint(self.runtime.store().now().await?, entropy()?);
        let NewApiKey { name, expires_at } = new;
        let key = ApiKey { id, name, scope, hash: secret.hash(), expires_at };
        let mut commit = Commit::new().record(RecordChange::put(&key, ExpectedVersion::New)?);
        commit.appends.extend(self.runtime.audit(None, Some(&key))?);
        let at = match key.scope.tenant() {
            Some(tenant) => self.runtime.commit_in_tenant(tenant, commit).await?.at,
            None => self.runtime.store().commit(commit).await?.at,
        };
        let stored =
            StoredDocument { version: 1, attempts: 0, created_at: at, updated_at: at, value: key };
        Ok((stored, secret))
    }

    /// The key with this secret. None if there is none or it has expired.
    pub async fn key_of(&self, secret: &SecretToken) -> Result<Option<ApiKey>, AppError> {
        let hash = secret.hash();
        let found =
            self.runtime.store().find(ApiKey::KIND, &TenantId::system(), hash.as_str()).await?;
        let key = found.map(|record| store::decode::<ApiKey>(&record)).transpose()?;
        let Some(key) = key.map(|stored| stored.value).filter(|key| key.hash == hash) else {
            return Ok(None);
        };
        // The store is asked for the time only if the key can expire.
        let is_over = key.expires_at.is_some() && key.is_expired(self.runtime.store().now().await?);
        Ok((!is_over).then_some(key))
    }

    pub async fn list_keys(
        &self,
        tenant: &TenantId,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<ListedKey>, Option<RecordPosition>), AppError> {
        self.runtime.tenant(tenant).await?;
        let (keys, next) =
            self.runtime.list_records::<ApiKey>(keys_of(tenant, after, limit)).await?;
        let mut listed = Vec::with_capacity(keys.len());
        for stored in keys {
            let id = stored.value.id.as_str();
            let used = self.runtime.store().load::<KeyUse>(&TenantId::system(), id).await?;
            listed.push(ListedKey { stored, last_used_at: used.map(|u| u.value.last_used_at) });
        }
        Ok((listed, next))
    }

    /// Records that a key was used. A concurrent write is as good as this one.
    pub(crate) async fn note_key_use(&self, key: &KeyId) -> Result<(), AppError> {
        let found = self.runtime.store().load::<KeyUse>(&TenantId::system(), key.as_str()).await?;
        let expect =
            found.map_or(ExpectedVersion::New, |found| ExpectedVersion::Version(found.version));
        let used = KeyUse { key: key.clone(), last_used_at: self.runtime.store().now().await? };
        let commit = Commit::new().record(RecordChange::put(&used, expect)?);
        match self.runtime.store().commit(commit).await {
            Ok(_) | Err(CommitError::Conflict(_) | CommitError::Exists(_)) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    pub async fn revoke_key(&self, tenant: &TenantId, id: &KeyId) -> Result<(), AppError> {
        let missing = || AppError::not_found("key", id);
        let stored = self.runtime.store().load::<ApiKey>(&TenantId::system(), id.as_str()).await?;
        let stored = stored.ok_or_else(missing)?;
        if stored.value.scope.tenant() != Some(tenant) {
            return Err(missing());
        }
        if self.remove_key(&stored).await? { Ok(()) } else { Err(missing()) }
    }

    /// False if it was gone already.
    async fn remove_key(&self, stored: &StoredDocument<ApiKey>) -> Result<bool, AppError> {
        let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
        let mut commit = Commit::new().record(delete);
        commit.appends.extend(self.runtime.audit(Some(&stored.value), None)?);
        match self.runtime.store().commit(commit).await {
            Ok(_) => {
                self.forget_key_use(&stored.value.id).await;
                Ok(true)
            }
            Err(CommitError::Conflict(_)) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    /// Deletes the record of a key's last use. A leftover does no harm, so this may fail.
    async fn forget_key_use(&self, key: &KeyId) {
        let found = self.runtime.store().load::<KeyUse>(&TenantId::system(), key.as_str()).await;
        if let Ok(Some(stored)) = found {
            let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
            let _ = self.runtime.store().commit(Commit::new().record(delete)).await;
        }
    }

    pub async fn revoke_all_keys(&self, tenant: &TenantId) -> Result<(), AppError> {
        loop {
            let (keys, next) =
                self.runtime.list_records::<ApiKey>(keys_of(tenant, None, 100)).await?;
            for key in keys {
                self.revoke_key(tenant, &key.value.id).await?;
            }
            if next.is_none() {
                return Ok(());
            }
        }
    }
}

fn keys_of(tenant: &TenantId, after: Option<RecordPosition>, limit: u32) -> RecordQuery {
    RecordQuery {
        parent: Some(tenant.to_string()),
        after,
        limit,
        ..RecordQuery::of::<ApiKey>(&TenantId::system())
    }
}
