//! A process that carries runs as a server does, with agents that leave a line in a file whenever
//! a step is really done: the file tells what happened, the log what was recorded of it.

use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shikiri_app::{App, AppOptions};
use shikiri_model::ids::TenantId;
use shikiri_model::run::{Run, RunOutcome};
use shikiri_runtime::RuntimeOptions;
use shikiri_runtime::run::{AgentError, DurableAgent, NewRun, RunContext, UnknownStepPolicy};
use shikiri_store::{Store, store};
use shikiri_testkit::until;
use tokio::time::sleep;

use super::place::Place;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeTask {
    pub(crate) place: Place,
    /// The file in which steps leave their lines.
    pub(crate) lines: PathBuf,
    pub(crate) lease: Duration,
    /// Runs to start (each once, however often this process is started): agent and input. The
    /// process ends when they have ended; without any it goes on for ever.
    pub(crate) runs: Vec<(String, Value)>,
}

/// The child: a node.
pub(crate) async fn carry(task: NodeTask) {
    let app = app(task.place.open().await, &task.lines, task.lease);
    app.tenancy.ensure_local_tenant().await.unwrap();
    let tenant = TenantId::local();
    for (agent, input) in &task.runs {
        let idempotency_key = Some(name_of(input));
        let new =
            NewRun { agent: agent.clone(), input: input.clone(), idempotency_key, origin: None };
        app.runtime.start_run(&tenant, new).await.unwrap();
    }
    let node = app.start_worker();
    if task.runs.is_empty() {
        return std::future::pending().await;
    }
    for (_, input) in &task.runs {
        let name = name_of(input);
        until("the run ends", async || {
            find(&**app.runtime.store(), &name).await.is_some_and(|run| run.status.is_terminal())
        })
        .await;
    }
    node.leave().await;
}

pub(crate) fn app(store: Arc<dyn Store>, lines: &Path, lease: Duration) -> App {
    let options = AppOptions {
        runtime: RuntimeOptions { node_lease: lease, ..RuntimeOptions::default() },
        ..AppOptions::default()
    };
    App::new(store, agents(lines), options)
}

fn name_of(input: &Value) -> String {
    input["name"].as_str().unwrap().to_owned()
}

/// The run that was started with this name. A store that is away for a moment has none.
pub(crate) async fn find(store: &dyn Store, name: &str) -> Option<Run> {
    let found = store.find("run", &TenantId::local(), &format!("key:{name}")).await;
    found.ok().flatten().map(|record| store::decode::<Run>(&record).unwrap().value)
}

fn agents(lines: &Path) -> Vec<Arc<dyn DurableAgent>> {
    vec![
        Arc::new(Scripted { name: "journey", lines: lines.to_owned(), script: journey }),
        Arc::new(Scripted { name: "helper", lines: lines.to_owned(), script: helper }),
        Arc::new(Scripted { name: "walk", lines: lines.to_owned(), script: walk }),
    ]
}

/// One of everything that an agent can do.
fn journey(context: RunContext, scribe: Scribe, _: Value) -> Work {
    Box::pin(async move {
        let step =
            |name: &'static str| context.step(name, UnknownStepPolicy::Retry, scribe.line(name));
        context.progress(0.0, 3.0, "出発").await;
        step("pack").await?;
        context.log("info", "journey", "packed").await;
        step("leave").await?;
        let answer = context.ask_human(json!({}), "右ですか", None).await;
        context.progress(1.0, 3.0, "曲がった").await;
        step("turn").await?;
        context.sleep(Duration::from_millis(8)).await;
        context.partial(&json!("half way")).await;
        let name = format!("{}-helper", scribe.name);
        let helped = context.call("helper", json!({ "name": name })).await;
        context.progress(2.0, 3.0, "助かった").await;
        let (left, right) = (step("left"), step("right"));
        let (left, right) = tokio::join!(left, right);
        left.and(right)?;
        context.progress(3.0, 3.0, "着いた").await;
        Ok(
            json!({ "answer": answer.content, "helped": helped == RunOutcome::Completed(json!("助")) }),
        )
    })
}

pub(crate) fn result_of_journey() -> Value {
    json!({ "answer": "右", "helped": true })
}

fn helper(context: RunContext, scribe: Scribe, _: Value) -> Work {
    Box::pin(async move {
        for name in ["lift", "carry"] {
            context.progress(0.0, 1.0, name).await;
            context.step(name, UnknownStepPolicy::Retry, scribe.line(name)).await?;
        }
        Ok(json!("助"))
    })
}

/// Many slow steps.
fn walk(context: RunContext, scribe: Scribe, input: Value) -> Work {
    Box::pin(async move {
        let steps = input["steps"].as_u64().unwrap_or(1);
        let pause = Duration::from_millis(input["step_ms"].as_u64().unwrap_or(0));
        for n in 0..steps {
            let name = format!("step {n}");
            let work = async {
                sleep(pause).await;
                scribe.line(&name).await
            };
            context.step(&name, UnknownStepPolicy::Retry, work).await?;
            context.progress(n as f64, steps as f64, &name).await;
        }
        Ok(json!(steps))
    })
}

type Work = Pin<Box<dyn Future<Output = Result<Value, AgentError>> + Send>>;

struct Scripted {
    name: &'static str,
    lines: PathBuf,
    script: fn(RunContext, Scribe, Value) -> Work,
}

#[async_trait]
impl DurableAgent for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        "Leaves a line for every step"
    }

    fn input_schema(&self) -> Value {
        json!({ "type": "object" })
    }

    fn check(&self, _input: &Value) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError> {
        let scribe = Scribe { lines: self.lines.clone(), name: name_of(&input) };
        (self.script)(context, scribe, input).await
    }
}

/// Writes down what is really done, outside of the store.
#[derive(Clone)]
struct Scribe {
    lines: PathBuf,
    name: String,
}

impl Scribe {
    fn line(&self, step: &str) -> impl Future<Output = Result<(), std::io::Error>> + Send + use<> {
        let (path, line) = (self.lines.clone(), format!("{}/{step}\n", self.name));
        async move { File::options().create(true).append(true).open(path)?.write_all(line.as_bytes()) }
    }
}
