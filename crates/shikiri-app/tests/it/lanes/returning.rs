//! A declared agent whose process died comes back as another one, while others clear up after it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_app::run::{NewRun, Node};
use shikiri_app::{App, AppOptions, lane};
use shikiri_model::ids::{NodeId, TenantId};
use shikiri_model::lane::{Identity, Way};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_store::{Store, StoreExt};

use super::world::Pages;
use crate::flaky::Flaky;

fn phoenix(pid: u32, node: Option<NodeId>) -> Identity {
    let way = Way::Process { pid, started_ms: 1, declared: Some("phoenix".to_owned()) };
    Identity { node, ..Identity::of(&way, "x") }
}

async fn ask(app: &App, who: &Identity) -> Value {
    let new = NewRun {
        agent: "ask_chatgpt_web".into(),
        input: json!({ "question": "問" }),
        idempotency_key: None,
        origin: Some(json!({ "lane": who, "connection": "con_1" })),
    };
    let run = app.start_run(&TenantId::local(), new).await.unwrap().run;
    let mut watch = app.watch(&TenantId::local(), run.stream(), 0).await.unwrap();
    while watch.next().await.unwrap().is_some() {}
    let view = app.run(&TenantId::local(), &run.id).await.unwrap();
    view.run.result.unwrap_or_else(|| panic!("{:?}", view.run.error))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_former_process_is_being_buried_has_its_chat_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.db");
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open(&file, SqliteOptions::default()).unwrap());
    let flaky = Flaky::over(Arc::clone(&store));
    let options = AppOptions { data: Some(folder.path().to_owned()), ..AppOptions::default() };
    let app = App::new(flaky.clone(), lane::agents(), options).with_pages(Pages::new(10));
    app.ensure_local_tenant().await.unwrap();
    let node = Node::start(app.clone());
    node.joined().await;

    let dead: NodeId = "nod_dead".parse().unwrap();
    let lease = store.try_acquire("node/nod_dead", "nod_dead", Duration::from_secs(60)).await;
    let lease = lease.unwrap().guard();
    let sign = folder.path().join("nodes/nod_dead");
    std::fs::write(&sign, lease.fence.to_string()).unwrap();
    let first = ask(&app, &phoenix(1, Some(dead))).await;
    flaky.bury_after_look(lease, sign);
    let again = ask(&app, &phoenix(2, None)).await;
    assert_eq!((&again["url"], &again["lane"]), (&first["url"], &json!("phoenix-2")));
    node.leave().await;
}
