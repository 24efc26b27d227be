//! What an engine is ordered to do, and what becomes of one that misbehaves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use shikiri_app::{App, AppOptions};
use shikiri_executions::conversations::ConversationPatch;
use shikiri_executions::execution::{
    Engine, EngineError, EngineRegistry, EngineSender, NewExecution, TurnRequest,
};
use shikiri_executions::servers::{ServerKind, ServerPatch};
use shikiri_executions::skills::SkillContent;
use shikiri_executions::{EnvironmentVariables, ExecutionOptions};
use shikiri_model::conversation::conversation_lock;
use shikiri_model::execution::{
    EngineFinish, EngineMessage, ExecutionUser, TokenSpender, TokenUsage,
};
use shikiri_model::ids::{ConversationId, TenantId};
use shikiri_model::key::KeyScope;
use shikiri_model::models::{ActiveStatus, EngineKind, Model};
use shikiri_model::native::ExecutionLimits;
use shikiri_model::run::{Run, RunStatus};
use shikiri_model::server::McpServerTransport;
use shikiri_runtime::run::WorkerNode;
use shikiri_runtime::{AppError, RuntimeOptions};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_tenancy::models::ModelPatch;
use shikiri_tenancy::tenants::{LimitsPatch, TenantPatch};
use shikiri_testkit::until;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::flaky::Flaky;

/// What it should do instead of its work.
#[derive(Clone, Copy, PartialEq)]
enum Whim {
    None,
    Panic,
    /// Waits until the test lets it work.
    Wait,
}

/// Keeps its orders.
#[derive(Clone)]
struct Clerk {
    orders: Arc<Mutex<Vec<TurnRequest>>>,
    whim: Whim,
    may_work: Arc<Semaphore>,
}

#[async_trait]
impl Engine for Clerk {
    fn kind(&self) -> EngineKind {
        EngineKind::ClaudeCode
    }

    async fn check(&self, model: &Model, _: &BTreeMap<String, String>) -> Result<(), EngineError> {
        match model.model_name.as_str() {
            "missing" => Err(EngineError::new("the program is not here")),
            _ => Ok(()),
        }
    }

    async fn run(
        &self,
        order: TurnRequest,
        told: EngineSender,
        _: CancellationToken,
    ) -> Result<(), EngineError> {
        let session_id = order.resume.clone().unwrap_or_else(|| "s1".to_owned());
        self.orders.lock().unwrap().push(order);
        let started =
            EngineMessage::Started { session_id: session_id.clone(), model: "m".to_owned() };
        told.send(started).await;
        let usage = TokenUsage { input_tokens: 9, ..TokenUsage::default() };
        let (who, request, model) = (TokenSpender::Main, "r".to_owned(), "m".to_owned());
        told.send(EngineMessage::Spent { who, request, model, usage }).await;
        if self.whim == Whim::Wait {
            self.may_work.acquire().await.unwrap().forget();
        }
        if self.whim == Whim::Panic {
            // Until what it told so far is in the store, so that the bill is not left to chance.
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            panic!("as the test wants");
        }
        let finish = EngineFinish {
            result: "済".to_owned(),
            session_id: Some(session_id),
            ..EngineFinish::default()
        };
        told.send(EngineMessage::Finished(finish)).await;
        Ok(())
    }
}

struct Office {
    app: App,
    node: WorkerNode,
    clerk: Clerk,
    conversation: ConversationId,
    store: Arc<Flaky>,
    _folder: tempfile::TempDir,
}

fn local() -> TenantId {
    TenantId::local()
}

