//! A turn of a native engine, killed at random moments: it goes on in another process, asks for no
//! reply again that was kept, makes no call twice, and readers see each event once.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shikiri_app::{App, AppOptions};
use shikiri_engines::native::NativeEngine;
use shikiri_executions::conversations::ConversationPatch;
use shikiri_executions::execution::{
    Engine, EngineError, EngineRegistry, EngineSender, NewExecution, ToolBox, ToolCallResult,
    ToolSpec, TurnRequest,
};
use shikiri_executions::{EnvironmentVariables, ExecutionOptions};
use shikiri_model::event::StreamId;
use shikiri_model::execution::ExecutionUser;
use shikiri_model::ids::{ConversationId, RunId, TenantId};
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::native::ExecutionLimits;
use shikiri_model::run::{Run, RunStatus, run_stream};
use shikiri_runtime::RuntimeOptions;
use shikiri_store::{Store, StoreError, store};
use shikiri_tenancy::models::ModelPatch;
use shikiri_testkit::{FakeModel, ModelRequest, Reply, Rng, have_postgres, until};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::child::{Child, Role, in_noise, was_killed};
use super::place::{Home, Place};

/// Calls of tools, a reply each, and then an end: ten steps of the model.
const STEPS: usize = 9;
/// It is not waited for: the next process sees that the one before is gone.
const LEASE: Duration = Duration::from_secs(10);
const KILLS: usize = 20;
const AT_ONCE: usize = 4;
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NativeTask {
    place: Place,
    data: PathBuf,
    model_url: String,
    /// The file in which every call leaves a line.
    lines: PathBuf,
    conversation: String,
}

/// The child: a node with one turn to do, however often it is started.
pub(crate) async fn carry(task: NativeTask) {
    let app = app(&task).await;
    let node = app.start_worker();
    node.joined().await;
    let request = NewExecution {
        conversation: task.conversation.parse().unwrap(),
        user_input: "go".to_owned(),
        executor: ExecutionUser { user_id: "花子".to_owned(), name: None, email: None },
        tokens: BTreeMap::new(),
        preferred_skills: Vec::new(),
        model_id: None,
        idempotency_key: Some("once".to_owned()),
        limits: ExecutionLimits::default(),
    };
    let run = app.executions.execute(&TenantId::local(), request).await.unwrap().value.id;
    let is_over = async || {
        let found = app.executions.execution(&TenantId::local(), &run).await;
        found.is_ok_and(|run| run.value.status.is_terminal())
    };
    until("the execution ends", is_over).await;
    node.leave().await;
}

