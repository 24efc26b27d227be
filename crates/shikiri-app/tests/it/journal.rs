//! What an agent did is played back, not done again.

use std::time::Duration;

use serde_json::json;
use shikiri_model::ids::TenantId;
use shikiri_model::run::{AnswerAction, QuestionAnswer, QuestionKind, RunOutcome, RunStatus};
use shikiri_runtime::run::{AgentError, ModelLimits, UnknownStepPolicy};

use crate::world::{LEASE, Tally, World, agent};

fn travel(tally: &Tally) -> std::sync::Arc<dyn shikiri_runtime::run::DurableAgent> {
    let tally = tally.clone();
    agent("travel", move |context, _| {
        let tally = tally.clone();
        async move {
            let look = tally.clone();
            context.step("look", UnknownStepPolicy::Stop, async move { look.mark("look") }).await?;
            let answer =
                context.ask_human(json!({}), "予約しますか", Some(Duration::from_secs(60))).await;
            let booked = answer.accepted().is_some();
            if booked {
                context
                    .step("book", UnknownStepPolicy::Stop, async move { tally.mark("book") })
                    .await?;
            }
            Ok(json!({ "booked": booked, "action": answer.action }))
        }
    })
}

#[tokio::test]
async fn an_answer_wakes_the_run_and_committed_steps_are_not_done_again() {
    let tally = Tally::default();
    let world = World::new(vec![travel(&tally)]).await;
    let _node = world.node();
    let run = world.start("travel", json!({})).await;
    let waiting = world.until_status(&run, RunStatus::Waiting).await;
    let question = waiting.run.questions[0].id.clone();
    let answer = QuestionAnswer::accept(json!({ "confirm": true }));
    let tenant = TenantId::local();
    world.app.runtime.answer_run(&tenant, &run, &question, answer.clone()).await.unwrap();
    let end = world.end_of(&run).await;
    assert_eq!(end.run.result, Some(json!({ "booked": true, "action": "accept" })));
    assert_eq!(tally.list(), ["look", "book"]);
    assert!(world.app.runtime.answer_run(&tenant, &run, &question, answer).await.is_err());
}

#[tokio::test]
async fn no_answer_in_time_is_a_timeout_and_nothing_is_booked() {
    let tally = Tally::default();
    let world = World::new(vec![travel(&tally)]).await;
    let _node = world.node();
    let run = world.start("travel", json!({})).await;
    world.until_status(&run, RunStatus::Waiting).await;
    world.clock.advance(Duration::from_secs(10));
    world.clock.jump(51_000);
    let end = world.end_of(&run).await;
    assert_eq!(end.run.result, Some(json!({ "booked": false, "action": "timeout" })));
    assert_eq!(tally.list(), ["look"]);
}

#[tokio::test]
async fn a_sleeping_run_goes_on_when_its_time_has_come() {
    let sleepy = agent("sleepy", |context, _| async move {
        context.sleep(Duration::from_secs(3_600)).await;
        Ok(json!("awake"))
    });
    let world = World::new(vec![sleepy]).await;
    let _node = world.node();
    let run = world.start("sleepy", json!({})).await;
    let waiting = world.until_status(&run, RunStatus::Waiting).await;
    assert!(waiting.run.due_at.is_some());
    world.clock.jump(3_600_000);
    assert_eq!(world.end_of(&run).await.run.result, Some(json!("awake")));
}

#[tokio::test]
async fn joined_operations_keep_their_places_whichever_ends_first() {
    let tally = Tally::default();
    let seen = tally.clone();
    let joined = agent("joined", move |context, _| {
        let seen = seen.clone();
        async move {
            let (a, b, c) = (seen.clone(), seen.clone(), seen.clone());
            let first = context.step("a", UnknownStepPolicy::Stop, async move {
                tokio::task::yield_now().await;
                a.mark("a")
            });
            let asked = context.ask_model(&json!([]), &ModelLimits::new(100), None);
            let second = context.step("b", UnknownStepPolicy::Stop, async move { b.mark("b") });
            let (first, answer, second) = tokio::join!(first, asked, second);
            first?;
            second?;
            context.step("c", UnknownStepPolicy::Stop, async move { c.mark("c") }).await?;
            Ok(answer.content)
        }
    });
    let world = World::new(vec![joined]).await;
    let _node = world.node();
    let run = world.start("joined", json!({})).await;
    let waiting = world.until_status(&run, RunStatus::Waiting).await;
    let question = waiting.run.questions[0].id.clone();
    let answer = QuestionAnswer::accept(json!("要約"));
    world.app.runtime.answer_run(&TenantId::local(), &run, &question, answer).await.unwrap();
    assert_eq!(world.end_of(&run).await.run.result, Some(json!("要約")));
    let mut done = tally.list();
    done.sort();
    assert_eq!(done, ["a", "b", "c"]);
}

