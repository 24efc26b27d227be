use std::collections::BTreeMap;

use serde::Serialize;
use shikiri_model::execution::ModelPrices;
use shikiri_model::ids::ModelId;
use shikiri_model::models::{ActiveStatus, EngineKind, Model};
use shikiri_model::record::StoredDocument;
use shikiri_model::time::Timestamp;
use shikiri_tenancy::models::HIDDEN;
use utoipa::ToSchema;

use super::schemas::PricesSchema;
use super::words::{ActiveStatusSchema, EngineSchema};

/// An AI model with its engine and prices. It belongs to the server.
#[derive(Serialize, ToSchema)]
#[schema(as = Model)]
pub struct ModelJson {
    #[schema(value_type = String)]
    pub(crate) id: ModelId,
    #[schema(value_type = EngineSchema)]
    engine: EngineKind,
    /// As the provider calls it.
    model_name: String,
    region: Option<String>,
    #[schema(value_type = ActiveStatusSchema)]
    status: ActiveStatus,
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
    #[schema(value_type = PricesSchema)]
    prices: ModelPrices,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

impl ModelJson {
    /// The parts that a tenant may see.
    pub(crate) fn for_tenant(stored: StoredDocument<Model>) -> Self {
        Self { env: None, secret_env: None, ..stored.into() }
    }
}

impl From<StoredDocument<Model>> for ModelJson {
    fn from(stored: StoredDocument<Model>) -> Self {
        let model = stored.value;
        Self {
            id: model.id,
            engine: model.engine,
            model_name: model.model_name,
            region: model.region,
            status: model.status,
            aliases: model.aliases,
            subagent_model: model.subagent_model,
            env: Some(model.env.into_keys().map(|name| (name, HIDDEN.to_owned())).collect()),
            secret_env: Some(model.secret_env),
            prices: model.prices,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}
