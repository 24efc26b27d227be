//! Claude Code as an engine: the CLI, driven as the Agent SDK drives it.
//!
//! Both sides exchange JSON lines over stdin and stdout, among them control requests; `README.md` in
//! this folder lists them. `run_driver` runs one turn. `cli_translator` turns the CLI's lines into
//! engine messages, `usage_ledger` and `subagent_transcripts` count tokens. `supervisor` is the process
//! that starts the CLI in its sandbox and ends all its processes; `run_plan` says what a run may reach.
//!
//! A run is over when the CLI has sent a result, is idle, and has no subagent left: with subagents in
//! the background, one prompt has several results.

mod cli_command;
mod cli_process;
mod cli_translator;
mod cli_version;
mod control_protocol;
mod line_reader;
mod loopback_forwarder;
mod run_driver;
mod run_files;
mod run_plan;
mod subagent_endings;
mod subagent_tracker;
mod subagent_transcripts;
mod supervisor;
mod usage_ledger;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use shikiri_executions::execution::{
    Engine, EngineError, EngineSender, GeneratedTitle, TitleRequest, TurnRequest,
};
use shikiri_files::UntrustedDir;
use shikiri_model::confinement::{Confinement, ConfinementLevel};
use shikiri_model::models::{EngineKind, Model};
use shikiri_sandbox::{RUN_CGROUP, SandboxLimits};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

pub use supervisor::run_supervisor_if_requested;

use crate::claude_login::ClaudeLogin;
use crate::gateway::{ModelApiObserver, NoObserver, RunGateway};
use crate::messages::AwsCredentialSources;
use crate::messages::http_clients::HttpClients;
use cli_version::CliLocator;
use run_driver::CliRunSetup;
use run_plan::{MachinePaths, plan_run};

/// The model name in messages that the CLI itself writes.
const SYNTHETIC: &str = "<synthetic>";
/// This program, even if its file was replaced since it started.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// What enforces the memory limit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The kernel, with a cgroup for each run.
    Cgroup,
    /// The supervisor, which measures its processes periodically.
    Watched,
}

impl MemoryLimit {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Watched => "watched",
        }
    }
}

pub struct ClaudeCodeEngine {
    cli: CliLocator,
    supervisor: PathBuf,
    places: MachinePaths,
    limits: SandboxLimits,
    /// The server's data folder, which holds the folders of runs.
    data: Option<PathBuf>,
    /// What this machine allows, detected at the first use.
    confinement: OnceCell<Confinement>,
    /// The parent of the runs' cgroups; `None` if this process cannot make any.
    cgroup_place: OnceCell<Option<PathBuf>>,
    /// The number of the next cgroup's name.
    cgroups: AtomicU64,
    clients: HttpClients,
    aws: AwsCredentialSources,
    /// A person's own login, which replaces the operator's credential.
    login: Option<ClaudeLogin>,
    /// Observes the traffic between runs and the model API.
    observer: Arc<dyn ModelApiObserver>,
}

impl ClaudeCodeEngine {
    /// With the CLI at `bin`, or the `claude` on the PATH. The program must call
    /// [`run_supervisor_if_requested`] before anything else, because it is started again as supervisor.
    pub fn new(bin: Option<PathBuf>) -> Self {
        let here = PathBuf::from(THIS_PROGRAM);
        let supervisor = if here.exists() { here } else { std::env::current_exe().unwrap_or(here) };
        Self {
            cli: CliLocator::new(bin),
            supervisor,
            places: MachinePaths::default(),
            limits: SandboxLimits::default(),
            data: None,
            confinement: OnceCell::new(),
            cgroup_place: OnceCell::new(),
            cgroups: AtomicU64::new(0),
            clients: HttpClients::default(),
            aws: AwsCredentialSources::default(),
            login: None,
            observer: Arc::new(NoObserver),
        }
    }

    /// The path of the CLI, if a supported one is installed.
    pub async fn program(&self) -> Result<PathBuf, EngineError> {
        Ok(self.cli.find().await?.program)
    }

    /// With another program that calls [`run_supervisor_if_requested`].
    #[must_use]
    pub fn with_supervisor(self, supervisor: PathBuf) -> Self {
        Self { supervisor, ..self }
    }

    /// Lets runs also read and execute these: programs in unusual places.
    #[must_use]
    pub fn with_readable(mut self, readable: Vec<PathBuf>) -> Self {
        self.places.readable = readable;
        self
    }

    /// Hides these from runs, even below folders of programs.
    #[must_use]
    pub fn with_hidden(mut self, hidden: Vec<PathBuf>) -> Self {
        self.places.hidden = hidden;
        self
    }