#[tokio::test]
async fn the_callers_client_is_asked_for_its_roots_and_a_model_with_its_bounds() {
    let curious = agent("curious", |context, _| async move {
        let wait = Some(Duration::from_secs(60));
        let limits = ModelLimits {
            system_prompt: Some("Be brief".to_owned()),
            temperature: Some(0.5),
            ..ModelLimits::new(7)
        };
        let roots = context.ask_roots(wait);
        let model = context.ask_model(&json!(["m"]), &limits, None);
        let (roots, model) = tokio::join!(roots, model);
        Ok(json!([roots.content, roots.reason, model.content]))
    });
    let world = World::new(vec![curious]).await;
    let _node = world.node();
    let run = world.start("curious", json!({})).await;
    let waiting = world.until_status(&run, RunStatus::Waiting).await;
    let mut questions = waiting.run.questions;
    questions.sort_by_key(|question| question.index);
    assert_eq!(
        (questions[0].kind, &questions[0].schema, questions[0].expires_at.is_some()),
        (QuestionKind::Roots, &json!(null), true)
    );
    let bounds = json!({
        "messages": ["m"], "max_tokens": 7, "system_prompt": "Be brief", "temperature": 0.5,
    });
    assert_eq!((questions[1].kind, &questions[1].schema), (QuestionKind::Model, &bounds));
    let roots =
        QuestionAnswer { reason: Some("none".to_owned()), ..QuestionAnswer::accept(json!([])) };
    for (question, answer) in questions.iter().zip([roots, QuestionAnswer::accept(json!("hm"))]) {
        world.app.runtime.answer_run(&TenantId::local(), &run, &question.id, answer).await.unwrap();
    }
    assert_eq!(world.end_of(&run).await.run.result, Some(json!([[], "none", "hm"])));
    let asked = world.events_of(&run).await.into_iter().filter(|(kind, _)| kind == "question");
    let kinds: Vec<_> = asked.map(|(_, data)| data["kind"].clone()).collect();
    assert!(kinds.contains(&json!("roots")), "{kinds:?}");
}

#[tokio::test]
async fn a_question_keeps_its_name_and_callers_are_released_once() {
    let discreet = agent("discreet", |context, _| async move {
        context.release_callers().await;
        let answer = context.named("user_name").ask_human(json!({}), "お名前は", None).await;
        Ok(answer.content)
    });
    let world = World::new(vec![discreet]).await;
    let _node = world.node();
    let run = world.start("discreet", json!({})).await;
    let question = world.until_status(&run, RunStatus::Waiting).await.run.questions.remove(0);
    assert_eq!(question.name.as_deref(), Some("user_name"));
    let answer = QuestionAnswer::accept(json!("明子"));
    world.app.runtime.answer_run(&TenantId::local(), &run, &question.id, answer).await.unwrap();
    assert_eq!(world.end_of(&run).await.run.result, Some(json!("明子")));
    let events = world.events_of(&run).await;
    assert_eq!(events.iter().filter(|(kind, _)| kind == "callers_released").count(), 1);
    let asked = events.iter().find(|(kind, _)| kind == "question");
    assert_eq!(asked.unwrap().1["name"], "user_name");
}

#[tokio::test]
async fn a_called_agent_is_one_run_of_its_own_and_its_end_wakes_the_caller() {
    let child = agent("child", |context, input| async move {
        context.sleep(Duration::from_secs(5)).await;
        match input["fail"].as_bool() {
            Some(true) => Err(AgentError::new("BOOM", "as told")),
            _ => Ok(json!("fine")),
        }
    });
    let parent = agent("parent", |context, _| async move {
        let good = context.call("child", json!({}));
        let bad = context.call("child", json!({ "fail": true }));
        let (good, bad) = tokio::join!(good, bad);
        assert_eq!(good, RunOutcome::Completed(json!("fine")));
        let RunOutcome::Failed(error) = bad else { panic!("{bad:?}") };
        Ok(json!(error.code))
    });
    let world = World::new(vec![child, parent]).await;
    let _node = world.node();
    let run = world.start("parent", json!({})).await;
    world.until_status(&run, RunStatus::Waiting).await;
    let waiting = Some(RunStatus::Waiting);
    while world.app.runtime.list_runs(&TenantId::local(), waiting, None, 10).await.unwrap().0.len()
        < 3
    {
        tokio::task::yield_now().await;
    }
    world.clock.jump(6_000);
    assert_eq!(world.end_of(&run).await.run.result, Some(json!("BOOM")));
    let (runs, _) = world.app.runtime.list_runs(&TenantId::local(), None, None, 10).await.unwrap();
    assert_eq!(runs.len(), 3, "each child was started once");
}

#[tokio::test]
async fn cancelling_a_caller_cancels_what_it_called() {
    let child = agent("child", |context, _| async move {
        context.ask_human(json!({}), "?", None).await;
        Ok(json!(null))
    });
    let parent = agent("parent", |context, _| async move {
        Ok(json!(matches!(context.call("child", json!({})).await, RunOutcome::Cancelled)))
    });
    let world = World::new(vec![child, parent]).await;
    let _node = world.node();
    let run = world.start("parent", json!({})).await;
    world.until_status(&run, RunStatus::Waiting).await;
    world.app.runtime.cancel_run(&TenantId::local(), &run).await.unwrap();
    let (runs, _) = world.app.runtime.list_runs(&TenantId::local(), None, None, 10).await.unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(world.end_of(&run.value.id).await.run.status, RunStatus::Cancelled);
    }
}