impl Office {
    async fn open(whim: Whim) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store =
            SqliteStore::open(&folder.path().join("state.db"), SqliteOptions::default()).unwrap();
        let env = [("ANTHROPIC_API_KEY", "鍵"), ("ANTHROPIC_DEFAULT_OPUS_MODEL", "opus-env")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = AppOptions {
            runtime: RuntimeOptions {
                data: Some(folder.path().to_owned()),
                ..RuntimeOptions::default()
            },
            executions: ExecutionOptions {
                engine_env: EnvironmentVariables(env.into()),
                ..ExecutionOptions::default()
            },
            ..AppOptions::default()
        };
        let clerk = Clerk { orders: Arc::default(), whim, may_work: Arc::new(Semaphore::new(0)) };
        let engines = EngineRegistry::new(vec![Arc::new(clerk.clone())]);
        let store = Flaky::over(Arc::new(store));
        let app = App::new(store.clone(), vec![], options).with_engines(engines);
        app.tenancy.ensure_local_tenant().await.unwrap();
        let node = app.start_worker();
        node.joined().await;
        for (id, name) in [("main", "sonnet-x"), ("light", "haiku-x"), ("absent", "missing")] {
            let aliases = if id == "light" { vec!["haiku".to_owned()] } else { vec![] };
            let patch = ModelPatch {
                model_name: Some(name.to_owned()),
                aliases: Some(aliases),
                subagent_model: Some((id == "main").then(|| "haiku".to_owned())),
                region: Some((id == "main").then(|| "us-east-1".to_owned())),
                ..ModelPatch::default()
            };
            app.tenancy
                .create_model(Some(id.parse().unwrap()), EngineKind::ClaudeCode, patch)
                .await
                .unwrap();
        }
        let patch =
            TenantPatch { model_id: Some(Some("main".to_owned())), ..TenantPatch::default() };
        app.tenancy.update_tenant(&local(), patch).await.unwrap();
        let made = app
            .executions
            .create_conversation(&local(), ConversationPatch::default())
            .await
            .unwrap();
        Self { app, node, clerk, conversation: made.value.id, store, _folder: folder }
    }

    fn request(&self) -> NewExecution {
        NewExecution {
            conversation: self.conversation.clone(),
            user_input: "頼む".to_owned(),
            executor: ExecutionUser { user_id: "花子".to_owned(), name: None, email: None },
            tokens: BTreeMap::new(),
            preferred_skills: vec![],
            model_id: None,
            idempotency_key: None,
            limits: ExecutionLimits::default(),
        }
    }

    /// One execution to its end, and the order that the engine got.
    async fn done(&self, request: NewExecution) -> (Run, TurnRequest) {
        let run = self.app.executions.execute(&local(), request).await.unwrap().value;
        let mut watch = self.app.runtime.watch(&local(), run.stream(), 0).await.unwrap();
        while watch.next().await.unwrap().is_some() {}
        let run = self.app.executions.execution(&local(), &run.id).await.unwrap().value;
        let order = self.clerk.orders.lock().unwrap().last().cloned().unwrap();
        (run, order)
    }

    /// Whether an execution has the conversation's lock.
    async fn is_locked(&self) -> bool {
        let lock = conversation_lock(&self.conversation);
        self.app.runtime.store().lease(&lock).await.unwrap().is_some_and(|(_, lapsed)| !lapsed)
    }

    async fn server(&self, name: &str, header: &str, status: ActiveStatus) {
        let header = ("Authorization".to_owned(), header.to_owned());
        let patch = ServerPatch {
            name: Some(name.to_owned()),
            kind: Some(ServerKind::Http),
            url: Some("http://127.0.0.1:9/mcp".to_owned()),
            headers_template: Some([header].into()),
            allow_private: Some(true),
            status: Some(status),
            ..ServerPatch::default()
        };
        self.app.executions.create_server(&KeyScope::Admin, &local(), patch).await.unwrap();
    }
}

