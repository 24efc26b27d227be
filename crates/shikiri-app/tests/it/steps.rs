//! A step of a native turn counts as kept once it is in the store, and not before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde_json::json;
use shikiri_app::{App, AppOptions};
use shikiri_executions::conversations::ConversationPatch;
use shikiri_executions::execution::{
    Engine, EngineError, EngineRegistry, EngineSender, NewExecution, TurnRequest,
};
use shikiri_model::event::StreamId;
use shikiri_model::execution::{EngineFinish, EngineMessage, ExecutionUser};
use shikiri_model::ids::TenantId;
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::native::ExecutionLimits;
use shikiri_model::run::RunStatus;
use shikiri_runtime::RuntimeOptions;
use shikiri_store::Store as _;
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_tenancy::models::ModelPatch;
use shikiri_testkit::until;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::flaky::{Flaky, Refuse};

/// Keeps one step when it is told to, and then says that it has.
#[derive(Clone)]
struct Careful {
    begin: Arc<Semaphore>,
    has_kept: Arc<AtomicBool>,
}

#[async_trait]
impl Engine for Careful {
    fn kind(&self) -> EngineKind {
        EngineKind::Anthropic
    }

    async fn check(&self, _: &Model, _: &BTreeMap<String, String>) -> Result<(), EngineError> {
        Ok(())
    }

    fn is_native(&self) -> bool {
        true
    }

    async fn run(
        &self,
        _: TurnRequest,
        told: EngineSender,
        _: CancellationToken,
    ) -> Result<(), EngineError> {
        let _begun = self.begin.acquire().await;
        let delta = EngineMessage::TextDelta { text: "木".to_owned() };
        told.persist_step(json!({ "entry": "reply", "n": 1 }), vec![delta]).await?;
        self.has_kept.store(true, Ordering::SeqCst);
        told.send(EngineMessage::Finished(EngineFinish::default())).await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_not_kept_before_it_is_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let flaky = Flaky::over(Arc::new(store));
    let engine = Careful { begin: Arc::new(Semaphore::new(0)), has_kept: Arc::default() };
    let options = AppOptions {
        runtime: RuntimeOptions {
            data: Some(folder.path().to_owned()),
            ..RuntimeOptions::default()
        },
        ..AppOptions::default()
    };
    let app = App::new(flaky.clone(), vec![], options)
        .with_engines(EngineRegistry::new(vec![Arc::new(engine.clone())]));
    app.tenancy.ensure_local_tenant().await.unwrap();
    let node = app.start_worker();
    node.joined().await;
    let (local, model) = (TenantId::local(), "main".parse().unwrap());
    app.tenancy
        .create_model(Some(model), EngineKind::Anthropic, ModelPatch::default())
        .await
        .unwrap();
    let made =
        app.executions.create_conversation(&local, ConversationPatch::default()).await.unwrap();
    let request = NewExecution {
        conversation: made.value.id,
        user_input: "go".to_owned(),
        executor: ExecutionUser { user_id: "花子".to_owned(), name: None, email: None },
        tokens: BTreeMap::new(),
        preferred_skills: Vec::new(),
        model_id: Some("main".parse().unwrap()),
        idempotency_key: None,
        limits: ExecutionLimits::default(),
    };
    let run = app.executions.execute(&local, request).await.unwrap().value.id;
    let journal = StreamId::new(format!("journal/{run}"));

    flaky.refuse(Refuse::Events);
    let before = flaky.refused();
    engine.begin.add_permits(1);
    // It is tried again and again, so the engine has been waiting for a while.
    flaky.until_refused(before + 3).await;
    assert!(!engine.has_kept.load(Ordering::SeqCst), "the engine went on without its step");
    assert_eq!(flaky.stream(&local, &journal).await.unwrap(), None);

    flaky.refuse(Refuse::Nothing);
    let status = until("the execution ends", async || {
        let run = app.executions.execution(&local, &run).await.unwrap().value;
        run.status.is_terminal().then_some(run.status)
    })
    .await;
    assert_eq!(status, RunStatus::Completed);
    assert!(engine.has_kept.load(Ordering::SeqCst));
    let state = flaky.stream(&local, &journal).await.unwrap();
    assert!(state.is_some(), "the step is there");
    node.leave().await;
}
