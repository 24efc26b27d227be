//! A store, an app with scripted agents, and nodes that can be lost.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use shikiri_app::{App, AppOptions};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::run::{QuestionAnswer, RunStatus};
use shikiri_runtime::run::{AgentError, DurableAgent, NewRun, RunContext, RunView, WorkerNode};
use shikiri_runtime::{AppError, RuntimeOptions};
use shikiri_testkit::{FakeClock, TestStore};

pub(crate) const LEASE: Duration = Duration::from_secs(15);

pub(crate) struct World {
    pub(crate) app: App,
    pub(crate) clock: Arc<FakeClock>,
    _store: TestStore,
}

impl World {
    pub(crate) async fn new(agents: Vec<Arc<dyn DurableAgent>>) -> Self {
        Self::on(TestStore::sqlite(), agents).await
    }

    pub(crate) async fn on(store: TestStore, agents: Vec<Arc<dyn DurableAgent>>) -> Self {
        // Renewal is timed by the real clock: often enough not to be outrun by a test.
        let options = AppOptions {
            runtime: RuntimeOptions { node_lease: LEASE, ..RuntimeOptions::default() },
            ..AppOptions::default()
        };
        let app = App::new(store.open().await, agents, options);
        app.tenancy.ensure_local_tenant().await.unwrap();
        Self { app, clock: store.clock.clone(), _store: store }
    }

    /// The same store, seen by a program with other agents.
    pub(crate) fn upgraded(&self, agents: Vec<Arc<dyn DurableAgent>>) -> App {
        App::new(Arc::clone(self.app.runtime.store()), agents, self.app.options().clone())
    }

    pub(crate) async fn start(&self, agent: &str, input: Value) -> RunId {
        let new = NewRun { agent: agent.into(), input, idempotency_key: None, origin: None };
        self.app.runtime.start_run(&TenantId::local(), new).await.unwrap().run.id
    }

    pub(crate) fn node(&self) -> WorkerNode {
        self.app.start_worker()
    }

    /// Waits, by following the run's events, until it is as wanted.
    pub(crate) async fn until(&self, run: &RunId, wanted: impl Fn(&RunView) -> bool) -> RunView {
        let tenant = TenantId::local();
        let stream = shikiri_model::run::run_stream(run);
        let mut watch = self.app.runtime.watch(&tenant, stream, 0).await.unwrap();
        let reached = async {
            loop {
                let view = self.app.runtime.run(&tenant, run).await.unwrap();
                if wanted(&view) {
                    return view;
                }
                let more = watch.next().await.unwrap();
                assert!(more.is_some(), "the run ended otherwise: {:?}", view.run);
            }
        };
        tokio::time::timeout(Duration::from_secs(20), reached).await.expect("waited too long")
    }

    pub(crate) async fn until_status(&self, run: &RunId, status: RunStatus) -> RunView {
        self.until(run, |view| view.run.status == status).await
    }

    pub(crate) async fn end_of(&self, run: &RunId) -> RunView {
        self.until(run, |view| view.run.status.is_terminal()).await
    }

    /// Redirects the run.
    pub(crate) async fn update(&self, run: &RunId, input: Value) -> Result<RunView, AppError> {
        self.app.runtime.update_run(&TenantId::local(), run, input).await
    }

    /// Answers the question that the run waits for.
    pub(crate) async fn answer(&self, run: &RunId, answer: QuestionAnswer) {
        let waiting = self.until_status(run, RunStatus::Waiting).await;
        let question = &waiting.run.questions[0].id;
        self.app.runtime.answer_run(&TenantId::local(), run, question, answer).await.unwrap();
    }

    /// The run's events, in order.
    pub(crate) async fn events_of(&self, run: &RunId) -> Vec<(String, Value)> {
        let stream = shikiri_model::run::run_stream(run);
        let page = self
            .app
            .runtime
            .store()
            .read(&TenantId::local(), &stream, 0, usize::MAX)
            .await
            .unwrap();
        let events = page.chunks.iter().flat_map(|chunk| chunk.events());
        events.map(|e| (e.kind.to_owned(), serde_json::from_str(e.data).unwrap())).collect()
    }

    /// The kinds of the run's events, in order.
    pub(crate) async fn story_of(&self, run: &RunId) -> Vec<String> {
        self.events_of(run).await.into_iter().map(|(kind, _)| kind).collect()
    }
}

type Work = Pin<Box<dyn Future<Output = Result<Value, AgentError>> + Send>>;

/// An agent made of a closure.
pub(crate) struct Scripted {
    name: &'static str,
    script: Box<dyn Fn(RunContext, Value) -> Work + Send + Sync>,
}

pub(crate) fn agent<F>(
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
        "A scripted agent"
    }

    fn input_schema(&self) -> Value {
        json!({ "type": "object" })
    }

    fn check(&self, _input: &Value) -> Result<(), String> {
        Ok(())
    }

    fn check_update(&self, update: &Value) -> Result<(), String> {
        if update == "no" { Err("not that".to_owned()) } else { Ok(()) }
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError> {
        (self.script)(context, input).await
    }
}

/// Counts what really happened, over all attempts.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<Vec<String>>>, Arc<AtomicUsize>);

impl Tally {
    pub(crate) fn mark(&self, what: impl Into<String>) -> Result<usize, std::convert::Infallible> {
        self.0.lock().unwrap().push(what.into());
        Ok(self.1.fetch_add(1, Ordering::SeqCst) + 1)
    }

    pub(crate) fn list(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}
