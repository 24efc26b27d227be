//! API keys: the admin's, made at first start, and tenants'.

use shikiri_model::ids::{KeyId, TenantId};
use shikiri_model::key::{ApiKey, KeyScope, Secret};
use shikiri_model::record::{Document, Expect, Position, RecordChange, RecordQuery, Stored};
use shikiri_store::{Commit, CommitError, StoreExt, store};

use crate::app::{App, entropy, random};
use crate::error::AppError;

impl App {
    /// Makes a key of a tenant. The secret is in the answer and nowhere else.
    pub async fn create_key(
        &self,
        tenant: &TenantId,
        name: String,
    ) -> Result<(Stored<ApiKey>, Secret), AppError> {
        self.make_named_key(name, KeyScope::Tenant(tenant.clone())).await
    }

    /// Makes a key with which events of hooks can be told for a tenant, and nothing else be done.
    pub async fn create_hooks_key(
        &self,
        tenant: &TenantId,
        name: String,
    ) -> Result<(Stored<ApiKey>, Secret), AppError> {
        self.make_named_key(name, KeyScope::Hooks(tenant.clone())).await
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
        match self.make_key("admin".to_owned(), KeyScope::Admin, secret.clone()).await {
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
        name: String,
        scope: KeyScope,
    ) -> Result<(Stored<ApiKey>, Secret), AppError> {
        if name.trim().is_empty() || name.chars().count() > 200 {
            return Err(AppError::invalid("name", "must have 1 to 200 characters"));
        }
        self.make_key(name, scope, Secret::mint(random()?)).await
    }

    async fn make_key(
        &self,
        name: String,
        scope: KeyScope,
        secret: Secret,
    ) -> Result<(Stored<ApiKey>, Secret), AppError> {
        let id = KeyId::mint(self.store.now().await?, entropy()?);
        let key = ApiKey { id, name, scope, hash: secret.hash() };
        let put = RecordChange::put(&key, Expect::New)?;
        let commit = Commit::new().record(put);
        let at = match key.scope.tenant() {
            Some(tenant) => self.commit_in_tenant(tenant, commit).await?.at,
            None => self.store.commit(commit).await?.at,
        };
        let stored = Stored { version: 1, attempts: 0, created_at: at, updated_at: at, value: key };
        Ok((stored, secret))
    }

    /// What this secret opens, if anything.
    pub async fn key_of(&self, secret: &Secret) -> Result<Option<ApiKey>, AppError> {
        let hash = secret.hash();
        let found = self.store.find(ApiKey::KIND, &TenantId::system(), hash.as_str()).await?;
        let key = found.map(|record| store::decode::<ApiKey>(&record)).transpose()?;
        Ok(key.map(|stored| stored.value).filter(|key| key.hash == hash))
    }

    pub async fn list_keys(
        &self,
        tenant: &TenantId,
        after: Option<Position>,
        limit: u32,
    ) -> Result<(Vec<Stored<ApiKey>>, Option<Position>), AppError> {
        self.tenant(tenant).await?;
        self.list_records(keys_of(tenant, after, limit)).await
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
        match self.store.commit(Commit::new().record(delete)).await {
            Ok(_) => Ok(true),
            Err(CommitError::Conflict(_)) => Ok(false),
            Err(other) => Err(other.into()),
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
