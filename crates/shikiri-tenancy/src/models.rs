//! Models: create, change, list. They belong to the server, so only an admin writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shikiri_model::execution::{ModelPrices, PriceList, TokenPrice};
use shikiri_model::ids::{ModelId, TenantId};
use shikiri_model::lease::LeaseGuard;
use shikiri_model::models::{ActiveStatus, EngineKind, Model};
use shikiri_model::record::{
    ExpectedVersion, RecordChange, RecordPosition, RecordQuery, StoredDocument,
};
use shikiri_runtime::field_checks::{check_text, set};
use shikiri_runtime::leased_change::{HOLD, run_to_completion};
use shikiri_runtime::sealing::is_sealed;
use shikiri_runtime::{AppError, entropy};
use shikiri_store::{Commit, CommitError, StoreExt, StreamAppend};

use crate::Tenancy;

/// Shown in place of a value of `env`, which may be a secret.
pub const HIDDEN: &str = "***";

/// What a caller may set; absent fields stay as they are.
#[derive(Clone, Default)]
pub struct ModelPatch {
    pub engine: Option<EngineKind>,
    pub model_name: Option<String>,
    pub region: Option<Option<String>>,
    pub status: Option<ActiveStatus>,
    pub aliases: Option<Vec<String>>,
    pub subagent_model: Option<Option<String>>,
    /// Each is set, or removed by None; `HIDDEN` leaves it as it is.
    pub env: BTreeMap<String, Option<String>>,
    /// Names in `env` that no run sees, besides those that look like credentials.
    pub secret_env: Option<Vec<String>>,
    pub prices: PricesPatch,
}

/// The prices that a caller may set; absent fields stay as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct PricesPatch {
    pub input: Option<TokenPrice>,
    pub output: Option<TokenPrice>,
    pub cache_write_5m: Option<TokenPrice>,
    pub cache_write_1h: Option<TokenPrice>,
    pub cache_read: Option<TokenPrice>,
}

const MAX_NAME: usize = 200;
const MAX_ALIASES: usize = 20;
const MAX_ENV: usize = 50;
const MAX_ENV_VALUE: usize = 8 * 1024;

/// Variables that decide what an engine loads and runs, and where it keeps its files.
const OURS: [&str; 13] = [
    "PATH",
    "HOME",
    "SHELL",
    "ENV",
    "BASH_ENV",
    "IFS",
    "PWD",
    "TMPDIR",
    "NODE_OPTIONS",
    "NODE_PATH",
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_PROJECT_DIR",
    "CLAUDECODE",
];
const OUR_PREFIXES: [&str; 3] = ["LD_", "DYLD_", "SHIKIRI_"];

impl ModelPatch {
    fn apply(&self, model: &mut Model) -> Result<(), AppError> {
        set(&mut model.engine, self.engine.as_ref());
        set(&mut model.model_name, self.model_name.as_ref());
        set(&mut model.region, self.region.as_ref());
        set(&mut model.status, self.status.as_ref());
        set(&mut model.aliases, self.aliases.as_ref());
        set(&mut model.subagent_model, self.subagent_model.as_ref());
        set(&mut model.secret_env, self.secret_env.as_ref());
        self.prices.apply(&mut model.prices);
        for (name, value) in &self.env {
            match value.as_deref() {
                None => drop(model.env.remove(name)),
                Some(HIDDEN) if model.env.contains_key(name) => {}
                Some(HIDDEN) => {
                    let reason = format!("{name}: {HIDDEN} stands for a hidden value: give it");
                    return Err(AppError::invalid("env", reason));
                }
                Some(value) if is_sealed(value) => {
                    let reason =
                        format!("{name}: looks like a sealed value: give the value itself");
                    return Err(AppError::invalid("env", reason));
                }
                Some(value) => drop(model.env.insert(name.clone(), value.to_owned())),
            }
        }
        check(model)
    }
}

impl PricesPatch {
    fn apply(&self, prices: &mut ModelPrices) {
        set(&mut prices.input, self.input.as_ref());
        set(&mut prices.output, self.output.as_ref());
        set(&mut prices.cache_write_5m, self.cache_write_5m.as_ref());
        set(&mut prices.cache_write_1h, self.cache_write_1h.as_ref());
        set(&mut prices.cache_read, self.cache_read.as_ref());
    }
}

