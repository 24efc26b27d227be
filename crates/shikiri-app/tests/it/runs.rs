//! Starting, following, cancelling runs, and who carries them.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::ids::TenantId;
use shikiri_model::run::{QuestionAnswer, RunStatus, StatusCounts};
use shikiri_runtime::AppError;
use shikiri_runtime::run::{AgentError, NewRun, RunView, UnknownStepPolicy};
use shikiri_testkit::TestStore;

use crate::world::{LEASE, Tally, World, agent};

#[tokio::test]
async fn a_run_is_carried_and_its_events_tell_its_story() {
    let echo = agent("echo", |context, input| async move {
        context.progress(1.0, 2.0, "半分").await;
        context.partial(&json!("first half")).await;
        let text = input["text"].clone();
        let value = context
            .step("shout", UnknownStepPolicy::Retry, async move { Ok::<_, AgentError>(text) })
            .await?;
        Ok(value)
    });
    let world = World::new(vec![echo]).await;
    let _node = world.node();
    let run = world.start("echo", json!({ "text": "やあ" })).await;
    let end = world.end_of(&run).await;
    assert_eq!(end.run.result, Some(json!("やあ")));
    assert_eq!(end.progress.unwrap()["message"], json!("半分"));
    assert_eq!(
        world.story_of(&run).await,
        ["queued", "started", "progress", "partial", "step_started", "step_completed", "result"]
    );
}

#[tokio::test]
async fn the_same_idempotency_key_gives_the_same_run_and_refuses_another_input() {
    let world = World::new(vec![agent("echo", |_, input| async move { Ok(input) })]).await;
    let start = |input| {
        let idempotency_key = Some("注文-1".to_owned());
        let new = NewRun { agent: "echo".into(), input, idempotency_key, origin: None };
        let app = world.app.clone();
        async move { app.runtime.start_run(&TenantId::local(), new).await }
    };
    let first = start(json!(1)).await.unwrap().run;
    let second = start(json!(1)).await.unwrap().run;
    assert_eq!(first.id, second.id);
    let refused = start(json!(2)).await.unwrap_err();
    let AppError::KeyReused { run } = refused else { panic!("{refused}") };
    assert_eq!(run, first.id.as_str());
}

#[tokio::test]
async fn who_asked_for_a_run_is_kept_with_it_and_told() {
    let world = World::new(vec![agent("echo", |_, input| async move { Ok(input) })]).await;
    let origin = json!({ "door": "mcp", "principal": "key_1", "tool_use_id": "toolu_1" });
    let (agent, input, idempotency_key) = ("echo".to_owned(), json!({}), None);
    let new = NewRun { agent, input, idempotency_key, origin: Some(origin.clone()) };
    let run = world.app.runtime.start_run(&TenantId::local(), new).await.unwrap().run;
    assert_eq!(run.origin, Some(origin.clone()));
    assert_eq!(world.events_of(&run.id).await[0].1["origin"], origin);
}

