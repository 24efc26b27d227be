//! Shikiri's own server on a store where every commit is on the disk, with both engines, and with
//! an agent that logs as fast as it may: what a stream costs without an execution around it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use clap::Args;
use serde_json::{Value, json};
use shikiri_app::{App, AppOptions};
use shikiri_engines::claude_code::ClaudeCodeEngine;
use shikiri_engines::native::NativeEngine;
use shikiri_engines::offline::OfflineScriptEngine;
use shikiri_executions::execution::{EngineRegistry, inherited_environment};
use shikiri_executions::{EnvironmentVariables, ExecutionOptions};
use shikiri_model::confinement::ConfinementPolicy;
use shikiri_model::models::EngineKind;
use shikiri_runtime::RuntimeOptions;
use shikiri_runtime::run::{AgentError, DurableAgent, RunContext};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_tenancy::gate::{AccessGate, GateOptions};
use shikiri_tenancy::models::ModelPatch;
use shikiri_web::{WebOptions, bind};
use tokio_util::sync::CancellationToken;

use crate::child::{self, Process};
use crate::payload;

/// The models of the benchmark's API.
const NATIVE: [&str; 3] = ["busy", "timed", "slow"];
/// The model that the CLI answers for.
pub(super) const CLAUDE: &str = "claude";

#[derive(Args)]
pub(crate) struct Arguments {
    folder: PathBuf,
    /// The CLI of the claude-code engine
    #[arg(long)]
    claude: Option<PathBuf>,
    /// Starts the CLI without a sandbox
    #[arg(long)]
    unconfined: bool,
    /// The API of the native engine
    #[arg(long)]
    api: Option<String>,
}

/// The server as the benchmark sees it.
pub(crate) struct Server {
    process: Process,
    pub(super) address: SocketAddr,
    pub(super) key: String,
}

impl Server {
    pub(super) fn start(folder: &Path, claude: Option<&Path>) -> Result<Self> {
        let claude = claude.map(Path::to_string_lossy);
        let more: Vec<_> = claude.iter().flat_map(|claude| ["--claude", claude]).collect();
        Self::start_with(folder, &more)
    }

    /// With a CLI that is not confined.
    pub(super) fn start_unconfined(folder: &Path, claude: &Path) -> Result<Self> {
        Self::start_with(folder, &["--unconfined", "--claude", &claude.to_string_lossy()])
    }

    /// With the native engine, on this API.
    pub(crate) fn start_native(folder: &Path, api: &str) -> Result<Self> {
        Self::start_with(folder, &["--api", api])
    }

    fn start_with(folder: &Path, more: &[&str]) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let folder = folder.to_string_lossy();
        let mut words = vec!["executions", &folder];
        words.extend(more);
        let mut process = Process::role(words)?;
        let address = process.hear_word("listening")?.parse().context("an address")?;
        let key = process.hear_word("key")?;
        Ok(Self { process, address, key })
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(arguments))
}

/// Serves until the parent is done.
async fn serve(arguments: &Arguments) -> Result<()> {
    let store = SqliteStore::open(&arguments.folder.join("state.db"), SqliteOptions::default())?;
    let options = AppOptions {
        runtime: RuntimeOptions {
            data: Some(arguments.folder.clone()),
            ..RuntimeOptions::default()
        },
        executions: ExecutionOptions {
            confinement_policy: ConfinementPolicy {
                accepts_unconfined: arguments.unconfined,
                ..ConfinementPolicy::default()
            },
            engine_env: EnvironmentVariables(inherited_environment(std::env::vars())),
            ..ExecutionOptions::default()
        },
        ..AppOptions::default()
    };
    let claude_code = ClaudeCodeEngine::new(arguments.claude.clone());
    let claude_code = if arguments.unconfined { claude_code.unconfined() } else { claude_code };
    let engines = EngineRegistry::new(vec![
        Arc::new(OfflineScriptEngine),
        Arc::new(claude_code),
        Arc::new(NativeEngine::anthropic()),
    ]);
    let app = App::new(Arc::new(store), vec![Arc::new(Logger)], options).with_engines(engines);
    app.tenancy.ensure_local_tenant().await?;
    if arguments.claude.is_some() {
        let id = CLAUDE.parse().context("a model's id")?;
        app.tenancy.create_model(Some(id), EngineKind::ClaudeCode, ModelPatch::default()).await?;
    }
    if let Some(api) = &arguments.api {
        for model in NATIVE {
            let env = [("ANTHROPIC_BASE_URL", api.as_str()), ("ANTHROPIC_API_KEY", "sk-bench")];
            let patch = ModelPatch {
                model_name: Some(model.to_owned()),
                env: env.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).into(),
                ..ModelPatch::default()
            };
            let id = model.parse().context("a model's id")?;
            app.tenancy.create_model(Some(id), EngineKind::Anthropic, patch).await?;
        }
    }
    let secret = shikiri_tenancy::Tenancy::mint_secret()?;
    app.tenancy.ensure_admin_key(&secret).await?;
    let _node = app.start_worker();
    let options = WebOptions { listen: ([127, 0, 0, 1], 0).into(), ..WebOptions::default() };
    let listener = bind(&options).await?;
    child::tell(&format!("listening {}", listener.local_addr()?))?;
    child::tell(&format!("key {}", secret.reveal()))?;
    let server = shikiri_web::WebServer::new(
        app.clone(),
        AccessGate::new(app.tenancy.clone(), GateOptions::default()),
        options,
    );
    tokio::spawn(server.serve(listener, CancellationToken::new()));
    child::command().await.map(drop)
}

struct Logger;

#[async_trait]
impl DurableAgent for Logger {
    fn name(&self) -> &'static str {
        "bench"
    }

    fn description(&self) -> &'static str {
        "Logs as fast as it may"
    }

    fn input_schema(&self) -> Value {
        json!({ "type": "object" })
    }

    fn check(&self, _input: &Value) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError> {
        for _ in 0..input["events"].as_u64().unwrap_or(0) {
            context.log("info", "bench", payload::text()).await;
        }
        Ok(json!({}))
    }
}