fn check(model: &Model) -> Result<(), AppError> {
    check_word("model_name", &model.model_name)?;
    model.region.as_deref().map_or(Ok(()), |region| check_word("region", region))?;
    model.subagent_model.as_deref().map_or(Ok(()), |name| check_word("subagent_model", name))?;
    if model.aliases.len() > MAX_ALIASES {
        return Err(AppError::invalid("aliases", "at most 20 can be given"));
    }
    let mut seen = BTreeSet::new();
    for alias in &model.aliases {
        check_word("aliases", alias)?;
        if !seen.insert(alias) {
            return Err(AppError::invalid("aliases", format!("{alias:?} is given twice")));
        }
    }
    if model.secret_env.len() > MAX_ENV {
        return Err(AppError::invalid("secret_env", "at most 50 can be given"));
    }
    model.secret_env.iter().try_for_each(|name| check_word("secret_env", name))?;
    check_env(&model.env)
}

/// Engines pass these on as arguments and variables, where a space would split them.
fn check_word(field: &'static str, text: &str) -> Result<(), AppError> {
    check_text(field, text, MAX_NAME)?;
    if text.contains(char::is_whitespace) || text.starts_with('-') {
        return Err(AppError::invalid(field, "must be one word that does not start with `-`"));
    }
    Ok(())
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), AppError> {
    if env.len() > MAX_ENV {
        return Err(AppError::invalid("env", "at most 50 can be given"));
    }
    for (name, value) in env {
        let shown: String = name.chars().take(100).collect();
        let refuse = |reason: &str| Err(AppError::invalid("env", format!("{shown:?} {reason}")));
        let mut bytes = name.bytes();
        let is_start_valid = bytes.next().is_some_and(|b| b.is_ascii_uppercase() || b == b'_');
        let is_rest_valid =
            bytes.all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        if !is_start_valid || !is_rest_valid || name.len() > 100 {
            return refuse("is no name: use A to Z, 0 to 9 and `_`, at most 100");
        }
        if OURS.contains(&name.as_str()) || OUR_PREFIXES.iter().any(|start| name.starts_with(start))
        {
            return refuse("is the server's own to set");
        }
        if value.len() > MAX_ENV_VALUE || value.chars().any(char::is_control) {
            return refuse("must have at most 8 KiB and no control character");
        }
    }
    Ok(())
}

/// The lease held while a model is written: two models must not get the same alias at once.
const LOCK: &str = "models";
/// Longer than the lease, in case its holder died.
const LOCK_WAIT: Duration = Duration::from_secs(6);

impl Tenancy {
    /// Creates a model. Without a name, it is named as its id.
    pub async fn create_model(
        &self,
        id: Option<ModelId>,
        engine: EngineKind,
        patch: ModelPatch,
    ) -> Result<StoredDocument<Model>, AppError> {
        let model_name = match (&patch.model_name, &id) {
            (Some(name), _) => name.clone(),
            (None, Some(id)) => id.to_string(),
            (None, None) => {
                let reason = "is needed, as the provider calls the model; or choose it as the id";
                return Err(AppError::invalid("model_name", reason));
            }
        };
        let id = match id {
            Some(id) => id,
            None => ModelId::mint(self.runtime.store().now().await?, entropy()?),
        };
        let mut model = Model { id, engine, model_name, ..Model::offline() };
        patch.apply(&mut model)?;
        let tenancy = self.clone();
        run_to_completion(async move {
            let guard = tenancy.lock_models().await?;
            let made = async {
                let audit = tenancy.runtime.audit(None, Some(&model))?;
                let putting = tenancy.put_model(&model, ExpectedVersion::New, &guard, audit);
                tenancy.runtime.with_renewed_lease(&guard, putting).await
            };
            let made = made.await;
            tenancy.unlock_models(&guard).await;
            let at = made?.at;
            Ok(StoredDocument {
                version: 1,
                attempts: 0,
                created_at: at,
                updated_at: at,
                value: model,
            })
        })
        .await
    }

    pub async fn model(&self, id: &ModelId) -> Result<StoredDocument<Model>, AppError> {
        let found = self.runtime.store().load::<Model>(&TenantId::system(), id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("model", id))
    }