/// Row 1.35.
#[tokio::test(flavor = "multi_thread")]
async fn an_execution_takes_the_lock_after_its_checks_and_frees_it_with_its_commit() {
    let office = Office::open(Whim::Wait).await;
    let refused = NewExecution { model_id: Some("absent".parse().unwrap()), ..office.request() };
    office.app.executions.execute(&local(), refused).await.unwrap_err();
    assert!(!office.is_locked().await, "a request that fails its checks takes no lock");

    let run = office.app.executions.execute(&local(), office.request()).await.unwrap().value;
    assert!(office.is_locked().await, "the caller is answered once the lock is taken");
    until("the engine works", async || office.clerk.orders.lock().unwrap().len() == 1).await;
    assert!(office.is_locked().await, "the lock is kept while the engine works");
    let waiting = office.app.executions.execution(&local(), &run.id).await.unwrap().value;
    assert_eq!(waiting.status, RunStatus::Running);

    office.clerk.may_work.add_permits(1);
    let mut watch = office.app.runtime.watch(&local(), run.stream(), 0).await.unwrap();
    let mut kinds = Vec::new();
    while let Some(delivery) = watch.next().await.unwrap() {
        kinds.extend(delivery.events().map(|event| event.kind.to_owned()));
    }
    // The warning: no model record has prices for this engine's model.
    assert_eq!(kinds, ["session_start", "warning", "title", "result"]);
    assert!(!office.is_locked().await, "the commit of the result frees the lock");
    office.node.leave().await;
}

/// Its caller reads the end before the server is told that it is kept.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_turn_frees_its_concurrency_slot_for_the_next() {
    let office = Office::open(Whim::None).await;
    let limits = LimitsPatch { max_concurrent_executions: Some(Some(1)), ..LimitsPatch::default() };
    let patch = TenantPatch { limits, ..TenantPatch::default() };
    office.app.tenancy.update_tenant(&local(), patch).await.unwrap();
    office.store.hold_ends(true);
    for _ in 0..3 {
        let (run, _) = office.done(office.request()).await;
        assert_eq!(run.status, RunStatus::Completed);
    }
    office.store.hold_ends(false);
    office.node.leave().await;
}

/// Row 1.5.
#[tokio::test(flavor = "multi_thread")]
async fn the_system_prompt_has_only_the_parts_that_are_wanted() {
    let office = Office::open(Whim::None).await;
    let (_, plain) = office.done(office.request()).await;
    assert_eq!(plain.system_prompt, "");

    let patch = TenantPatch {
        system_prompt: Some("敬語で。".to_owned()),
        workspace_enabled: Some(true),
        ..TenantPatch::default()
    };
    office.app.tenancy.update_tenant(&local(), patch).await.unwrap();
    let folder = office.app.executions.workspace_folder(&office.conversation).await.unwrap();
    std::fs::write(folder.join("資料.txt"), "x").unwrap();
    let content = SkillContent { content: "# 集計".to_owned(), ..SkillContent::default() };
    office.app.executions.create_skill(&local(), "count".to_owned(), content).await.unwrap();
    let request = NewExecution { preferred_skills: vec!["count".to_owned()], ..office.request() };
    let (_, whole) = office.done(request).await;
    let prompt = &whole.system_prompt;
    assert!(prompt.starts_with("敬語で。"), "{prompt}");
    assert!(prompt.contains(folder.to_str().unwrap()) && prompt.contains("資料.txt"), "{prompt}");
    assert!(prompt.contains("count"), "{prompt}");
    assert_eq!(whole.folder, folder);
    assert_eq!(whole.skills[0].content, "# 集計");
    office.node.leave().await;
}