async fn app(task: &NativeTask) -> App {
    let env = [("ANTHROPIC_BASE_URL", &*task.model_url), ("ANTHROPIC_API_KEY", "sk-test")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = AppOptions {
        runtime: RuntimeOptions {
            node_lease: LEASE,
            data: Some(task.data.clone()),
            ..RuntimeOptions::default()
        },
        executions: ExecutionOptions {
            engine_env: EnvironmentVariables(env.into()),
            ..ExecutionOptions::default()
        },
        ..AppOptions::default()
    };
    let tools = Arc::new(Counted::new(&task.lines));
    let engine = WithTools { engine: NativeEngine::anthropic(), tools };
    App::new(task.place.open().await, vec![], options)
        .with_engines(EngineRegistry::new(vec![Arc::new(engine)]))
}

/// The engine with tools of the test's.
struct WithTools {
    engine: NativeEngine,
    tools: Arc<Counted>,
}

#[async_trait]
impl Engine for WithTools {
    fn kind(&self) -> EngineKind {
        self.engine.kind()
    }

    async fn check(
        &self,
        model: &Model,
        env: &BTreeMap<String, String>,
    ) -> Result<(), EngineError> {
        self.engine.check(model, env).await
    }

    fn is_native(&self) -> bool {
        true
    }

    async fn run(
        &self,
        order: TurnRequest,
        told: EngineSender,
        stop: CancellationToken,
    ) -> Result<(), EngineError> {
        let tools = Arc::clone(&self.tools);
        self.engine.run(TurnRequest { tools, ..order }, told, stop).await
    }
}

/// A tool whose calls are counted, whatever becomes of the process.
struct Counted {
    tools: Vec<ToolSpec>,
    lines: PathBuf,
}

impl Counted {
    fn new(lines: &Path) -> Self {
        let tool = ToolSpec {
            name: "count".to_owned(),
            description: "counts".to_owned(),
            input_schema: json!({ "type": "object", "required": ["n"] }),
            is_repeatable: false,
        };
        Self { tools: vec![tool], lines: lines.to_owned() }
    }
}

#[async_trait]
impl ToolBox for Counted {
    fn tools(&self) -> &[ToolSpec] {
        &self.tools
    }

    async fn call(&self, _: &str, input: &Value) -> ToolCallResult {
        let mut file =
            std::fs::File::options().create(true).append(true).open(&self.lines).unwrap();
        file.write_all(format!("{}\n", input["n"]).as_bytes()).unwrap();
        sleep(Duration::from_millis(8)).await;
        ToolCallResult::text(format!("counted {}", input["n"]))
    }
}

/// How often each call was made.
fn counts(lines: &Path) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(lines).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// Calls that a conversation has seen, which is the number of the reply that it waits for.
fn calls_in(request: &ModelRequest) -> usize {
    request.body["messages"].to_string().matches("\"tool_use\"").count()
}

/// The model: one call after the other, whatever else was said in between.
fn reply(request: &ModelRequest) -> Option<Reply> {
    if request.body.get("tools").is_none() {
        return Some(Reply::text("題"));
    }
    let n = calls_in(request);
    let pace = Duration::from_millis(2);
    Some(match n {
        STEPS => Reply::text("all of them are counted").paced(pace),
        n => Reply::thinking("which is next?")
            .and_text(&format!("Number {n} is next, I believe. "))
            .and_call("count", json!({ "n": n }))
            .paced(pace),
    })
}

struct World {
    task: NativeTask,
    store: Arc<dyn Store>,
    app: App,
    model: FakeModel,
    _home: Home,
}

impl World {
    async fn new(home: Home) -> Self {
        let model = FakeModel::start().await;
        model.answer(reply);
        let mut task = NativeTask {
            place: home.place(),
            data: home.folder().join("data"),
            model_url: model.url(),
            lines: home.folder().join("lines"),
            conversation: String::new(),
        };
        let app = app(&task).await;
        app.tenancy.ensure_local_tenant().await.unwrap();
        let id = "main".parse().unwrap();
        let patch = ModelPatch { model_name: Some("m".to_owned()), ..ModelPatch::default() };
        app.tenancy.create_model(Some(id), EngineKind::Anthropic, patch).await.unwrap();
        let new = ConversationPatch {
            model_id: Some(Some("main".parse().unwrap())),
            ..ConversationPatch::default()
        };
        let made = app.executions.create_conversation(&TenantId::local(), new).await.unwrap();
        task.conversation = made.value.id.to_string();
        Self { store: Arc::clone(app.runtime.store()), task, app, model, _home: home }
    }

    async fn run(&self) -> Option<Run> {
        let key = format!("execution:{}:once", self.task.conversation);
        let found = self.store.find("run", &TenantId::local(), &key).await.unwrap();
        found.map(|record| store::decode::<Run>(&record).unwrap().value)
    }

    /// Everything in a stream, with its numbers.
    async fn all(&self, stream: StreamId) -> Vec<(u64, String, Value)> {
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let page = match self.store.read(&TenantId::local(), &stream, after, 1 << 20).await {
                Err(StoreError::NoStream(_)) => return found,
                page => page.unwrap(),
            };
            for event in page.chunks.iter().flat_map(|chunk| chunk.events_after(after)) {
                let data = serde_json::from_str(event.data).unwrap();
                found.push((event.seq, event.kind.to_owned(), data));
            }
            match page.chunks.last() {
                Some(last) => after = last.last_seq(),
                None => return found,
            }
        }
    }

    /// Replies that were kept.
    async fn replies(&self, run: &RunId) -> usize {
        let steps = self.all(StreamId::new(format!("journal/{run}"))).await;
        steps.iter().filter(|(_, _, step)| step["entry"] == "reply").count()
    }

    /// For which reply of the turn each request was: the title's is for none.
    fn turns(&self) -> Vec<usize> {
        let requests = self.model.messages();
        let of_turn = requests.iter().filter(|request| request.body.get("tools").is_some());
        of_turn.map(calls_in).collect()
    }

    fn asked(&self) -> usize {
        self.turns().len()
    }
}

