use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shikiri_app::models::HIDDEN;
use shikiri_model::execution::{Price, Prices};
use shikiri_model::ids::ModelId;
use shikiri_model::models::{EngineKind, Model, Status};
use shikiri_model::record::Stored;
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

/// An AI model with its engine and prices. It belongs to the server.
#[derive(Serialize, ToSchema)]
#[schema(as = Model)]
pub struct ModelJson {
    #[schema(value_type = String)]
    pub(crate) id: ModelId,
    engine: EngineJson,
    /// As the provider calls it.
    model_name: String,
    region: Option<String>,
    status: StatusJson,
    /// Short names that stand for this model, such as `haiku`.
    aliases: Vec<String>,
    /// What subagents use that ask for nothing.
    subagent_model: Option<String>,
    /// Added to the engine's environment. For the admin only, and names only: each value is `***`.
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<BTreeMap<String, String>>,
    /// Names in `env` that stay out of runs, besides those that look like credentials. For the
    /// admin only.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_env: Option<Vec<String>>,
    prices: PricesJson,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = Engine)]
pub enum EngineJson {
    ClaudeCode,
    Anthropic,
    Bedrock,
    Offline,
}

/// What is inactive is kept and not used.
#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Status)]
pub enum StatusJson {
    Active,
    Inactive,
}

/// Dollars per million tokens.
#[derive(Serialize, ToSchema)]
#[schema(as = Prices)]
struct PricesJson {
    #[schema(value_type = f64)]
    input: Price,
    #[schema(value_type = f64)]
    output: Price,
    #[schema(value_type = f64)]
    cache_write_5m: Price,
    #[schema(value_type = f64)]
    cache_write_1h: Price,
    #[schema(value_type = f64)]
    cache_read: Price,
}

impl ModelJson {
    /// What a tenant sees of it.
    pub(crate) fn for_tenant(stored: Stored<Model>) -> Self {
        Self { env: None, secret_env: None, ..stored.into() }
    }
}

impl From<Stored<Model>> for ModelJson {
    fn from(stored: Stored<Model>) -> Self {
        let model = stored.value;
        Self {
            id: model.id,
            engine: model.engine.into(),
            model_name: model.model_name,
            region: model.region,
            status: model.status.into(),
            aliases: model.aliases,
            subagent_model: model.subagent_model,
            env: Some(model.env.into_keys().map(|name| (name, HIDDEN.to_owned())).collect()),
            secret_env: Some(model.secret_env),
            prices: model.prices.into(),
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}

impl From<Prices> for PricesJson {
    fn from(prices: Prices) -> Self {
        let Prices { input, output, cache_write_5m, cache_write_1h, cache_read } = prices;
        Self { input, output, cache_write_5m, cache_write_1h, cache_read }
    }
}

impl From<EngineKind> for EngineJson {
    fn from(kind: EngineKind) -> Self {
        match kind {
            EngineKind::ClaudeCode => Self::ClaudeCode,
            EngineKind::Anthropic => Self::Anthropic,
            EngineKind::Bedrock => Self::Bedrock,
            EngineKind::Offline => Self::Offline,
        }
    }
}

impl From<EngineJson> for EngineKind {
    fn from(engine: EngineJson) -> Self {
        match engine {
            EngineJson::ClaudeCode => Self::ClaudeCode,
            EngineJson::Anthropic => Self::Anthropic,
            EngineJson::Bedrock => Self::Bedrock,
            EngineJson::Offline => Self::Offline,
        }
    }
}

impl From<Status> for StatusJson {
    fn from(status: Status) -> Self {
        match status {
            Status::Active => Self::Active,
            Status::Inactive => Self::Inactive,
        }
    }
}

impl From<StatusJson> for Status {
    fn from(status: StatusJson) -> Self {
        match status {
            StatusJson::Active => Self::Active,
            StatusJson::Inactive => Self::Inactive,
        }
    }
}
