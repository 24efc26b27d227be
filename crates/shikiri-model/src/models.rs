//! Models: which engine runs which AI model, and what it costs. They belong to the server, not to
//! a tenant.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::execution::Prices;
use crate::ids::{ModelId, TenantId};
use crate::record::{Columns, Document};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    pub id: ModelId,
    pub engine: EngineKind,
    /// As the provider calls it.
    pub model_name: String,
    #[serde(default)]
    pub region: Option<String>,
    pub status: Status,
    /// Short names that stand for this model, such as `haiku`.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// What subagents use that ask for nothing: an alias or a model's name.
    #[serde(default)]
    pub subagent_model: Option<String>,
    /// Added to the engine's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names in `env` that no run sees, besides those that `is_credential_name` tells.
    #[serde(default)]
    pub secret_env: Vec<String>,
    #[serde(default)]
    pub prices: Prices,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    ClaudeCode,
    Anthropic,
    Bedrock,
    Offline,
}

/// Of models, servers and skills: what is inactive is kept and not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    #[default]
    Active,
    Inactive,
}

/// How the names of variables end that hold credentials.
const CREDENTIAL_ENDS: [&str; 8] =
    ["KEY", "KEY_ID", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS"];

/// Whether a variable holds a credential, by its name. `MAX_OUTPUT_TOKENS` does not.
pub fn is_credential_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    CREDENTIAL_ENDS.iter().any(|end| name.ends_with(end))
}

impl EngineKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Anthropic => "anthropic",
            Self::Bedrock => "bedrock",
            Self::Offline => "offline",
        }
    }
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Inactive => "inactive",
        }
    }
}

impl Model {
    /// The model that a fresh store has, so that everything can be tried at once.
    pub fn offline() -> Self {
        Self {
            id: ModelId::offline(),
            engine: EngineKind::Offline,
            model_name: "offline".to_owned(),
            region: None,
            status: Status::Active,
            aliases: Vec::new(),
            subagent_model: None,
            env: BTreeMap::new(),
            secret_env: Vec::new(),
            prices: Prices::default(),
        }
    }
}

impl Document for Model {
    const KIND: &'static str = "model";

    fn tenant(&self) -> TenantId {
        TenantId::system()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        Columns { state: self.status.as_str().to_owned(), ..Columns::default() }
    }
}