#[tokio::test]
async fn unknown_agents_and_refused_inputs_start_nothing() {
    let world = World::new(shikiri_agents::samples()).await;
    let tenant = TenantId::local();
    for (agent, input, field) in [
        ("absent", json!({}), "agent"),
        ("long_running_agent", json!({ "steps": 0 }), "input"),
        ("long_running_agent", json!({ "step": 1 }), "input"),
    ] {
        let new = NewRun { agent: agent.into(), input, idempotency_key: None, origin: None };
        match world.app.runtime.start_run(&tenant, new).await {
            Err(AppError::Invalid { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{other:?}"),
        }
    }
    assert!(world.app.runtime.list_runs(&tenant, None, None, 10).await.unwrap().0.is_empty());
}

#[tokio::test]
async fn a_running_run_is_asked_to_stop_and_stops() {
    let tally = Tally::default();
    let seen = tally.clone();
    let patient = agent("patient", move |context, _| {
        let seen = seen.clone();
        async move {
            context.progress(0.0, 1.0, "waiting to be stopped").await;
            context.cancelled().await;
            let _ = seen.mark("cleaned up");
            Err(AgentError::new("STOPPED", "as asked"))
        }
    });
    let world = World::new(vec![patient]).await;
    let _node = world.node();
    let run = world.start("patient", json!({})).await;
    world.until(&run, |view| view.progress.is_some()).await;
    world.app.runtime.cancel_run(&TenantId::local(), &run).await.unwrap();
    let end = world.end_of(&run).await;
    assert_eq!(end.run.status, RunStatus::Cancelled);
    assert_eq!(tally.list(), ["cleaned up"]);
    let again = world.app.runtime.cancel_run(&TenantId::local(), &run).await;
    assert!(matches!(again, Err(AppError::NotNow(_))));
}

#[tokio::test]
async fn a_panicking_agent_fails_its_run_and_harms_no_other() {
    let bad = agent("bad", |_, _| async { panic!("boom") });
    let good = agent("good", |_, input| async move { Ok(input) });
    let world = World::new(vec![bad, good]).await;
    let _node = world.node();
    let bad = world.start("bad", json!({})).await;
    let good = world.start("good", json!({})).await;
    let end = world.end_of(&bad).await;
    assert_eq!(end.run.error.unwrap().code, "INTERNAL_ERROR");
    assert_eq!(world.end_of(&good).await.run.status, RunStatus::Completed);
}

#[tokio::test]
async fn another_node_takes_over_when_the_lease_lapses_and_the_lost_one_writes_nothing() {
    let tally = Tally::default();
    let seen = tally.clone();
    let slow = agent("slow", move |context, _| {
        let seen = seen.clone();
        async move {
            let first = seen.clone();
            context
                .step("first", UnknownStepPolicy::Stop, async move { first.mark("first") })
                .await?;
            // The first attempt never gets past this; the second finds it in the journal as
            // unknown and does it again.
            let second = async move {
                if seen.mark("second").unwrap() == 2 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, AgentError>(())
            };
            context.step("second", UnknownStepPolicy::Retry, second).await?;
            Ok(json!("done"))
        }
    });
    let world = World::new(vec![slow]).await;
    let _first = world.node();
    let run = world.start("slow", json!({})).await;
    let carried = world.until_status(&run, RunStatus::Running).await;
    while tally.list().len() < 2 {
        tokio::task::yield_now().await;
    }
    // The node's lease runs out before it can renew it: as after a long pause.
    world.clock.advance(LEASE + Duration::from_secs(1));
    let _second = world.node();
    let end = world.end_of(&run).await;
    assert_eq!(end.run.result, Some(json!("done")));
    assert_ne!(carried.run.node, None);
    assert_eq!(tally.list(), ["first", "second", "second"]);
    let story = world.story_of(&run).await;
    assert_eq!(story.iter().filter(|kind| *kind == "result").count(), 1);
}

#[tokio::test]
async fn a_node_that_leaves_hands_its_runs_back_at_once() {
    let asked = agent("asked", |context, _| async move {
        context.progress(0.0, 1.0, "here").await;
        std::future::pending::<()>().await;
        Ok(json!(null))
    });
    let world = World::new(vec![asked]).await;
    let node = world.node();
    let run = world.start("asked", json!({})).await;
    world.until(&run, |view| view.progress.is_some()).await;
    node.leave().await;
    let view = world.app.runtime.run(&TenantId::local(), &run).await.unwrap();
    assert_eq!(view.run.status, RunStatus::Queued);
    assert!(world.app.runtime.store().lapsed_leases("node/").await.unwrap().is_empty());
}

#[tokio::test]
async fn runs_of_another_tenant_are_not_there() {
    let world = World::new(vec![agent("echo", |_, input| async move { Ok(input) })]).await;
    let other: TenantId = "other".parse().unwrap();
    let patch = shikiri_tenancy::tenants::TenantPatch::default();
    world.app.tenancy.create_tenant(Some(other.clone()), patch).await.unwrap();
    let run = world.start("echo", json!({})).await;
    let missing = |error| matches!(error, AppError::NotFound { kind: "run", .. });
    assert!(missing(world.app.runtime.run(&other, &run).await.unwrap_err()));
    assert!(missing(world.app.runtime.cancel_run(&other, &run).await.unwrap_err()));
    assert!(world.app.runtime.list_runs(&other, None, None, 10).await.unwrap().0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_agent_is_left_for_a_node_that_knows_it() {
    let known = agent("new", |_, input| async move { Ok(input) });
    let world = World::new(vec![known.clone()]).await;
    let old = world.upgraded(vec![]).start_worker();
    let run = world.start("new", json!(7)).await;
    world.until(&run, |view| view.run.losses > 0).await;
    let _new = world.node();
    // The pauses between offers grow, and at one of them the node that knows it is first.
    let time_passes = async {
        loop {
            world.clock.jump(1_000);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let end = tokio::select! {
        end = world.end_of(&run) => end,
        () = time_passes => unreachable!("time never stops passing"),
    };
    assert_eq!(end.run.result, Some(json!(7)));
    old.leave().await;
}

#[tokio::test]
async fn a_lost_nodes_lease_is_taken_before_its_runs_are_put_back() {
    let stuck = agent("stuck", |context, _| async move {
        context.progress(0.0, 1.0, "here").await;
        std::future::pending().await
    });
    let world = World::new(vec![stuck]).await;
    let _first = world.node();
    let run = world.start("stuck", json!({})).await;
    // The record is read before the progress: it may be older.
    let carried = |view: &RunView| view.progress.is_some() && view.run.node.is_some();
    let node = world.until(&run, carried).await.run.node.unwrap();
    world.clock.advance(LEASE + Duration::from_secs(1));
    let _second = world.node();
    world.until(&run, |view| view.run.starts > 1).await;
    // Its lease is gone with the node, and its control stream was never made.
    let name = format!("node/{node}");
    while world.app.runtime.store().lease(&name).await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    let control = shikiri_model::event::StreamId::new(&name);
    assert_eq!(
        world.app.runtime.store().stream(&TenantId::system(), &control).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn runs_are_counted_by_status_and_their_open_questions_found() {
    for store in TestStore::each("counts of runs").await {
        let ask = agent("ask", |context, _| async move {
            let wait = Some(Duration::from_secs(60));
            let answer = context.ask_human(json!({}), "続けますか", wait).await;
            Ok(answer.content)
        });
        let fail =
            agent("fail", |_, _| async move { Err::<Value, _>(AgentError::new("NO", "無理")) });
        let world = World::on(store, vec![ask, fail]).await;
        let _node = world.node();
        let local = TenantId::local();
        let first = world.start("ask", json!({})).await;
        world.clock.advance(Duration::from_millis(1));
        let second = world.start("ask", json!({})).await;
        let failed = world.start("fail", json!({})).await;
        world.end_of(&failed).await;
        for run in [&first, &second] {
            world.until_status(run, RunStatus::Waiting).await;
        }
        let runtime = &world.app.runtime;
        let counts = runtime.count_runs_by_status(&local).await.unwrap();
        assert_eq!((counts.agents.waiting, counts.agents.failed, counts.agents.open()), (2, 1, 2));
        assert_eq!(counts.executions, StatusCounts::default());
        let newest = runtime.newest_failed_runs(&local, 5).await.unwrap();
        assert_eq!(newest.iter().map(|run| &run.value.id).collect::<Vec<_>>(), [&failed]);

        let open = runtime.open_questions(&local).await.unwrap();
        let told: Vec<_> =
            open.iter().map(|one| (&one.run, one.agent.as_str(), &*one.question.message)).collect();
        assert_eq!(told, [(&first, "ask", "続けますか"), (&second, "ask", "続けますか")]);
        world.answer(&first, QuestionAnswer::accept(json!({}))).await;
        world.end_of(&first).await;
        let open = runtime.open_questions(&local).await.unwrap();
        assert_eq!(open.iter().map(|one| &one.run).collect::<Vec<_>>(), [&second]);
        let counts = runtime.count_runs_by_status(&local).await.unwrap();
        assert_eq!((counts.agents.waiting, counts.agents.completed), (1, 1));

        let nobody = runtime.count_runs_by_status(&"no".parse().unwrap()).await;
        assert!(matches!(nobody, Err(AppError::NotFound { kind: "tenant", .. })));
    }
}