    /// With these limits for each run.
    #[must_use]
    pub fn with_limits(self, limits: SandboxLimits) -> Self {
        Self { limits, ..self }
    }

    /// With the data folder, which holds the folders of runs.
    #[must_use]
    pub fn with_data(self, data: PathBuf) -> Self {
        Self { data: Some(data), ..self }
    }

    /// With the AWS profiles in this home, which the gateway uses and runs do not see.
    #[must_use]
    pub fn at_home(self, home: Option<PathBuf>) -> Self {
        Self { aws: AwsCredentialSources::at_home(home), ..self }
    }

    /// Without confinement, to measure its cost. No setting of the program uses this.
    #[must_use]
    pub fn unconfined(self) -> Self {
        let none = Confinement { level: ConfinementLevel::None, engine_user: None };
        let (confinement, cgroup_place) = (OnceCell::from(none), OnceCell::from(None));
        Self { confinement, cgroup_place, ..self }
    }

    /// With a person's own login in place of the operator's credential.
    #[must_use]
    pub fn with_login(self, login: ClaudeLogin) -> Self {
        Self { login: Some(login), ..self }
    }

    /// The strongest confinement that this machine allows.
    pub async fn reached_confinement(&self) -> Confinement {
        *self.confinement.get_or_init(|| self.detect_confinement()).await
    }

    /// What enforces the memory limit of a run.
    pub async fn memory_limit(&self) -> MemoryLimit {
        match self.cgroup_place().await {
            Some(_) => MemoryLimit::Cgroup,
            None => MemoryLimit::Watched,
        }
    }

    async fn cgroup_place(&self) -> Option<&Path> {
        let find = async || {
            let program = self.supervisor.clone();
            let finding =
                tokio::task::spawn_blocking(move || shikiri_sandbox::find_cgroup_place(&program));
            finding.await.unwrap_or_default()
        };
        self.cgroup_place.get_or_init(find).await.as_deref()
    }

    /// The path of the next run's cgroup, which its supervisor creates.
    async fn next_cgroup(&self) -> Option<PathBuf> {
        let place = self.cgroup_place().await?;
        let number = self.cgroups.fetch_add(1, Ordering::Relaxed);
        let name = format!("{RUN_CGROUP}{}-{number}", std::process::id());
        Some(place.join(name))
    }

    async fn detect_confinement(&self) -> Confinement {
        let (program, data) = (self.supervisor.clone(), self.data.clone());
        let detecting =
            tokio::task::spawn_blocking(move || shikiri_sandbox::detect(&program, data.as_deref()));
        let unknown = Confinement { level: ConfinementLevel::None, engine_user: None };
        let reached = detecting.await.unwrap_or(unknown);
        if reached.level != ConfinementLevel::Namespaces {
            tracing::warn!(
                level = reached.level.as_str(),
                "this machine does not allow new namespaces: Claude Code and its commands are \
                 confined less than they could be; `shikiri doctor` tells more"
            );
        }
        reached
    }
}

#[async_trait]
impl Engine for ClaudeCodeEngine {
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
        request: TurnRequest,
        sender: EngineSender,
        stop: CancellationToken,
    ) -> Result<(), EngineError> {
        let cli = self.cli.find().await?;
        // The gateway removes the operator's credentials from the request.
        let observer = Arc::clone(&self.observer);
        let (gateway, mut request) =
            RunGateway::open(request, &self.clients, &self.aws, observer, self.login.as_ref())
                .await?;
        request.env.extend(run_plan::rustup_home(&request));
        let confinement = self.reached_confinement().await;
        let cgroup = self.next_cgroup().await;
        let plan = plan_run(&request, &cli.program, &self.places, confinement, self.limits, cgroup);
        let supervisor = self.supervisor.clone();
        let setup = CliRunSetup {
            supervisor,
            cli,
            plan,
            data: self.data.clone(),
            upstream: gateway.upstream(),
        };
        let ended = run_driver::run(setup, request, sender, stop).await;
        drop(gateway);
        ended
    }

    async fn confinement(&self) -> Option<Confinement> {
        // Called before other processes start: the server can use its cgroup only while it is alone
        // in there.
        self.cgroup_place().await;
        Some(self.reached_confinement().await)
    }

    /// The transcript of the main thread, from which the CLI resumes.
    fn session_files(&self, home: &UntrustedDir, session_id: &str) -> Vec<PathBuf> {
        subagent_transcripts::session_files(home, session_id)
    }

    async fn generate_title(
        &self,
        request: &TitleRequest,
    ) -> Option<Result<GeneratedTitle, EngineError>> {
        // A person's login is only for Claude Code's own requests.
        match self.login {
            Some(_) => None,
            None => Some(crate::messages::generate_title(request, &self.aws).await),
        }
    }
}