/// A moment to be killed at: so long after the model was asked so often.
#[derive(Clone, Copy, Debug)]
struct Moment {
    asked: usize,
    later: Duration,
}

/// One story: with how many kept replies it was killed, or None if it was over by then.
async fn killed_at(world: World, moment: Moment) -> Option<usize> {
    let role = Role::Native(world.task.clone());
    let mut node = Child::spawn(&role);
    until("it is asked", async || world.asked() >= moment.asked).await;
    let run = world.run().await.unwrap().id;
    let reader = tokio::spawn(follow(world.app.clone(), run.clone()));
    sleep(moment.later).await;
    node.kill();
    let is_killed = was_killed(node.end().await);
    let (kept, asked) = (world.replies(&run).await, world.asked());
    let was_over = world.run().await.unwrap().status.is_terminal();

    let mut node = Child::spawn(&role);
    let status = timeout(PATIENCE, node.end()).await.expect("it is stuck");
    assert!(status.success(), "{status}");
    // No reply that was kept was asked for again, and each of the others once. A request that was
    // on its way when the process died may be counted late: it is for the first of those.
    let again = world.turns().split_off(asked);
    for reply in 0..=STEPS {
        let times = again.iter().filter(|it| **it == reply).count();
        let may = if reply == kept { 1..=2 } else { 1..=1 };
        let is_right = if reply < kept { times == 0 } else { may.contains(&times) };
        assert!(is_right, "reply {reply}, after {kept} were kept: {again:?}");
    }
    check(&world, &run, reader.await.unwrap()).await;
    (is_killed && !was_over).then_some(kept)
}

async fn check(world: &World, run: &RunId, seen: Vec<(u64, String)>) {
    let counts = counts(&world.task.lines);
    assert!(counts.values().all(|times| *times == 1), "a call was made twice: {counts:?}");
    let told = world.all(run_stream(run)).await;
    let count = |kind: &str| told.iter().filter(|(_, k, _)| k == kind).count();
    let numbers: Vec<_> = told.iter().map(|(seq, _, _)| *seq).collect();
    assert_eq!(numbers, (1..=told.len() as u64).collect::<Vec<_>>());
    // Who read all the time saw the same, each once and in order.
    let all: Vec<_> = told.iter().map(|(seq, kind, _)| (*seq, kind.clone())).collect();
    assert_eq!(seen, all);
    assert_eq!(
        (count("session_start"), count("tool_use"), count("tool_result")),
        (1, STEPS, STEPS)
    );
    let unknown =
        told.iter().filter(|(_, kind, data)| kind == "tool_result" && data["is_error"] == true);
    let unknown = unknown.count();
    assert!(unknown <= 1 && counts.len() >= STEPS - unknown, "{unknown}: {counts:?}");

    let ended = world.app.executions.execution(&TenantId::local(), run).await.unwrap().value;
    assert_eq!(ended.status, RunStatus::Completed, "{:?}", ended.error);
    assert_eq!(ended.result.as_ref().unwrap()["result"], "all of them are counted");
    // Readers' text is the text of the account.
    let pieces = told.iter().filter(|(_, kind, _)| kind == "text_delta");
    let pieces: String = pieces.map(|(_, _, data)| data["text"].as_str().unwrap()).collect();
    let messages = messages(world).await;
    let of = |kind: &'static str| messages.iter().filter(move |content| content["type"] == kind);
    let texts: String =
        of("text").skip(1).map(|content| content["text"].as_str().unwrap()).collect();
    assert_eq!(pieces, texts);
    assert_eq!((of("tool_use").count(), of("tool_result").count()), (STEPS, STEPS));

    // Every reply that was kept is billed once; what was cut, as far as it was told.
    let usage = ended.execution.as_ref().unwrap().usage;
    let spent = world.model.spent();
    let (input, output) = spent.iter().fold((0, 0), |(input, output), spent| {
        (input + spent.usage.input_tokens, output + spent.usage.output_tokens)
    });
    let kept = STEPS as u64 + 1;
    assert!(usage.input_tokens >= 100 * kept && usage.input_tokens <= input, "{usage:?} {spent:?}");
    assert!(usage.output_tokens >= 10 * kept && usage.output_tokens <= output, "{usage:?}");
    if spent.len() as u64 == kept {
        assert_eq!((usage.input_tokens, usage.output_tokens), (input, output), "nothing was cut");
    }
}