/// Rows 1.6, 1.7.
#[tokio::test(flavor = "multi_thread")]
async fn the_engine_reaches_the_active_servers_and_sees_no_headers_of_theirs() {
    let office = Office::open(Whim::None).await;
    office.server("docs", "Bearer ${docs}", ActiveStatus::Active).await;
    office.server("plain", "fixed", ActiveStatus::Active).await;
    office.server("off", "Bearer ${other}", ActiveStatus::Inactive).await;
    // A tenant's own may be at public addresses only.
    let inside = ServerPatch {
        name: Some("inside".to_owned()),
        kind: Some(ServerKind::Http),
        url: Some("http://127.0.0.1:9/mcp".to_owned()),
        ..ServerPatch::default()
    };
    office
        .app
        .executions
        .create_server(&KeyScope::Tenant(local()), &local(), inside)
        .await
        .unwrap();
    let missing = office.app.executions.execute(&local(), office.request()).await.unwrap_err();
    assert!(matches!(&missing, AppError::MissingToken(text) if text.contains("docs")), "{missing}");
    assert!(office.clerk.orders.lock().unwrap().is_empty(), "nothing was started");

    let tokens = [("docs".to_owned(), "秘".to_owned())].into();
    let (run, order) = office.done(NewExecution { tokens, ..office.request() }).await;
    let names: Vec<_> = order.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["docs", "plain"]);
    for server in &order.servers {
        let McpServerTransport::Http { url } = &server.transport else { panic!("{}", server.name) };
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        let key = server.headers["Authorization"].as_str();
        assert!(key.starts_with("Bearer ") && !key.contains('秘'), "{key}");
    }
    let page =
        office.app.runtime.store().read(&local(), &run.stream(), 0, usize::MAX).await.unwrap();
    let warned = page.chunks.iter().flat_map(|chunk| chunk.events()).any(|event| {
        event.kind == "warning"
            && event.data.contains("MCP_SERVER_UNAVAILABLE")
            && event.data.contains("inside")
    });
    assert!(warned, "who is left out is told of");
    assert!(!serde_json::to_string(&run).unwrap().contains('秘'));
    office.node.leave().await;
}

/// Rows 1.4, 1.9.
#[tokio::test(flavor = "multi_thread")]
async fn the_engine_is_told_model_environment_and_session() {
    let office = Office::open(Whim::None).await;
    let (_, first) = office.done(office.request()).await;
    assert_eq!(first.prompt, "頼む");
    assert_eq!((first.model.model_name.as_str(), first.resume.as_deref()), ("sonnet-x", None));
    assert_eq!(first.subagent_model.as_deref(), Some("haiku-x"), "the alias is resolved");
    assert_eq!(first.aliases["opus"], "opus-env");
    for (name, value) in [
        ("ANTHROPIC_API_KEY", "鍵"),
        ("ANTHROPIC_MODEL", "sonnet-x"),
        ("CLAUDE_CODE_USE_BEDROCK", "1"),
        ("AWS_REGION", "us-east-1"),
    ] {
        assert_eq!(first.env.get(name).map(String::as_str), Some(value), "{name}");
    }
    let (_, second) = office.done(office.request()).await;
    assert_eq!(second.resume.as_deref(), Some("s1"));
    assert_eq!(second.home, first.home, "it belongs to the conversation");
    let other = NewExecution { model_id: Some("light".parse().unwrap()), ..office.request() };
    assert_eq!(office.done(other).await.1.model.model_name, "haiku-x");
    office.node.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_missing_is_told_before_anything_starts() {
    let office = Office::open(Whim::None).await;
    let request = NewExecution { model_id: Some("absent".parse().unwrap()), ..office.request() };
    let refused = office.app.executions.execute(&local(), request).await.unwrap_err();
    assert!(matches!(&refused, AppError::NoEngine(text) if text.contains("not here")), "{refused}");
    let open = office.app.runtime.list_runs(&local(), None, None, 10).await.unwrap().0;
    assert!(open.is_empty());
    office.node.leave().await;
}

/// Rows 1.32, 1.33.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_panics_is_an_internal_error_that_says_nothing_of_it() {
    let office = Office::open(Whim::Panic).await;
    let (run, _) = office.done(office.request()).await;
    assert_eq!(run.status, RunStatus::Failed);
    let error = run.error.unwrap();
    assert_eq!(error.code, "INTERNAL_ERROR");
    assert!(!error.message.contains("as the test wants"), "{}", error.message);
    assert_eq!(run.execution.unwrap().usage.input_tokens, 9, "what was spent is billed");
    let conversation =
        office.app.executions.conversation(&local(), &office.conversation).await.unwrap().value;
    assert_eq!((conversation.turns, conversation.session_id), (0, None));
    // It is free again.
    office.app.executions.execute(&local(), office.request()).await.unwrap();
    office.node.leave().await;
}
