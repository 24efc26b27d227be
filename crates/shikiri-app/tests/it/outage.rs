//! The store goes away while a node executes a run, and the node keeps its lease: no other node
//! would look for the run, so the node itself must bring it to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use shikiri_app::App;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_runtime::run::{DurableAgent, NewRun, UnknownStepPolicy, WorkerNode};

use crate::flaky::{Flaky, Refuse};
use crate::world::{Tally, World, agent};

async fn carry(
    flaky: &Arc<Flaky>,
    world: &World,
    agent: Arc<dyn DurableAgent>,
) -> (WorkerNode, RunId) {
    let name = agent.name().to_owned();
    let app = App::new(flaky.clone(), vec![agent], world.app.options().clone());
    let node = app.start_worker();
    let new = NewRun { agent: name, input: json!({}), idempotency_key: None, origin: None };
    let run = app.runtime.start_run(&TenantId::local(), new).await.unwrap().run.id;
    (node, run)
}

#[tokio::test]
async fn a_run_whose_end_could_not_be_written_is_brought_to_it_later() {
    let world = World::new(Vec::new()).await;
    let (flaky, tally) = (Flaky::over(Arc::clone(world.app.runtime.store())), Tally::default());
    let (store, done, first) = (flaky.clone(), tally.clone(), Arc::new(AtomicBool::new(true)));
    let ends = agent("ends", move |context, _| {
        let (store, done, first) = (store.clone(), done.clone(), first.clone());
        async move {
            context.step("work", UnknownStepPolicy::Stop, async move { done.mark("work") }).await?;
            if first.swap(false, Ordering::SeqCst) {
                store.refuse(Refuse::Commits);
            }
            Ok(json!("done"))
        }
    });
    let (_node, run) = carry(&flaky, &world, ends).await;
    // The end itself, and the attempt to put the run back.
    flaky.until_refused(2).await;
    flaky.refuse(Refuse::Nothing);
    assert_eq!(world.end_of(&run).await.run.result, Some(json!("done")));
    assert_eq!(tally.list(), ["work"]);
}

#[tokio::test]
async fn an_attempt_that_was_given_up_writes_nothing_beside_the_next() {
    let world = World::new(Vec::new()).await;
    let flaky = Flaky::over(Arc::clone(world.app.runtime.store()));
    let (store, first) = (flaky.clone(), Arc::new(AtomicBool::new(true)));
    let tells = agent("tells", move |context, _| {
        let (store, first) = (store.clone(), first.clone());
        async move {
            context.progress(1.0, 2.0, "半分").await;
            if first.swap(false, Ordering::SeqCst) {
                store.until_refused(1).await;
                store.hide_time(true);
            }
            context.sleep(Duration::ZERO).await;
            Ok(json!(null))
        }
    });
    flaky.refuse(Refuse::Events);
    let (_node, run) = carry(&flaky, &world, tells).await;
    flaky.until_refused(1).await;
    // Long enough for whatever the first attempt left behind to try again.
    tokio::time::sleep(Duration::from_millis(300)).await;
    flaky.hide_time(false);
    // The second attempt tells the same progress, which is refused as well.
    world.until(&run, |view| view.run.starts == 2).await;
    flaky.until_refused(flaky.refused() + 1).await;
    flaky.refuse(Refuse::Nothing);
    world.end_of(&run).await;
    let story = world.story_of(&run).await;
    assert_eq!(story.iter().filter(|kind| *kind == "progress").count(), 1, "{story:?}");
}