/// The contents of the conversation's messages.
async fn messages(world: &World) -> Vec<Value> {
    let conversation: ConversationId = world.task.conversation.parse().unwrap();
    let tenant = TenantId::local();
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page =
            world.app.executions.list_messages(&tenant, &conversation, after, 200).await.unwrap();
        all.extend(page.0.into_iter().map(|message| message.value.content));
        match page.1 {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

/// A reader that was there before the kill and stays.
async fn follow(app: App, run: RunId) -> Vec<(u64, String)> {
    let mut watch = app.runtime.watch(&TenantId::local(), run_stream(&run), 0).await.unwrap();
    let mut seen = Vec::new();
    while let Some(delivery) = watch.next().await.unwrap() {
        seen.extend(delivery.events().map(|event| (event.seq, event.kind.to_owned())));
    }
    seen
}

/// Tells so many stories of a turn that is killed in its midst, each at a place of its own.
async fn kill_at_random(
    story: &str,
    kills: usize,
    at_once: usize,
    home: impl AsyncFn() -> Option<Home>,
) {
    let _guard = in_noise().await;
    let mut rng = Rng::seeded(story);
    // A round takes about 40 ms. A moment that comes after the end does not count, nor does
    // one that no home was found for.
    let moments: Vec<_> = (0..10 * kills)
        .map(|_| Moment {
            asked: 1 + rng.index(STEPS + 1),
            later: Duration::from_micros(rng.range(0, 45_000)),
        })
        .collect();
    let stories = stream::iter(moments)
        .map(async |moment| killed_at(World::new(home().await?).await, moment).await);
    let kept = stories.buffer_unordered(at_once).filter_map(std::future::ready).take(kills);
    let kept: Vec<_> = kept.collect().await;
    eprintln!("{story}: killed with so many replies kept: {kept:?}");
    assert_eq!(kept.len(), kills, "it was over before it was killed: {kept:?}");
    assert!(kept.iter().max() > kept.iter().min(), "always at the same place: {kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_a_native_turn_killed_at_random_moments_goes_on() {
    let home = async || Some(Home::with_file());
    kill_at_random("native_kill on SQLite", KILLS, AT_ONCE, home).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_native_turn_killed_at_random_moments_goes_on() {
    if !have_postgres("native_kill") {
        return;
    }
    // One after another: each has a pool of its own, and other tests want connections too.
    let home = async || Home::with_database("native_kill").await;
    kill_at_random("native_kill on PostgreSQL", 4, 1, home).await;
}
