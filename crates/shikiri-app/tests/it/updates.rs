//! What a run is given while it works: kept, seen once, and seen the same in every replay.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::ids::TenantId;
use shikiri_model::run::{QuestionAnswer, RunStatus};
use shikiri_runtime::AppError;
use shikiri_runtime::run::{AgentError, UnknownStepPolicy};

use crate::flaky::{Flaky, Refuse};
use crate::world::{LEASE, Tally, World, agent};

#[tokio::test]
async fn updates_are_seen_once_in_order_and_wake_no_one() {
    let looks = agent("looks", |context, _| async move {
        let before = context.updates().await;
        context.ask_human(json!({}), "?", None).await;
        Ok(json!([before, context.updates().await, context.updates().await]))
    });
    let world = World::new(vec![looks]).await;
    let run = world.start("looks", json!({})).await;
    let queued = world.update(&run, json!(1)).await.unwrap();
    assert_eq!((queued.run.status, queued.run.inputs), (RunStatus::Queued, vec![json!(1)]));
    let _node = world.node();
    world.until_status(&run, RunStatus::Waiting).await;
    world.update(&run, json!({ "二": 2 })).await.unwrap();
    let waiting = world.update(&run, json!(null)).await.unwrap();
    assert_eq!((waiting.run.status, waiting.run.starts), (RunStatus::Waiting, 1));
    world.answer(&run, QuestionAnswer::accept(json!(null))).await;
    // Had the first look been done again instead of replayed, it would have seen all three.
    assert_eq!(world.end_of(&run).await.run.result, Some(json!([[1], [{ "二": 2 }, null], []])));
    let events = world.events_of(&run).await;
    let taken: Vec<_> = events.iter().filter(|(kind, _)| kind == "inputs_taken").collect();
    assert_eq!(taken.len(), 3, "what was played back is not told again");
    assert_eq!(taken[1].1, json!({ "index": 2, "from": 1, "inputs": [{ "二": 2 }, null] }));
    let story: Vec<_> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(story[..5], ["queued", "input", "started", "inputs_taken", "question"]);
}

#[tokio::test]
async fn a_look_that_found_nothing_finds_nothing_in_the_replay() {
    let tally = Tally::default();
    let seen = tally.clone();
    let looks = agent("looks", move |context, _| {
        let seen = seen.clone();
        async move {
            let before = context.updates().await;
            let hang_once = async move {
                if seen.mark("step").unwrap() == 1 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, AgentError>(())
            };
            context.step("hang once", UnknownStepPolicy::Retry, hang_once).await?;
            Ok(json!([before, context.updates().await]))
        }
    });
    let world = World::new(vec![looks]).await;
    let _first = world.node();
    let run = world.start("looks", json!({})).await;
    while tally.list().is_empty() {
        tokio::task::yield_now().await;
    }
    world.update(&run, json!("new")).await.unwrap();
    world.clock.advance(LEASE + Duration::from_secs(1));
    let _second = world.node();
    assert_eq!(world.end_of(&run).await.run.result, Some(json!([[], ["new"]])));
    assert_eq!(tally.list().len(), 2, "it was replayed");
}

#[tokio::test]
async fn joined_looks_share_out_what_came() {
    let looks = agent("looks", |context, _| async move {
        let (a, b) = tokio::join!(context.updates(), context.updates());
        context.ask_human(json!({}), "?", None).await;
        Ok(json!([a, b, context.updates().await]))
    });
    let world = World::new(vec![looks.clone()]).await;
    let run = world.start("looks", json!({})).await;
    for n in 0..5 {
        world.update(&run, json!(n)).await.unwrap();
    }
    let slow = Flaky::over(Arc::clone(world.app.runtime.store()));
    let _node = (App::new(slow, vec![looks], world.app.options().clone())).start_worker();
    world.until_status(&run, RunStatus::Waiting).await;
    world.update(&run, json!("late")).await.unwrap();
    world.answer(&run, QuestionAnswer::accept(json!(null))).await;
    let result = world.end_of(&run).await.run.result.unwrap();
    let first: Vec<Value> =
        [&result[0], &result[1]].map(|v| v.as_array().unwrap().clone()).concat();
    assert_eq!((json!(first), &result[2]), (json!([0, 1, 2, 3, 4]), &json!(["late"])));
}

