//! Removing a tenant takes everything with it and leaves nothing working.

use serde_json::json;
use shikiri_model::ids::{ModelId, TenantId};
use shikiri_model::models::Model;
use shikiri_model::record::{Document, RecordChange};
use shikiri_model::run::run_stream;
use shikiri_model::tenant::TenantStatus;
use shikiri_runtime::AppError;
use shikiri_runtime::run::NewRun;
use shikiri_store::Commit;
use shikiri_tenancy::keys::NewApiKey;
use shikiri_tenancy::tenants::TenantPatch;

use crate::world::{Tally, World, agent};

fn acme() -> TenantId {
    "acme".parse().unwrap()
}

fn new(name: &str) -> NewRun {
    NewRun { agent: name.into(), input: json!({}), idempotency_key: None, origin: None }
}

#[tokio::test]
async fn a_removed_tenant_leaves_no_run_no_event_and_no_key() {
    let tally = Tally::default();
    let seen = tally.clone();
    let busy = agent("busy", move |context, _| {
        let seen = seen.clone();
        async move {
            context.progress(0.0, 1.0, "働く").await;
            context.cancelled().await;
            // A last word, when its stream is gone already.
            context.progress(1.0, 1.0, "終").await;
            let _ = seen.mark("stopped");
            Ok(json!(null))
        }
    });
    let world = World::new(vec![busy]).await;
    world.app.tenancy.create_tenant(Some(acme()), TenantPatch::default()).await.unwrap();
    let (_, secret) = world.app.tenancy.create_key(&acme(), NewApiKey::named("鍵")).await.unwrap();
    let node = world.node();
    let run = world.app.runtime.start_run(&acme(), new("busy")).await.unwrap().run.id;
    let mut watch = world.app.runtime.watch(&acme(), run_stream(&run), 0).await.unwrap();
    while world.app.runtime.run(&acme(), &run).await.unwrap().progress.is_none() {
        watch.next().await.unwrap();
    }

    world.app.delete_tenant(&acme()).await.unwrap();

    assert!(matches!(world.app.runtime.tenant(&acme()).await, Err(AppError::NotFound { .. })));
    assert_eq!(world.app.tenancy.key_of(&secret).await.unwrap(), None);
    // The agent has stopped, and its late writes brought nothing back.
    node.leave().await;
    assert_eq!(world.app.runtime.store().stream(&acme(), &run_stream(&run)).await.unwrap(), None);
    world.app.tenancy.create_tenant(Some(acme()), TenantPatch::default()).await.unwrap();
    assert!(world.app.runtime.list_runs(&acme(), None, None, 10).await.unwrap().0.is_empty());
    assert!(world.app.tenancy.list_keys(&acme(), None, 10).await.unwrap().0.is_empty());
    assert!(matches!(world.app.delete_tenant(&TenantId::local()).await, Err(AppError::NotNow(_))));
}

#[tokio::test]
async fn a_tenant_is_removed_once_its_runs_have_ended() {
    let tally = Tally::default();
    let seen = tally.clone();
    let slow = agent("slow", move |context, _| {
        let seen = seen.clone();
        async move {
            context.progress(0.0, 1.0, "働く").await;
            context.cancelled().await;
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            let _ = seen.mark("stopped");
            Ok(json!(null))
        }
    });
    let world = World::new(vec![slow]).await;
    world.app.tenancy.create_tenant(Some(acme()), TenantPatch::default()).await.unwrap();
    let node = world.node();
    let run = world.app.runtime.start_run(&acme(), new("slow")).await.unwrap().run.id;
    let mut watch = world.app.runtime.watch(&acme(), run_stream(&run), 0).await.unwrap();
    while world.app.runtime.run(&acme(), &run).await.unwrap().progress.is_none() {
        watch.next().await.unwrap();
    }
    world.app.delete_tenant(&acme()).await.unwrap();
    assert_eq!(tally.list(), ["stopped"], "what it would still write is lost or left behind");
    node.leave().await;
}

#[tokio::test]
async fn nothing_is_made_for_an_inactive_tenant() {
    let world = World::new(vec![agent("echo", |_, input| async move { Ok(input) })]).await;
    world.app.tenancy.create_tenant(Some(acme()), TenantPatch::default()).await.unwrap();
    let inactive = TenantPatch { status: Some(TenantStatus::Inactive), ..TenantPatch::default() };
    world.app.tenancy.update_tenant(&acme(), inactive).await.unwrap();
    let refused = world.app.runtime.start_run(&acme(), new("echo")).await;
    assert!(matches!(refused, Err(AppError::Inactive { .. })));
    let refused = world.app.tenancy.create_key(&acme(), NewApiKey::named("鍵")).await;
    assert!(matches!(refused, Err(AppError::Inactive { .. })));
}

#[tokio::test]
async fn control_characters_in_an_idempotency_key_are_refused() {
    let world = World::new(vec![agent("echo", |_, input| async move { Ok(input) })]).await;
    for key in ["", "a\0b", "a\nb", &"長".repeat(201)] {
        let run = NewRun { idempotency_key: Some(key.into()), ..new("echo") };
        let refused = world.app.runtime.start_run(&TenantId::local(), run).await;
        assert!(
            matches!(refused, Err(AppError::Invalid { field: "idempotency_key", .. })),
            "{key:?}"
        );
    }
    let run = NewRun { idempotency_key: Some("長".repeat(200)), ..new("echo") };
    world.app.runtime.start_run(&TenantId::local(), run).await.unwrap();
}

#[tokio::test]
async fn a_store_from_before_there_were_models_gets_one_and_later_choices_stay() {
    let world = World::new(vec![]).await;
    let (app, local) = (&world.app, TenantId::local());
    let model_of = async || app.runtime.tenant(&local).await.unwrap().value.model_id;
    let set = async |model: Option<&str>| {
        let model_id = Some(model.map(str::to_owned));
        let patch = TenantPatch { model_id, ..TenantPatch::default() };
        app.tenancy.update_tenant(&local, patch).await.unwrap();
    };
    let forget_model = async || {
        let stored = app.tenancy.model(&ModelId::offline()).await.unwrap();
        let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
        app.runtime.store().commit(Commit::new().record(delete)).await.unwrap();
    };
    assert_eq!(model_of().await.as_deref(), Some("offline"));
    set(None).await;
    forget_model().await;
    app.tenancy.ensure_local_tenant().await.unwrap();
    assert_eq!(app.tenancy.model(&ModelId::offline()).await.unwrap().value, Model::offline());
    assert_eq!(model_of().await.as_deref(), Some("offline"));

    // What was taken away is not put back at every start.
    set(None).await;
    app.tenancy.ensure_local_tenant().await.unwrap();
    assert_eq!(model_of().await, None);
}