#[tokio::test]
async fn a_journal_that_does_not_fit_the_code_fails_the_run_with_a_clear_message() {
    let version = |step: &'static str| {
        agent("changing", move |context, _| async move {
            context.step(step, UnknownStepPolicy::Stop, async { Ok::<_, AgentError>(1) }).await?;
            context.ask_human(json!({}), "?", None).await;
            Ok(json!(null))
        })
    };
    let world = World::new(vec![version("old name")]).await;
    let node = world.node();
    let run = world.start("changing", json!({})).await;
    let waiting = world.until_status(&run, RunStatus::Waiting).await;
    node.leave().await;

    let _upgraded = world.upgraded(vec![version("new name")]).start_worker();
    let question = waiting.run.questions[0].id.clone();
    let answer = QuestionAnswer::new(AnswerAction::Decline, json!(null));
    world.app.runtime.answer_run(&TenantId::local(), &run, &question, answer).await.unwrap();
    let error = world.end_of(&run).await.run.error.unwrap();
    assert_eq!(error.code, "JOURNAL_MISMATCH");
    assert!(error.message.contains("old name") && error.message.contains("new name"), "{error:?}");
}

/// A step that is under way when the node is lost has an unknown outcome: each policy in turn.
#[tokio::test]
async fn a_step_with_unknown_outcome_is_reported_asked_about_or_retried_as_chosen() {
    for (policy, retry, expected) in [
        (UnknownStepPolicy::Retry, None, json!("done after 2 tries")),
        (UnknownStepPolicy::Stop, None, json!("unknown after 1")),
        (UnknownStepPolicy::Ask, Some(true), json!("done after 2 tries")),
        (UnknownStepPolicy::Ask, Some(false), json!("unknown after 1")),
    ] {
        let tally = Tally::default();
        let seen = tally.clone();
        let pay = agent("pay", move |context, _| {
            let seen = seen.clone();
            async move {
                let work = async move {
                    let tries = seen.mark("pay").unwrap();
                    if tries == 1 {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, AgentError>(tries)
                };
                match context.step("pay", policy, work).await {
                    Ok(tries) => Ok(json!(format!("done after {tries} tries"))),
                    Err(shikiri_runtime::run::StepError::Unknown { attempts }) => {
                        Ok(json!(format!("unknown after {attempts}")))
                    }
                    Err(other) => Err(other.into()),
                }
            }
        });
        let world = World::new(vec![pay]).await;
        let _node = world.node();
        let run = world.start("pay", json!({})).await;
        while tally.list().is_empty() {
            tokio::task::yield_now().await;
        }
        world.clock.advance(LEASE + Duration::from_secs(1));
        let _second = world.node();
        if let Some(retry) = retry {
            let waiting = world.until(&run, |view| !view.run.questions.is_empty()).await;
            let question = waiting.run.questions[0].id.clone();
            let answer = QuestionAnswer::accept(json!({ "retry": retry }));
            world
                .app
                .runtime
                .answer_run(&TenantId::local(), &run, &question, answer)
                .await
                .unwrap();
        }
        assert_eq!(world.end_of(&run).await.run.result, Some(expected), "{policy:?} {retry:?}");
    }
}

/// An answer about one attempt says nothing about the next: a second crash is asked about again.
#[tokio::test]
async fn every_attempt_of_unknown_outcome_is_asked_about() {
    let tally = Tally::default();
    let seen = tally.clone();
    let pay = agent("pay", move |context, _| {
        let seen = seen.clone();
        async move {
            let work = async move {
                if seen.mark("pay").unwrap() <= 2 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, AgentError>(())
            };
            match context.step("pay", UnknownStepPolicy::Ask, work).await {
                Ok(()) => Ok(json!("paid")),
                Err(error) => Ok(json!(error.to_string())),
            }
        }
    });
    let world = World::new(vec![pay]).await;
    let run = world.start("pay", json!({})).await;
    let mut nodes = vec![world.node()];
    for (crash, retry) in [(1, true), (2, false)] {
        while tally.list().len() < crash {
            tokio::task::yield_now().await;
        }
        world.clock.advance(LEASE + Duration::from_secs(1));
        nodes.push(world.node());
        let asked = world.until(&run, |view| !view.run.questions.is_empty()).await;
        let question = asked.run.questions[0].id.clone();
        let answer = QuestionAnswer::accept(json!({ "retry": retry }));
        world.app.runtime.answer_run(&TenantId::local(), &run, &question, answer).await.unwrap();
    }
    let end = world.end_of(&run).await;
    assert!(end.run.result.unwrap().as_str().unwrap().contains("began 2 times"));
    assert_eq!(tally.list().len(), 2, "the third attempt was never made");
}