    pub async fn update_model(
        &self,
        id: &ModelId,
        patch: ModelPatch,
    ) -> Result<StoredDocument<Model>, AppError> {
        let (tenancy, id) = (self.clone(), id.clone());
        run_to_completion(async move {
            let guard = tenancy.lock_models().await?;
            let changed = tenancy
                .runtime
                .with_renewed_lease(&guard, tenancy.change_model(&id, &patch, &guard))
                .await;
            tenancy.unlock_models(&guard).await;
            changed
        })
        .await
    }

    async fn change_model(
        &self,
        id: &ModelId,
        patch: &ModelPatch,
        guard: &LeaseGuard,
    ) -> Result<StoredDocument<Model>, AppError> {
        let mut stored = self.model(id).await?;
        let before = stored.value.clone();
        patch.apply(&mut stored.value)?;
        let expect = ExpectedVersion::Version(stored.version);
        let audit = self.runtime.audit(Some(&before), Some(&stored.value))?;
        let committed = self.put_model(&stored.value, expect, guard, audit).await?;
        stored.version += 1;
        stored.updated_at = committed.at;
        Ok(stored)
    }

    pub async fn list_models(
        &self,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<Model>>, Option<RecordPosition>), AppError> {
        self.runtime
            .list_records(RecordQuery {
                after,
                limit,
                ..RecordQuery::of::<Model>(&TenantId::system())
            })
            .await
    }

    /// The prices of all models.
    pub async fn prices(&self) -> Result<PriceList, AppError> {
        let (mut prices, mut after) = (Vec::new(), None);
        loop {
            let (models, next) = self.list_models(after, 200).await?;
            prices.extend(models.into_iter().map(|m| (m.value.model_name, m.value.prices)));
            match next {
                Some(next) => after = Some(next),
                None => return Ok(PriceList::new(prices)),
            }
        }
    }

    /// Refuses a `model_id` of another record that names no model. Models are never removed, so a
    /// checked id stays valid.
    pub async fn check_model_id(&self, id: &str) -> Result<(), AppError> {
        let found = match id.parse::<ModelId>() {
            Ok(id) => self
                .runtime
                .store()
                .load::<Model>(&TenantId::system(), id.as_str())
                .await?
                .is_some(),
            Err(_) => false,
        };
        if found {
            return Ok(());
        }
        let shown: String = id.chars().take(100).collect();
        Err(AppError::invalid("model_id", format!("there is no model {shown:?}")))
    }

    async fn put_model(
        &self,
        model: &Model,
        expect: ExpectedVersion,
        guard: &LeaseGuard,
        audit: Option<StreamAppend>,
    ) -> Result<shikiri_store::CommitReceipt, AppError> {
        self.refuse_taken_aliases(model).await?;
        let put = RecordChange::put(model, expect)?;
        let mut commit = Commit::new().guarded_by(guard.clone()).record(put);
        commit.appends.extend(audit);
        Ok(self.runtime.store().commit(commit).await?)
    }

    /// Refuses an alias of another active model of the same engine.
    async fn refuse_taken_aliases(&self, model: &Model) -> Result<(), AppError> {
        if model.status == ActiveStatus::Inactive || model.aliases.is_empty() {
            return Ok(());
        }
        let mut after = None;
        loop {
            let (page, next) = self.list_models(after, 200).await?;
            let rivals = page.iter().map(|stored| &stored.value).filter(|other| {
                other.id != model.id
                    && other.engine == model.engine
                    && other.status == ActiveStatus::Active
            });
            for rival in rivals {
                if let Some(alias) = model.aliases.iter().find(|a| rival.aliases.contains(a)) {
                    let text = format!(
                        "the alias {alias:?} is that of model {}: take it away there, or choose \
                         another",
                        rival.id
                    );
                    return Err(AppError::NotNow(text));
                }
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn lock_models(&self) -> Result<LeaseGuard, AppError> {
        match self.runtime.store().acquire(LOCK, "a change", HOLD, LOCK_WAIT).await {
            Ok(lease) => Ok(lease.guard()),
            Err(CommitError::Lease(_)) => {
                Err(AppError::Unavailable("the models are being changed: try again".to_owned()))
            }
            Err(other) => Err(other.into()),
        }
    }

    async fn unlock_models(&self, guard: &LeaseGuard) {
        // A lease that cannot be released expires.
        let _ = self.runtime.store().release(guard).await;
    }
}