/// A look that was not written is done again, with what has come since: nothing can have followed
/// from it.
#[tokio::test]
async fn what_a_lost_look_saw_is_seen_again() {
    let tally = Tally::default();
    let seen = tally.clone();
    let looks = agent("looks", move |context, _| {
        let seen = seen.clone();
        async move {
            let updates = context.updates().await;
            if seen.mark(json!(updates).to_string()).unwrap() == 1 {
                std::future::pending::<()>().await;
            }
            Ok(json!(updates))
        }
    });
    let world = World::new(vec![looks.clone()]).await;
    let flaky = Flaky::over(Arc::clone(world.app.runtime.store()));
    let run = world.start("looks", json!({})).await;
    world.update(&run, json!(1)).await.unwrap();
    flaky.refuse(Refuse::Events);
    let app = App::new(flaky.clone(), vec![looks], world.app.options().clone());
    let node = app.start_worker();
    while tally.list().is_empty() {
        tokio::task::yield_now().await;
    }
    node.leave().await;
    world.update(&run, json!(2)).await.unwrap();
    let _node = world.node();
    assert_eq!(world.end_of(&run).await.run.result, Some(json!([1, 2])));
    assert_eq!(tally.list(), ["[1]", "[1,2]"]);
}

#[tokio::test]
async fn an_update_that_cannot_be_taken_changes_nothing() {
    let ends = agent("ends", |_, _| async { Ok(json!(null)) });
    let world = World::new(vec![ends.clone()]).await;
    let run = world.start("ends", json!({})).await;
    let invalid = |error: AppError, says: &str| match error {
        AppError::Invalid { field: "input", reason } => assert!(reason.contains(says), "{reason}"),
        other => panic!("{other:?}"),
    };
    invalid(world.update(&run, json!("no")).await.unwrap_err(), "not that");
    let large = json!("x".repeat(64 * 1024));
    invalid(world.update(&run, large).await.unwrap_err(), "at most 65536");
    let elsewhere = world.upgraded(Vec::new());
    let refused = elsewhere.runtime.update_run(&TenantId::local(), &run, json!(1)).await;
    invalid(refused.unwrap_err(), "no agent \"ends\"");
    let stranger: TenantId = "stranger".parse().unwrap();
    let refused = world.app.runtime.update_run(&stranger, &run, json!(1)).await;
    assert!(matches!(refused, Err(AppError::NotFound { kind: "run", .. })), "{refused:?}");
    assert_eq!(world.story_of(&run).await, ["queued"]);

    for _ in 0..100 {
        world.update(&run, json!(1)).await.unwrap();
    }
    let refused = world.update(&run, json!(1)).await;
    assert!(matches!(refused, Err(AppError::NotNow(_))), "{refused:?}");
    let _node = world.node();
    world.end_of(&run).await;
    let refused = world.update(&run, json!(1)).await;
    assert!(matches!(&refused, Err(AppError::NotNow(why)) if why.contains("ended")), "{refused:?}");
}

#[tokio::test]
async fn an_agent_that_says_nothing_of_updates_takes_none() {
    struct Plain;
    #[async_trait::async_trait]
    impl shikiri_runtime::run::DurableAgent for Plain {
        fn name(&self) -> &'static str {
            "plain"
        }
        fn description(&self) -> &'static str {
            "Says nothing of updates"
        }
        fn input_schema(&self) -> Value {
            json!({ "type": "object" })
        }
        fn check(&self, _: &Value) -> Result<(), String> {
            Ok(())
        }
        async fn run(
            &self,
            _: shikiri_runtime::run::RunContext,
            _: Value,
        ) -> Result<Value, AgentError> {
            Ok(json!(null))
        }
    }
    let world = World::new(vec![Arc::new(Plain)]).await;
    let run = world.start("plain", json!({})).await;
    let refused = world.update(&run, json!({})).await.unwrap_err().to_string();
    assert_eq!(refused, "input: this agent takes no updates");
    let agent = world.app.runtime.agent("plain").unwrap();
    assert_eq!(
        (agent.title(), agent.update_schema(), agent.output_schema()),
        ("plain", None, None)
    );
}
