//! A plan as it is written.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::check::PlanError;
use super::reference::{named_in, named_in_text};

/// Bytes of a plan's text: larger ones are no plan.
pub const MAX_PLAN: usize = 1024 * 1024;
/// For a task that does not say how long it may take.
const DEFAULT_TIMEOUT_SECONDS: u64 = 300;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What it is for, in a person's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    #[serde(default, rename = "task")]
    pub tasks: Vec<PlanTask>,
    #[serde(default)]
    pub synthesis: Synthesis,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanTask {
    pub id: String,
    pub tool: String,
    /// Who may be called, in this order; anybody who offers the tool, if none is named.
    #[serde(default, rename = "server", skip_serializing_if = "Servers::is_empty")]
    pub servers: Servers,
    /// Its strings may hold `${task.path}`.
    #[serde(default)]
    pub args: Map<String, Value>,
    /// What must be done first, besides the tasks that `args` refer to.
    #[serde(default)]
    pub after: Vec<String>,
    /// How often it is tried again when it fails or has no answer in time.
    #[serde(default)]
    pub retries: u32,
    /// For each try.
    #[serde(default = "default_timeout")]
    pub timeout_seconds: u64,
    /// It must not happen twice: what may have reached a server is not sent again, to nobody.
    #[serde(default)]
    pub once: bool,
}

fn default_timeout() -> u64 {
    DEFAULT_TIMEOUT_SECONDS
}

/// One name or several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Servers(pub Vec<String>);

impl Servers {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Servers {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "`server` is a name or a list of names")]
        enum Either {
            One(String),
            Several(Vec<String>),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::One(name) => Self(vec![name]),
            Either::Several(names) => Self(names),
        })
    }
}

/// How the results become one text; by listing them, if nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Synthesis {
    /// A text with `${task}` and `${task.path}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// A model writes it.
    #[serde(default)]
    pub engine: bool,
    /// What the model is to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

impl Plan {
    /// The plan, if it can be carried out.
    pub fn checked(self) -> Result<Self, PlanError> {
        super::check::check(&self)?;
        Ok(self)
    }

    /// The same for the same plan, however its file is laid out.
    pub fn digest(&self) -> Result<String, serde_json::Error> {
        let bytes = serde_json::to_vec(self)?;
        Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub fn task(&self, id: &str) -> Option<&PlanTask> {
        self.tasks.iter().find(|task| task.id == id)
    }
}

impl PlanTask {
    /// What it waits for: what it says, and what its arguments refer to.
    pub fn needs(&self) -> BTreeSet<&str> {
        let mut needs: BTreeSet<&str> = self.after.iter().map(String::as_str).collect();
        needs.extend(self.args.values().flat_map(named_in));
        needs
    }

    pub fn time_limit(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}

impl Synthesis {
    /// The tasks that it refers to.
    pub fn names(&self) -> Vec<&str> {
        let texts = [&self.template, &self.prompt];
        texts.into_iter().flatten().flat_map(|text| named_in_text(text)).collect()
    }
}
