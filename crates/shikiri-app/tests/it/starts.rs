//! Where a run begins: at once in the process that was asked, or through the queue.

use serde_json::json;
use shikiri_model::ids::TenantId;
use shikiri_model::run::RunStatus;
use shikiri_runtime::run::NewRun;

use crate::world::{LEASE, World, agent};

fn quick() -> Vec<std::sync::Arc<dyn shikiri_runtime::run::DurableAgent>> {
    vec![agent("quick", |context, input| async move {
        context.progress(1.0, 1.0, "done").await;
        Ok(input)
    })]
}

fn new() -> NewRun {
    NewRun { agent: "quick".into(), input: json!({}), idempotency_key: None, origin: None }
}

/// The node has joined once it has carried something.
async fn joined(world: &World) {
    let first = world.start("quick", json!({})).await;
    world.end_of(&first).await;
}

#[tokio::test]
async fn where_a_node_has_room_a_run_starts_without_the_queue() {
    let world = World::new(quick()).await;
    let _node = world.node();
    joined(&world).await;
    let started = world.app.runtime.start_run(&TenantId::local(), new()).await.unwrap();
    assert_ne!(started.run.status, RunStatus::Queued);
    world.end_of(&started.run.id).await;
    let story = world.story_of(&started.run.id).await;
    assert_eq!(story, ["queued", "started", "progress", "result"]);
}

#[tokio::test]
async fn without_a_node_a_run_waits_in_the_queue() {
    let world = World::new(quick()).await;
    let started = world.app.runtime.start_run(&TenantId::local(), new()).await.unwrap();
    assert_eq!(started.run.status, RunStatus::Queued);
    let _node = world.node();
    assert_eq!(world.end_of(&started.run.id).await.run.status, RunStatus::Completed);
}

#[tokio::test]
async fn a_node_that_lost_its_lease_starts_nothing_and_the_run_is_queued() {
    let world = World::new(quick()).await;
    let _node = world.node();
    joined(&world).await;
    world.clock.advance(LEASE + std::time::Duration::from_secs(1));
    let started = world.app.runtime.start_run(&TenantId::local(), new()).await.unwrap();
    assert_eq!(started.run.status, RunStatus::Queued);
    assert_eq!(started.run.node, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_caller_left_while_it_was_started_is_carried_all_the_same() {
    let world = World::new(quick()).await;
    let _node = world.node();
    joined(&world).await;
    let tenant = TenantId::local();
    for patience in 0..200_u64 {
        let start = world.app.runtime.start_run(&tenant, new());
        // At first in small steps, then in larger ones: slow machines get somewhere, too.
        let left = std::time::Duration::from_micros(patience * patience / 2);
        let _ = tokio::time::timeout(left, start).await;
    }
    let (runs, _) = world.app.runtime.list_runs(&tenant, None, None, 300).await.unwrap();
    assert!(runs.len() > 1, "no run ever got so far");
    for run in runs {
        assert_eq!(world.end_of(&run.value.id).await.run.status, RunStatus::Completed);
    }
}
