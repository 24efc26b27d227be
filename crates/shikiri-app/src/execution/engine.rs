//! What an engine is: it takes an order, does one turn of a conversation, and tells what it does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use shikiri_model::execution::{EngineMessage, Usage};
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::server::Transport;
use shikiri_model::skill::Skill;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

#[async_trait]
pub trait Engine: Send + Sync + 'static {
    fn kind(&self) -> EngineKind;

    /// Whether it can work here at all: a program that is missing is told before anything starts.
    async fn check(&self, model: &Model) -> Result<(), EngineError>;

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
    /// kept in the store, so that any node can, and put back as they were before each turn.
    fn session_files(&self, home: &Path, session_id: &str) -> Vec<PathBuf> {
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
    /// Where the engine works.
    pub folder: PathBuf,
    /// Where the engine keeps what it needs to resume. It belongs to the conversation.
    pub home: PathBuf,
    /// The whole environment of what the engine starts: nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// What must not be told, whatever else is: the tokens of the request.
    pub secrets: Vec<String>,
}

/// An MCP server with its headers filled in. Those are secrets: this is not printed.
#[derive(Clone)]
pub struct Server {
    pub name: String,
    pub transport: Transport,
    pub headers: BTreeMap<String, String>,
    pub allowed_tools: Option<Vec<String>>,
    /// This program's own door, opened with the token of an agent's session: the turn is that
    /// agent's work in a team.
    pub is_own: bool,
}

/// Where an engine tells. Waits while nobody takes what it told: a flood stops at its source.
#[derive(Clone)]
pub struct Told(mpsc::Sender<EngineMessage>);

/// Messages that may wait to be taken.
const WAITING: usize = 256;

impl Told {
    pub fn channel() -> (Self, mpsc::Receiver<EngineMessage>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// If nobody listens any more the engine is about to be dropped: it may go on till then.
    pub async fn tell(&self, message: EngineMessage) {
        let _ = self.0.send(message).await;
    }
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

    pub fn get(&self, kind: EngineKind) -> Option<&Arc<dyn Engine>> {
        self.0.get(&kind)
    }
}
