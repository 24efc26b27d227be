//! Claude Code as an engine: the CLI, driven as the Agent SDK drives it.
//!
//! Messages go both ways as lines of JSON over stdin and stdout, among them control requests: the
//! first one carries the system prompt, others ask for permissions or interrupt. `translate` turns
//! what comes into the model's vocabulary, `ledger` and `transcripts` count what was spent,
//! `supervisor` is the process that ends whatever a run leaves behind and keeps it within its
//! `confines`, `drive` puts it together.
//!
//! A run is over when the CLI has given a result, says that it is idle, and no subagent lives that
//! it would take up again: with subagents in the background one prompt has several results.

mod agents;
mod command;
mod confines;
mod control;
mod drive;
mod endings;
mod files;
mod ledger;
mod lines;
mod process;
mod supervisor;
mod transcripts;
mod translate;
mod version;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Once;

use async_trait::async_trait;
use shikiri_app::execution::{Engine, EngineError, Order, TitleOrder, Titled, Told};
use shikiri_model::models::{EngineKind, Model};
use tokio_util::sync::CancellationToken;

pub use confines::is_confined;
pub use supervisor::supervise_if_asked;

use confines::Confines;
use drive::Means;
use version::Cli;

/// The model of messages that the CLI writes itself.
const SYNTHETIC: &str = "<synthetic>";
/// This program, even if its file was replaced since it started.
const THIS_PROGRAM: &str = "/proc/self/exe";

#[derive(Debug)]
pub struct ClaudeCode {
    cli: Cli,
    supervisor: PathBuf,
    readable: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
}

impl ClaudeCode {
    /// With the CLI at `bin`, or the `claude` that is on the PATH. The program that makes this must
    /// call `supervise_if_asked` before anything else: it is started again to supervise.
    pub fn new(bin: Option<PathBuf>) -> Self {
        let here = PathBuf::from(THIS_PROGRAM);
        let supervisor = if here.exists() { here } else { std::env::current_exe().unwrap_or(here) };
        Self { cli: Cli::new(bin), supervisor, readable: Vec::new(), hidden: Vec::new() }
    }

    /// The program that it drives, if there is one that will do.
    pub async fn program(&self) -> Result<PathBuf, EngineError> {
        self.cli.find().await
    }

    /// With another program that calls `supervise_if_asked`.
    #[must_use]
    pub fn supervised_by(self, supervisor: PathBuf) -> Self {
        Self { supervisor, ..self }
    }

    /// Runs may read and execute these, too: programs that are installed in an odd place.
    #[must_use]
    pub fn with_readable(self, readable: Vec<PathBuf>) -> Self {
        Self { readable, ..self }
    }

    /// Runs may read none of these, even if they lie where programs are installed.
    #[must_use]
    pub fn with_hidden(self, hidden: Vec<PathBuf>) -> Self {
        Self { hidden, ..self }
    }
}

#[async_trait]
impl Engine for ClaudeCode {
    fn kind(&self) -> EngineKind {
        EngineKind::ClaudeCode
    }

    async fn check(
        &self,
        _model: &Model,
        _env: &BTreeMap<String, String>,
    ) -> Result<(), EngineError> {
        self.program().await.map(drop)
    }

    async fn run(
        &self,
        order: Order,
        told: Told,
        stop: CancellationToken,
    ) -> Result<(), EngineError> {
        let cli = self.cli.find().await?;
        warn_if_free();
        let mut confines = Confines::of(&order, &cli);
        confines.read.extend(self.readable.iter().cloned());
        confines.hidden.clone_from(&self.hidden);
        let means = Means { supervisor: self.supervisor.clone(), cli, confines };
        drive::run(means, order, told, stop).await
    }

    /// The transcript of the main thread; the CLI resumes from nothing else.
    fn session_files(&self, home: &Path, session_id: &str) -> Vec<PathBuf> {
        transcripts::session_files(home, session_id)
    }

    async fn title(&self, wanted: &TitleOrder) -> Option<Result<Titled, EngineError>> {
        Some(crate::messages::title(wanted).await)
    }
}

/// Says once that runs reach whatever the server's user does.
fn warn_if_free() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        if !is_confined() {
            tracing::warn!(
                "this system has no Landlock: Claude Code and its commands can read whatever the \
                 server's user can"
            );
        }
    });
}
