//! API keys: the admin's, made at first start, and tenants'.

use shikiri_model::ids::{KeyId, TenantId};
use shikiri_model::key::{ApiKey, KeyScope, KeyUse, Secret};
use shikiri_model::record::{Document, Expect, Position, RecordChange, RecordQuery, Stored};
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, CommitError, StoreExt, store};

use crate::app::{App, entropy, random};
use crate::error::AppError;

/// A key to be made.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub name: String,
    pub expires_at: Option<Timestamp>,
}

impl NewKey {
    /// One without an end.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), expires_at: None }
    }
}

/// A key, and when it was last used.
pub struct ListedKey {
    pub stored: Stored<ApiKey>,
    pub last_used_at: Option<Timestamp>,
}

impl App {
    /// Makes a key of a tenant. The secret is in the answer and nowhere else.
    pub async fn create_key(
        &self,
        tenant: &TenantId,
        new: NewKey,
    ) -> Result<(Stored<ApiKey>, Secret), AppError> {
        self.make_named_key(new, KeyScope::Tenant(tenant.clone())).await
    }

    /// Makes a key with which events of hooks can be told for a tenant, and nothing else be done.
    pub async fn create_hooks_key(
        &self,
        tenant: &TenantId,
        new: NewKey,
    ) -> Result<(Stored<ApiKey>, Secret), AppError> {
        self.make_named_key(new, KeyScope::Hooks(tenant.clone())).await
    }

    /// The secret of a new admin key, for the file that only its owner can read.
    pub fn mint_secret() -> Result<Secret, AppError> {
        Ok(Secret::mint(random()?))
    }

