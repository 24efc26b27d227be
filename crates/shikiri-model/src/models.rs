//! Models: the engine, the provider's name and the prices of an AI model. They belong to the
//! server, not to a tenant.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::execution::ModelPrices;
use crate::ids::ModelId;
use crate::macros::{document, text_enum};
use crate::record::RecordColumns;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    pub id: ModelId,
    pub engine: EngineKind,
    /// The provider's name for the model.
    pub model_name: String,
    #[serde(default)]
    pub region: Option<String>,
    pub status: ActiveStatus,
    /// Short names for this model, such as `haiku`.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The model of subagents that request none: an alias or a model's name.
    #[serde(default)]
    pub subagent_model: Option<String>,
    /// Variables for the engine's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names in `env` that runs do not see, besides those that [`is_credential_name`] matches.
    #[serde(default)]
    pub secret_env: Vec<String>,
    #[serde(default)]
    pub prices: ModelPrices,
}

text_enum! {
    #[derive(Hash, PartialOrd, Ord)]
    pub enum EngineKind {
        ClaudeCode = "claude-code",
        Anthropic = "anthropic",
        Bedrock = "bedrock",
        Offline = "offline",
    }
}

text_enum! {
    /// The status of models, servers and skills. Inactive ones are stored and not used.
    #[derive(Default)]
    pub enum ActiveStatus {
        #[default]
        Active = "active",
        Inactive = "inactive",
    }
}

/// Endings of variable names that hold credentials.
const CREDENTIAL_ENDS: [&str; 8] =
    ["KEY", "KEY_ID", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS"];

/// Whether a variable's name says that it holds a credential. `MAX_OUTPUT_TOKENS` does not.
pub fn is_credential_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    CREDENTIAL_ENDS.iter().any(|end| name.ends_with(end))
}

impl Model {
    /// The model of a new store, so that everything can be tried at once.
    pub fn offline() -> Self {
        Self {
            id: ModelId::offline(),
            engine: EngineKind::Offline,
            model_name: "offline".to_owned(),
            region: None,
            status: ActiveStatus::Active,
            aliases: Vec::new(),
            subagent_model: None,
            env: BTreeMap::new(),
            secret_env: Vec::new(),
            prices: ModelPrices::default(),
        }
    }
}

document!(Model, "model", system, id, |model| RecordColumns::in_state(model.status.as_str()));
