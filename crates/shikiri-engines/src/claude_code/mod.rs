//! Claude Code as an engine: the CLI, driven as the Agent SDK drives it.
//!
//! Messages go both ways as lines of JSON over stdin and stdout, among them control requests: the
//! first one carries the system prompt, others ask for permissions or interrupt. `translate` turns
//! what comes into the model's vocabulary, `ledger` and `transcripts` count what was spent,
//! `supervisor` is the process that starts the CLI in its sandbox and ends whatever a run leaves
//! behind, `run_plan` says what a run may reach, `drive` puts it together.
//!
//! A run is over when the CLI has given a result, says that it is idle, and no subagent lives that
//! it would take up again: with subagents in the background one prompt has several results.

mod agents;
mod command;
mod control;
mod drive;
mod endings;
mod files;
mod ledger;
mod lines;
mod loopback_forwarder;
mod process;
mod run_plan;
mod supervisor;
mod transcripts;
mod translate;
mod version;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use shikiri_app::execution::{Engine, EngineError, Order, TitleOrder, Titled, Told};
use shikiri_files::UntrustedDir;
use shikiri_model::confinement::{Confinement, ConfinementLevel};
use shikiri_model::models::{EngineKind, Model};
use shikiri_sandbox::{RUN_CGROUP, SandboxLimits};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

pub use supervisor::supervise_if_asked;

use crate::claude_login::ClaudeLogin;
use crate::gateway::{ModelApiObserver, NoObserver, RunGateway};
use crate::messages::AwsCredentialSources;
use crate::messages::http::HttpClients;
use drive::Means;
use run_plan::{MachinePlaces, plan_run};
use version::Cli;

/// The model of messages that the CLI writes itself.
const SYNTHETIC: &str = "<synthetic>";
/// This program, even if its file was replaced since it started.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Who sees to it that a run does not use too much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The kernel, by a cgroup of the run.
    Cgroup,
    /// The supervisor, which looks at its processes again and again.
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

pub struct ClaudeCode {
    cli: Cli,
    supervisor: PathBuf,
    places: MachinePlaces,
    limits: SandboxLimits,
    /// The server's folder, in which those of runs lie.
    data: Option<PathBuf>,
    /// What this machine allows, found out at the first question.
    confinement: OnceCell<Confinement>,
    /// Where the cgroups of runs are made; None if there is no such place.
    cgroup_place: OnceCell<Option<PathBuf>>,
    /// Runs that had a cgroup so far, for their names.
    cgroups: AtomicU64,
    clients: HttpClients,
    aws: AwsCredentialSources,
    /// A person's own, lent to the runs of this process in place of the operator's credential.
    login: Option<ClaudeLogin>,
    /// Looks at what runs and the model API say to each other.
    observer: Arc<dyn ModelApiObserver>,
}

impl ClaudeCode {
    /// With the CLI at `bin`, or the `claude` that is on the PATH. The program that makes this must
    /// call `supervise_if_asked` before anything else: it is started again to supervise.
    pub fn new(bin: Option<PathBuf>) -> Self {
        let here = PathBuf::from(THIS_PROGRAM);
        let supervisor = if here.exists() { here } else { std::env::current_exe().unwrap_or(here) };
        Self {
            cli: Cli::new(bin),
            supervisor,
            places: MachinePlaces::default(),
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
    pub fn with_readable(mut self, readable: Vec<PathBuf>) -> Self {
        self.places.readable = readable;
        self
    }

    /// Runs may read none of these, even if they lie where programs are installed.
    #[must_use]
    pub fn with_hidden(mut self, hidden: Vec<PathBuf>) -> Self {
        self.places.hidden = hidden;
        self
    }

    /// What one run may use up.
    #[must_use]
    pub fn with_limits(self, limits: SandboxLimits) -> Self {
        Self { limits, ..self }
    }

    /// With the folder in which those of runs lie.
    #[must_use]
    pub fn with_data(self, data: PathBuf) -> Self {
        Self { data: Some(data), ..self }
    }

    /// With the AWS profiles in this home, for the gateway: runs do not see them.
    #[must_use]
    pub fn at_home(self, home: Option<PathBuf>) -> Self {
        Self { aws: AwsCredentialSources::at_home(home), ..self }
    }

    /// With no confinement at all, whatever this machine allows: to measure what it costs. No setting
    /// of the program leads here.
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

    /// The best that this machine allows.
    pub async fn reached_confinement(&self) -> Confinement {
        *self.confinement.get_or_init(|| self.detect_confinement()).await
    }

    /// Who sees to it that a run does not use too much memory.
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

    /// The cgroup of the next run, which its supervisor makes.
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
        // From here on the order holds no credential of the operator's.
        let observer = Arc::clone(&self.observer);
        let (gateway, mut order) =
            RunGateway::open(order, &self.clients, &self.aws, observer, self.login.as_ref())
                .await?;
        order.env.extend(run_plan::rustup_home(&order));
        let confinement = self.reached_confinement().await;
        let cgroup = self.next_cgroup().await;
        let plan = plan_run(&order, &cli, &self.places, confinement, self.limits, cgroup);
        let supervisor = self.supervisor.clone();
        let means =
            Means { supervisor, cli, plan, data: self.data.clone(), upstream: gateway.upstream() };
        let ended = drive::run(means, order, told, stop).await;
        drop(gateway);
        ended
    }

    async fn confinement(&self) -> Option<Confinement> {
        // Here, because this is asked before anything else is started: a server that has other
        // processes beside it in its cgroup cannot use that.
        self.cgroup_place().await;
        Some(self.reached_confinement().await)
    }

    /// The transcript of the main thread; the CLI resumes from nothing else.
    fn session_files(&self, home: &UntrustedDir, session_id: &str) -> Vec<PathBuf> {
        transcripts::session_files(home, session_id)
    }

    async fn title(&self, wanted: &TitleOrder) -> Option<Result<Titled, EngineError>> {
        // A login is for Claude Code's own requests.
        match self.login {
            Some(_) => None,
            None => Some(crate::messages::title(wanted, &self.aws).await),
        }
    }
}
