//! A server inside the test, with agents and a patience of the test's own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use shikiri::config::{Config, Durability, Settings, Surroundings};
use shikiri::serve::Running;
use shikiri::wiring::Offer;
use shikiri_mcp::{McpOptions, McpService};
use shikiri_runtime::run::{AgentError, DurableAgent, RunContext, UnknownStepPolicy};
use shikiri_testkit::Client;
use tokio::sync::Semaphore;

/// Ends with the test's runtime.
pub(super) struct Served {
    running: Running,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Served {
    /// With the usual patience.
    pub(super) async fn start(agents: Vec<Arc<dyn DurableAgent>>) -> Self {
        Self::with(Offer { agents, ..Offer::default() }).await
    }

    pub(super) async fn with_patience(
        agents: Vec<Arc<dyn DurableAgent>>,
        patience: Duration,
    ) -> Self {
        let mcp = McpOptions { patience, ..McpOptions::default() };
        Self::with(Offer { agents, mcp, ..Offer::default() }).await
    }

    pub(super) async fn with(offer: Offer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            listen: Some("127.0.0.1:0".to_owned()),
            durability: Some(Durability::Normal),
            ..Settings::default()
        };
        let current_folder = Some(folder.path().to_owned());
        let surroundings = Surroundings { variable: &|_| None, current_folder, ask: |_| None };
        let config = Config::load(settings, &surroundings).unwrap_or_else(|e| panic!("{e:?}"));
        let running = Running::start(&config, offer).await.unwrap_or_else(|e| panic!("{e:?}"));
        let key = std::fs::read_to_string(folder.path().join(".shikiri/admin.key")).unwrap();
        let client = Client::new(&format!("http://{}", running.address())).with_key(key.trim());
        Self { running, client, _folder: folder }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn mcp(&self) -> &Arc<McpService> {
        self.running.mcp()
    }
}

type Work = Pin<Box<dyn Future<Output = Result<Value, AgentError>> + Send>>;

/// An agent made of a closure. It takes any input and results in any object.
struct Scripted {
    name: &'static str,
    script: Box<dyn Fn(RunContext, Value) -> Work + Send + Sync>,
}

pub(super) fn agent<F>(
    name: &'static str,
    script: impl Fn(RunContext, Value) -> F + Send + Sync + 'static,
) -> Arc<dyn DurableAgent>
where
    F: Future<Output = Result<Value, AgentError>> + Send + 'static,
{
    let script = Box::new(move |context, input| Box::pin(script(context, input)) as Work);
    Arc::new(Scripted { name, script })
}

#[async_trait]
impl DurableAgent for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        "An agent of a test"
    }

    fn input_schema(&self) -> Value {
        json!({ "type": "object" })
    }

    fn output_schema(&self) -> Option<Value> {
        Some(json!({ "type": "object" }))
    }

    fn check(&self, _: &Value) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError> {
        (self.script)(context, input).await
    }
}

/// Agents wait here until the test lets them pass, one for each time.
#[derive(Clone)]
pub(super) struct Barrier(Arc<Semaphore>);

impl Barrier {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// As a step of the agent, because it reaches outside.
    pub(super) async fn pass(&self, context: &RunContext) -> Result<(), AgentError> {
        let semaphore = Arc::clone(&self.0);
        let work = async move { semaphore.acquire().await.map(|permit| permit.forget()) };
        Ok(context.step("barrier", UnknownStepPolicy::Retry, work).await?)
    }

    pub(super) fn lift(&self, times: usize) {
        self.0.add_permits(times);
    }
}

/// Tells that it began (`progress` 10), waits at the barrier, and is done.
pub(super) fn waiter(barrier: &Barrier) -> Arc<dyn DurableAgent> {
    let barrier = barrier.clone();
    agent("waiter", move |context, _| {
        let barrier = barrier.clone();
        async move {
            context.progress(10.0, 100.0, "began").await;
            barrier.pass(&context).await?;
            context.progress(100.0, 100.0, "ended").await;
            Ok(json!({ "done": true }))
        }
    })
}
