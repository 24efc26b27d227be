//! The file format of a plan.

use std::collections::BTreeSet;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::plan_check::PlanError;
use super::result_reference::{named_in, named_in_text};

/// The most bytes of a plan's text.
pub const MAX_PLAN: usize = 1024 * 1024;
/// The timeout of a task that sets none.
const DEFAULT_TIMEOUT_SECONDS: u64 = 300;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// The goal of the plan, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    #[serde(default, rename = "task")]
    pub tasks: Vec<PlanTask>,
    #[serde(default)]
    pub synthesis: PlanSynthesis,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanTask {
    pub id: String,
    pub tool: String,
    /// Servers for this task, in order of preference. None: any server that offers the tool.
    #[serde(default, rename = "server", skip_serializing_if = "ServerNames::is_empty")]
    #[schemars(with = "OneOrManyNames")]
    pub servers: ServerNames,
    /// Its strings may hold `${task.path}`.
    #[serde(default)]
    pub args: Map<String, Value>,
    /// Tasks that must be done first, besides those that `args` refer to.
    #[serde(default)]
    pub after: Vec<String>,
    /// Retries after a failure or a timeout.
    #[serde(default)]
    pub retries: u32,
    /// The timeout of each attempt.
    #[serde(default = "default_timeout")]
    pub timeout_seconds: u64,
    /// The tool must not run twice: a request that may have reached a server is not sent again, to
    /// any server.
    #[serde(default)]
    pub once: bool,
}

fn default_timeout() -> u64 {
    DEFAULT_TIMEOUT_SECONDS
}

/// One name or several names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ServerNames(pub Vec<String>);

impl ServerNames {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`server` is a name or a list of names")]
enum OneOrManyNames {
    One(String),
    Several(Vec<String>),
}

impl<'de> Deserialize<'de> for ServerNames {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match OneOrManyNames::deserialize(deserializer)? {
            OneOrManyNames::One(name) => Self(vec![name]),
            OneOrManyNames::Several(names) => Self(names),
        })
    }
}

/// How the results become one text. By default they are listed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanSynthesis {
    /// A text with `${task}` and `${task.path}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether a model writes the text.
    #[serde(default)]
    pub engine: bool,
    /// The instructions for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

impl HostPlan {
    /// The plan, if it is valid.
    pub fn validate(self) -> Result<Self, PlanError> {
        super::plan_check::check(&self)?;
        Ok(self)
    }

    /// A digest that does not depend on the layout of the file.
    pub fn digest(&self) -> Result<String, serde_json::Error> {
        let bytes = serde_json::to_vec(self)?;
        Ok(hex::encode(Sha256::digest(bytes)))
    }

    pub fn task(&self, id: &str) -> Option<&PlanTask> {
        self.tasks.iter().find(|task| task.id == id)
    }
}

impl PlanTask {
    /// The tasks that it waits for: those that it names, and those that its arguments refer to.
    pub fn needs(&self) -> BTreeSet<&str> {
        let mut needs: BTreeSet<&str> = self.after.iter().map(String::as_str).collect();
        needs.extend(self.args.values().flat_map(named_in));
        needs
    }

    pub fn time_limit(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}

impl PlanSynthesis {
    /// The tasks that it refers to.
    pub fn names(&self) -> Vec<&str> {
        let texts = [&self.template, &self.prompt];
        texts.into_iter().flatten().flat_map(|text| named_in_text(text)).collect()
    }
}
