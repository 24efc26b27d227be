//! The `Engine` trait: an engine takes a request, does one turn of a conversation, and reports
//! what it does.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use shikiri_files::UntrustedDir;
use shikiri_model::confinement::Confinement;
use shikiri_model::execution::{PriceList, TokenUsage, UsageRow};
use shikiri_model::ids::ServerId;
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::native::ExecutionLimits;
use shikiri_model::server::McpServerTransport;
use shikiri_model::skill::Skill;
use shikiri_model::tenant::EgressPolicy;
use shikiri_model::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::engine_channel::EngineSender;
use super::toolbox::ToolBox;

#[async_trait]
pub trait Engine: Send + Sync + 'static {
    fn kind(&self) -> EngineKind;

    /// Checks that the engine can work here with this environment. Reports a missing program or key
    /// before anything starts.
    async fn check(&self, model: &Model, env: &BTreeMap<String, String>)
    -> Result<(), EngineError>;

    /// How the programs that it starts are confined; None if it starts none.
    async fn confinement(&self) -> Option<Confinement> {
        None
    }

    /// Whether the agent loop runs in this process. A native engine enforces the limits of a
    /// request, journals the steps of a turn, and resumes a session or a turn from the request's
    /// `ResumeState`.
    fn is_native(&self) -> bool {
        false
    }

    /// Does one turn. Returns after the last `Finished` was sent and all its processes have ended.
    ///
    /// Once `stop` is cancelled, the engine should end soon and in good order, and report what it
    /// still can, such as the tokens it spent. Dropping the future ends the turn at once: no
    /// process may outlive it.
    async fn run(
        &self,
        request: TurnRequest,
        sender: EngineSender,
        stop: CancellationToken,
    ) -> Result<(), EngineError>;

    /// The files that resuming the session needs, as paths relative to `home`. They are kept in the
    /// store, so that any node can resume the session, and restored before each turn. Blocks.
    fn session_files(&self, home: &UntrustedDir, session_id: &str) -> Vec<PathBuf> {
        let _ = (home, session_id);
        Vec::new()
    }

    /// Generates a title for a conversation with a light model. None if the engine cannot.
    async fn generate_title(
        &self,
        request: &TitleRequest,
    ) -> Option<Result<GeneratedTitle, EngineError>> {
        let _ = request;
        None
    }
}

/// Everything that an engine needs for one turn.
#[derive(Clone)]
pub struct TurnRequest {
    pub prompt: String,
    pub system_prompt: String,
    pub model: Model,
    /// A name that the provider knows; None lets the engine choose.
    pub subagent_model: Option<String>,
    /// Model aliases: `haiku` → a name that the provider knows.
    pub aliases: BTreeMap<String, String>,
    /// The engine's own session to resume.
    pub resume: Option<String>,
    pub servers: Vec<ResolvedServer>,
    pub skills: Vec<Skill>,
    /// For engines that call tools themselves; others take `servers` and `skills`.
    pub tools: Arc<dyn ToolBox>,
    /// The working folder of the engine.
    pub folder: PathBuf,
    /// The folder for what the engine needs to resume. It belongs to the conversation.
    pub home: PathBuf,
    /// The whole environment of the programs that the engine starts: they inherit nothing.
    pub env: BTreeMap<String, String>,
    /// The network addresses that the engine's programs may connect to.
    pub egress: EgressPolicy,
    /// Ports on this host's loopback that belong to the run: its tools and its MCP servers. An
    /// engine that opens more for the run adds them.
    pub loopback_ports: Vec<u16>,
    /// Values that must never be output: the tokens of the request.
    pub secrets: Vec<String>,
    /// The limits of the turn.
    pub limits: ExecutionLimits,
    pub prices: PriceList,
    /// Only filled for a native engine.
    pub memory: ResumeState,
}

/// The stored state of a session, and of a turn that another process began.
#[derive(Clone, Default)]
pub struct ResumeState {
    /// The session's messages before this turn, as the Messages API has them.
    pub past: Vec<Value>,
    /// The turn's steps so far.
    pub steps: Vec<JournalStep>,
    /// The main thread's text that was already published.
    pub text: String,
    /// The usage reported so far.
    pub spent: Vec<UsageRow>,
}

/// A step in the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalStep {
    pub at: Timestamp,
    pub entry: Value,
}

/// A server with its headers filled in. They are secrets, so the type has no `Debug`.
#[derive(Clone)]
pub struct ResolvedServer {
    /// The id of its record; None for a server that exists for this turn only.
    pub id: Option<ServerId>,
    pub name: String,
    pub transport: McpServerTransport,
    pub headers: BTreeMap<String, String>,
    pub allowed_tools: Option<Vec<String>>,
    /// Whether its address may be private: on this machine or this network.
    pub allow_private: bool,
    /// Whether this is our own MCP endpoint, called with the token of an agent session: the turn is
    /// that agent's work in a team.
    pub is_own: bool,
}

/// Headers without credentials.
const PLAIN_HEADERS: [&str; 3] = ["accept", "content-type", "user-agent"];

impl ResolvedServer {
    /// The values of its headers that must not be output.
    pub fn secret_values(&self) -> impl Iterator<Item = String> {
        let is_secret = |(name, _): &(&String, &String)| {
            !PLAIN_HEADERS.contains(&name.to_ascii_lowercase().as_str())
        };
        self.headers.iter().filter(is_secret).flat_map(|(_, value)| with_bare_secret(value))
    }
}

/// A secret value, and the part after a scheme such as `Bearer`, which is a secret too.
pub fn with_bare_secret(value: &str) -> impl Iterator<Item = String> {
    let bare = value.split_once(' ').map(|(_, bare)| bare.to_owned());
    std::iter::once(value.to_owned()).chain(bare)
}

/// Why an engine failed. The text reaches the caller, so it must hold no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(pub String);

impl EngineError {
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// The input for a title. The environment may hold secrets, so the type has no `Debug`.
#[derive(Clone)]
pub struct TitleRequest {
    /// The model of the execution.
    pub model: Model,
    /// The light model's name.
    pub light_model: String,
    pub input: String,
    pub answer: String,
    /// The engine's environment.
    pub env: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct GeneratedTitle {
    /// Empty if the model gave no text; its usage is billed all the same.
    pub text: String,
    /// The model's name for itself.
    pub model: String,
    pub usage: TokenUsage,
}

/// The engines of this process.
#[derive(Clone, Default)]
pub struct EngineRegistry(BTreeMap<EngineKind, Arc<dyn Engine>>);

impl EngineRegistry {
    pub fn new(engines: Vec<Arc<dyn Engine>>) -> Self {
        Self(engines.into_iter().map(|engine| (engine.kind(), engine)).collect())
    }

    /// The confinement of programs that engines start here; None if no engine starts any.
    pub async fn confinement(&self) -> Option<Confinement> {
        for engine in self.0.values() {
            if let Some(confinement) = engine.confinement().await {
                return Some(confinement);
            }
        }
        None
    }

    pub fn get(&self, kind: EngineKind) -> Option<&Arc<dyn Engine>> {
        self.0.get(&kind)
    }
}
