//! A declared agent whose process died comes back as another one, while others clear up after it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_app::{App, AppOptions};
use shikiri_model::ids::{NodeId, TenantId};
use shikiri_model::lane::{CallerIdentity, CallerOrigin};
use shikiri_model::lease::LeaseGuard;
use shikiri_runtime::RuntimeOptions;
use shikiri_runtime::run::{NewRun, WorkerNode};
use shikiri_store::StoreExt;
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

use super::world::{Pages, app_with_pages};
use crate::flaky::Flaky;

const DEAD: &str = "nod_dead";

fn phoenix(pid: u32, node: Option<NodeId>) -> CallerIdentity {
    let way = CallerOrigin::Process { pid, started_ms: 1, declared: Some("phoenix".to_owned()) };
    CallerIdentity { node, ..CallerIdentity::of(&way, "x") }
}

async fn ask(app: &App, who: &CallerIdentity) -> Value {
    let new = NewRun {
        agent: "ask_chatgpt_web".into(),
        input: json!({ "question": "問" }),
        idempotency_key: None,
        origin: Some(json!({ "lane": who, "connection": "con_1" })),
    };
    let run = app.runtime.start_run(&TenantId::local(), new).await.unwrap().run;
    let mut watch = app.runtime.watch(&TenantId::local(), run.stream(), 0).await.unwrap();
    while watch.next().await.unwrap().is_some() {}
    let view = app.runtime.run(&TenantId::local(), &run.id).await.unwrap();
    view.run.result.unwrap_or_else(|| panic!("{:?}", view.run.error))
}

struct World {
    app: App,
    node: WorkerNode,
    store: Arc<Flaky>,
    /// After what uses it.
    folder: TempDir,
}

impl World {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.db");
        let store = SqliteStore::open(&file, SqliteOptions::default()).unwrap();
        let store = Flaky::over(Arc::new(store));
        let options = AppOptions {
            runtime: RuntimeOptions {
                data: Some(folder.path().to_owned()),
                ..RuntimeOptions::default()
            },
            ..AppOptions::default()
        };
        let app = app_with_pages(store.clone(), options, Pages::new(10));
        app.tenancy.ensure_local_tenant().await.unwrap();
        let node = app.start_worker();
        node.joined().await;
        Self { app, node, store, folder }
    }

    /// Asks as a process of another node, which dies then.
    async fn asked_and_died(&self) -> Value {
        ask(&self.app, &phoenix(1, Some(DEAD.parse().unwrap()))).await
    }

    async fn hold_lease_of_the_dead(&self, owner: &str) -> LeaseGuard {
        let name = format!("node/{DEAD}");
        self.store.try_acquire(&name, owner, Duration::from_secs(60)).await.unwrap().guard()
    }

    async fn assert_has_it_back(self, first: &Value) {
        let again = ask(&self.app, &phoenix(2, None)).await;
        assert_eq!((&again["url"], &again["lane"]), (&first["url"], &json!("phoenix-2")));
        self.node.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_former_process_is_being_buried_has_its_chat_back() {
    let world = World::start().await;
    let lease = world.hold_lease_of_the_dead(DEAD).await;
    let sign = world.folder.path().join("nodes").join(DEAD);
    std::fs::write(&sign, lease.fence.to_string()).unwrap();
    let first = world.asked_and_died().await;
    world.store.bury_after_look(lease, sign);
    world.assert_has_it_back(&first).await;
}

/// The sweeper of a node has its lease meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_former_process_is_being_swept_has_its_chat_back() {
    let world = World::start().await;
    let first = world.asked_and_died().await;
    world.hold_lease_of_the_dead("sweep").await;
    world.assert_has_it_back(&first).await;
}
