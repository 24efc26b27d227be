//! What an engine is: it takes an order, does one turn of a conversation, and tells what it does.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use shikiri_files::UntrustedDir;
use shikiri_model::confinement::Confinement;
use shikiri_model::execution::{PriceList, Usage, UsageRow};
use shikiri_model::ids::ServerId;
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::native::Limits;
use shikiri_model::server::Transport;
use shikiri_model::skill::Skill;
use shikiri_model::tenant::EgressPolicy;
use shikiri_model::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::told::Told;
use super::toolbox::ToolBox;

#[async_trait]
pub trait Engine: Send + Sync + 'static {
    fn kind(&self) -> EngineKind;

    /// Whether it can work here at all, in this environment: a program or a key that is missing is
    /// told before anything starts.
    async fn check(&self, model: &Model, env: &BTreeMap<String, String>)
    -> Result<(), EngineError>;

    /// How far what it starts is kept from this machine; None if it starts nothing.
    async fn confinement(&self) -> Option<Confinement> {
        None
    }

    /// Whether its loop is ours: it keeps the limits of an order, has the steps of a turn kept, and
    /// takes up a session or a turn from what the order remembers of it.
    fn is_native(&self) -> bool {
        false
    }

    /// Does one turn. Returns when nothing of it lives any more, with the last `Finished` told.
    ///
    /// Once `stop` is cancelled it should end in good order and soon, telling what it still can,
    /// such as the tokens it spent. Whoever drops the future ends it at once: no process may
    /// outlive it.
    async fn run(
        &self,
        order: Order,
        told: Told,
        stop: CancellationToken,
    ) -> Result<(), EngineError>;

    /// Files below `home` without which the session cannot be taken up, relative to it. They are
    /// kept in the store, so that any node can, and put back as they were before each turn. Blocks.
    fn session_files(&self, home: &UntrustedDir, session_id: &str) -> Vec<PathBuf> {
        let _ = (home, session_id);
        Vec::new()
    }

    /// A title for a conversation, by a light model. None if this engine has no such thing.
    async fn title(&self, wanted: &TitleOrder) -> Option<Result<Titled, EngineError>> {
        let _ = wanted;
        None
    }
}

/// All that an engine needs to know for one turn.
#[derive(Clone)]
pub struct Order {
    pub prompt: String,
    pub system_prompt: String,
    pub model: Model,
    /// A name that the provider knows; None lets the engine choose.
    pub subagent_model: Option<String>,
    /// What aliases stand for: `haiku` → a name that the provider knows.
    pub aliases: BTreeMap<String, String>,
    /// The engine's own session to take up.
    pub resume: Option<String>,
    pub servers: Vec<Server>,
    pub skills: Vec<Skill>,
    /// For engines that call tools themselves; others take `servers` and `skills`.
    pub tools: Arc<dyn ToolBox>,
    /// Where the engine works.
    pub folder: PathBuf,
    /// Where the engine keeps what it needs to resume. It belongs to the conversation.
    pub home: PathBuf,
    /// The whole environment of what the engine starts: nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Where what the engine starts may connect to.
    pub egress: EgressPolicy,
    /// Ports on this host's loopback that belong to the run: its tools and its MCP servers. An
    /// engine that opens more for the run adds them.
    pub loopback_ports: Vec<u16>,
    /// What must not be told, whatever else is: the tokens of the request.
    pub secrets: Vec<String>,
    /// What the turn may use up.
    pub limits: Limits,
    pub prices: PriceList,
    /// Filled for a native engine.
    pub memory: Memory,
}

/// What the store knows of a session, and of a turn that another process has begun.
#[derive(Clone, Default)]
pub struct Memory {
    /// The session's messages before this turn, as the Messages API has them.
    pub past: Vec<Value>,
    /// The turn's steps so far.
    pub steps: Vec<Step>,
    /// The main thread's text that readers have seen.
    pub text: String,
    /// What was told to be spent.
    pub spent: Vec<UsageRow>,
}

/// A step that was kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub at: Timestamp,
    pub entry: Value,
}

/// A server with its headers filled in. Those are secrets: this is not printed.
#[derive(Clone)]
pub struct Server {
    /// Of its record; None for a server that is for this turn alone.
    pub id: Option<ServerId>,
    pub name: String,
    pub transport: Transport,
    pub headers: BTreeMap<String, String>,
    pub allowed_tools: Option<Vec<String>>,
    /// Whether it may be at an address of this machine or this network.
    pub allow_private: bool,
    /// This program's own door, opened with the token of an agent's session: the turn is that
    /// agent's work in a team.
    pub is_own: bool,
}

/// Why an engine gave up. The text reaches the caller: it must hold no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(pub String);

impl EngineError {
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// What a title is made from. Its environment may hold secrets: this is not printed.
#[derive(Clone)]
pub struct TitleOrder {
    /// The model of the execution.
    pub model: Model,
    /// The light model's name.
    pub light_model: String,
    pub input: String,
    pub answer: String,
    /// As the engine's.
    pub env: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct Titled {
    /// Empty if the model said nothing, which has its price too.
    pub text: String,
    /// As the model calls itself.
    pub model: String,
    pub usage: Usage,
}

/// The engines that this process has.
#[derive(Clone, Default)]
pub struct Engines(BTreeMap<EngineKind, Arc<dyn Engine>>);

impl Engines {
    pub fn new(engines: Vec<Arc<dyn Engine>>) -> Self {
        Self(engines.into_iter().map(|engine| (engine.kind(), engine)).collect())
    }

    /// The level of what programs engines start here; None if none of them starts any.
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