    /// Makes this secret open everything; doing so twice changes nothing.
    pub async fn ensure_admin_key(&self, secret: &Secret) -> Result<(), AppError> {
        if self.key_of(secret).await?.is_some() {
            return Ok(());
        }
        match self.make_key(NewKey::named("admin"), KeyScope::Admin, secret.clone()).await {
            Ok(_) => Ok(()),
            // Another process did the same a moment ago.
            Err(_) if self.key_of(secret).await?.is_some() => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// How many other secrets open everything.
    pub async fn count_other_admin_keys(&self, secret: &Secret) -> Result<usize, AppError> {
        Ok(self.other_admin_keys(secret).await?.len())
    }

    /// Makes every other secret that opened everything useless; returns how many there were.
    pub async fn revoke_other_admin_keys(&self, secret: &Secret) -> Result<usize, AppError> {
        let mut revoked = 0;
        for key in self.other_admin_keys(secret).await? {
            revoked += usize::from(self.remove_key(&key).await?);
        }
        Ok(revoked)
    }

    /// Makes this secret open nothing.
    pub async fn revoke_admin_key(&self, secret: &Secret) -> Result<(), AppError> {
        let hash = secret.hash();
        let found = self.store.find(ApiKey::KIND, &TenantId::system(), hash.as_str()).await?;
        if let Some(record) = found {
            self.remove_key(&store::decode::<ApiKey>(&record)?).await?;
        }
        Ok(())
    }

    async fn other_admin_keys(&self, secret: &Secret) -> Result<Vec<Stored<ApiKey>>, AppError> {
        let all = RecordQuery { limit: 100, ..RecordQuery::of::<ApiKey>(&TenantId::system()) };
        let (mut others, mut after) = (Vec::new(), None);
        loop {
            let page = RecordQuery { after, ..all.clone() };
            let (keys, next) = self.list_records::<ApiKey>(page).await?;
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
        new: NewKey,
        scope: KeyScope,
    ) -> Result<(Stored<ApiKey>, Secret), AppError> {
        let name = &new.name;
        if name.trim().is_empty() || name.chars().count() > 200 {
            return Err(AppError::invalid("name", "must have 1 to 200 characters"));
        }
        if let Some(end) = new.expires_at
            && end <= self.store.now().await?
        {
            return Err(AppError::invalid("expires_at", "must be in the future"));
        }
        self.make_key(new, scope, Secret::mint(random()?)).await
    }

    async fn make_key(
        &self,
        new: NewKey,
        scope: KeyScope,
        secret: Secret,
    ) -> Result<(Stored<ApiKey>, Secret), AppError> {
        let id = KeyId::mint(self.store.now().await?, entropy()?);
        let NewKey { name, expires_at } = new;
        let key = ApiKey { id, name, scope, hash: secret.hash(), expires_at };
        let mut commit = Commit::new().record(RecordChange::put(&key, Expect::New)?);
        commit.appends.extend(self.audit(None, Some(&key))?);
        let at = match key.scope.tenant() {
            Some(tenant) => self.commit_in_tenant(tenant, commit).await?.at,
            None => self.store.commit(commit).await?.at,
        };
        let stored = Stored { version: 1, attempts: 0, created_at: at, updated_at: at, value: key };
        Ok((stored, secret))
    }

    /// What this secret opens, if anything: a key that has expired opens nothing.
    pub async fn key_of(&self, secret: &Secret) -> Result<Option<ApiKey>, AppError> {
        let hash = secret.hash();
        let found = self.store.find(ApiKey::KIND, &TenantId::system(), hash.as_str()).await?;
        let key = found.map(|record| store::decode::<ApiKey>(&record)).transpose()?;
        let Some(key) = key.map(|stored| stored.value).filter(|key| key.hash == hash) else {
            return Ok(None);
        };
        // The time is asked for only where it counts.
        let is_over = key.expires_at.is_some() && key.is_expired(self.store.now().await?);
        Ok((!is_over).then_some(key))
    }

    pub async fn list_keys(
        &self,
        tenant: &TenantId,
        after: Option<Position>,
        limit: u32,
    ) -> Result<(Vec<ListedKey>, Option<Position>), AppError> {
        self.tenant(tenant).await?;
        let (keys, next) = self.list_records::<ApiKey>(keys_of(tenant, after, limit)).await?;
        let mut listed = Vec::with_capacity(keys.len());
        for stored in keys {
            let id = stored.value.id.as_str();
            let used = self.store.load::<KeyUse>(&TenantId::system(), id).await?;
            listed.push(ListedKey { stored, last_used_at: used.map(|u| u.value.last_used_at) });
        }
        Ok((listed, next))
    }

    /// Writes down that a key was used. Whoever writes it at the same time is as right.
    pub(crate) async fn note_key_use(&self, key: &KeyId) -> Result<(), AppError> {
        let found = self.store.load::<KeyUse>(&TenantId::system(), key.as_str()).await?;
        let expect = found.map_or(Expect::New, |found| Expect::Version(found.version));
        let used = KeyUse { key: key.clone(), last_used_at: self.store.now().await? };
        let commit = Commit::new().record(RecordChange::put(&used, expect)?);
        match self.store.commit(commit).await {
            Ok(_) | Err(CommitError::Conflict(_) | CommitError::Exists(_)) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    pub async fn revoke_key(&self, tenant: &TenantId, id: &KeyId) -> Result<(), AppError> {
        let missing = || AppError::not_found("key", id);
        let stored = self.store.load::<ApiKey>(&TenantId::system(), id.as_str()).await?;
        let stored = stored.ok_or_else(missing)?;
        if stored.value.scope.tenant() != Some(tenant) {
            return Err(missing());
        }
        if self.remove_key(&stored).await? { Ok(()) } else { Err(missing()) }
    }

    /// False if it was gone already.
    async fn remove_key(&self, stored: &Stored<ApiKey>) -> Result<bool, AppError> {
        let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
        let mut commit = Commit::new().record(delete);
        commit.appends.extend(self.audit(Some(&stored.value), None)?);
        match self.store.commit(commit).await {
            Ok(_) => {
                self.forget_key_use(&stored.value.id).await;
                Ok(true)
            }
            Err(CommitError::Conflict(_)) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    /// What is left of a key says nothing that matters: it need not go.
    async fn forget_key_use(&self, key: &KeyId) {
        let found = self.store.load::<KeyUse>(&TenantId::system(), key.as_str()).await;
        if let Ok(Some(stored)) = found {
            let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
            let _ = self.store.commit(Commit::new().record(delete)).await;
        }
    }

    pub(crate) async fn revoke_all_keys(&self, tenant: &TenantId) -> Result<(), AppError> {
        loop {
            let (keys, next) = self.list_records::<ApiKey>(keys_of(tenant, None, 100)).await?;
            for key in keys {
                self.revoke_key(tenant, &key.value.id).await?;
            }
            if next.is_none() {
                return Ok(());
            }
        }
    }
}

fn keys_of(tenant: &TenantId, after: Option<Position>, limit: u32) -> RecordQuery {
    RecordQuery {
        parent: Some(tenant.to_string()),
        after,
        limit,
        ..RecordQuery::of::<ApiKey>(&TenantId::system())
    }
}
