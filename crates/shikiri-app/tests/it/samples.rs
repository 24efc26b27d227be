//! The sample agents, through runs as anybody would start them.

use serde_json::{Value, json};
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::run::{AnswerAction, QuestionAnswer, QuestionKind, RunStatus};
use shikiri_runtime::AppError;

use crate::world::World;

async fn answered(
    agent: &str,
    input: Value,
    answer: Option<QuestionAnswer>,
) -> (World, Value, String) {
    let world = World::new(shikiri_agents::samples()).await;
    let _node = world.node();
    let run = world.start(agent, input).await;
    let waiting = world.until_status(&run, RunStatus::Waiting).await;
    let question = waiting.run.questions[0].clone();
    match answer {
        Some(answer) => {
            let tenant = TenantId::local();
            world.app.runtime.answer_run(&tenant, &run, &question.id, answer).await.unwrap();
        }
        None => world.clock.jump(3_600_000),
    }
    let asked = match question.kind {
        QuestionKind::Human | QuestionKind::Roots => question.message,
        QuestionKind::Model => question.schema.to_string(),
    };
    let result = world.end_of(&run).await.run.result.unwrap();
    (world, result, asked)
}

#[tokio::test]
async fn a_trip_is_booked_only_after_a_clear_yes() {
    let decline = QuestionAnswer::new(AnswerAction::Decline, json!({ "confirm": true }));
    let cancel = QuestionAnswer::new(AnswerAction::Cancel, Value::Null);
    for (answer, booked) in [
        (Some(QuestionAnswer::accept(json!({ "confirm": true, "notes": "窓側" }))), true),
        (Some(QuestionAnswer::accept(json!({ "confirm": false }))), false),
        (Some(decline), false),
        (Some(cancel), false),
        (None, false),
    ] {
        let input = json!({ "destination": "京都", "step_ms": 1 });
        let (_world, result, asked) = answered("travel_agent", input, answer.clone()).await;
        assert_eq!(asked, "Please confirm the estimated price of $1200 for your trip to 京都");
        assert_eq!(result["booked"], json!(booked), "{answer:?}");
        assert_eq!(result["status"], json!(if booked { "booked" } else { "cancelled" }));
        assert_eq!((&result["destination"], &result["price_usd"]), (&json!("京都"), &json!(1200)));
        if booked {
            assert_eq!(result["notes"], json!("窓側"));
        }
    }
}

#[tokio::test]
async fn a_yes_that_does_not_fit_the_form_is_refused_and_the_question_stays_open() {
    let world = World::new(shikiri_agents::samples()).await;
    let _node = world.node();
    let run = world.start("travel_agent", json!({ "step_ms": 1 })).await;
    let question = world.until_status(&run, RunStatus::Waiting).await.run.questions[0].id.clone();
    let tenant = TenantId::local();
    for bad in [json!({ "confirm": "yes" }), json!({}), json!("yes"), json!({ "notes": "窓側" })]
    {
        let refused = world
            .app
            .runtime
            .answer_run(&tenant, &run, &question, QuestionAnswer::accept(bad))
            .await;
        assert!(matches!(refused, Err(AppError::Invalid { field: "content", .. })), "{refused:?}");
    }
    let open = world.app.runtime.run(&tenant, &run).await.unwrap().run;
    assert_eq!((open.status, open.questions.len()), (RunStatus::Waiting, 1));
    let yes = QuestionAnswer::accept(json!({ "confirm": true }));
    world.app.runtime.answer_run(&tenant, &run, &question, yes).await.unwrap();
    assert_eq!(world.end_of(&run).await.run.result.unwrap()["booked"], json!(true));
}

#[tokio::test]
async fn research_uses_the_callers_model_or_says_that_there_is_no_summary() {
    let message = json!({ "role": "assistant", "content": { "type": "text", "text": "要約" } });
    for (answer, summary, source) in [
        (Some(QuestionAnswer::accept(message)), "要約", "client"),
        (Some(QuestionAnswer::accept(json!("要約"))), "要約", "client"),
        (
            Some(QuestionAnswer::accept(
                json!({ "content": [{ "type": "text", "text": "要約" }] }),
            )),
            "要約",
            "client",
        ),
        (Some(QuestionAnswer::new(AnswerAction::Decline, Value::Null)), "", "none"),
        (None, "", "none"),
    ] {
        let (_world, result, asked) =
            answered("research_agent", json!({ "step_ms": 1 }), answer).await;
        assert!(asked.contains("summarize the key findings for research on: AI trends"), "{asked}");
        assert!(asked.contains(r#""max_tokens":100"#), "{asked}");
        assert_eq!(
            result,
            json!({ "topic": "AI trends", "summary": summary, "summary_source": source })
        );
    }
}

/// (progress, message) of what the run told.
async fn told(world: &World, run: &RunId) -> Vec<(f64, String)> {
    let events = world.events_of(run).await.into_iter().filter(|(kind, _)| kind == "progress");
    let told = events.map(|(_, data)| {
        assert_eq!(data["total"], json!(100.0));
        (data["progress"].as_f64().unwrap(), data["message"].as_str().unwrap().to_owned())
    });
    told.collect()
}

#[tokio::test]
async fn samples_tell_their_progress_in_quarters() {
    let world = World::new(shikiri_agents::samples()).await;
    let _node = world.node();
    let yes = QuestionAnswer::accept(json!({ "confirm": true }));
    for (agent, answer, messages) in [
        (
            "travel_agent",
            yes,
            [
                "Checking flights...",
                "Finding available dates...",
                "Confirming prices...",
                "Booking flight...",
                "Booked",
            ],
        ),
        (
            "research_agent",
            QuestionAnswer::accept(json!("要約")),
            [
                "Gathering sources...",
                "Analyzing data...",
                "Summarizing findings...",
                "Finalizing report...",
                "Report ready",
            ],
        ),
    ] {
        let run = world.start(agent, json!({ "step_ms": 0 })).await;
        let waiting = world.until_status(&run, RunStatus::Waiting).await;
        assert_eq!(
            waiting.progress,
            Some(json!({ "progress": 50.0, "total": 100.0, "message": messages[2] })),
            "it asks when it has come to its third step"
        );
        world.answer(&run, answer).await;
        world.end_of(&run).await;
        let expected = [0.0, 25.0, 50.0, 75.0, 100.0].into_iter().zip(messages.map(str::to_owned));
        assert_eq!(told(&world, &run).await, expected.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_trip_that_is_not_booked_is_done_as_well() {
    let world = World::new(shikiri_agents::samples()).await;
    let _node = world.node();
    let run = world.start("travel_agent", json!({ "step_ms": 0 })).await;
    world.until_status(&run, RunStatus::Waiting).await;
    world.clock.jump(3_600_000);
    world.end_of(&run).await;
    assert_eq!(told(&world, &run).await.last(), Some(&(100.0, "Cancelled".to_owned())));
}

#[tokio::test]
async fn long_work_logs_every_step_and_its_percentage() {
    let world = World::new(shikiri_agents::samples()).await;
    let _node = world.node();
    let run = world.start("long_running_agent", json!({ "step_ms": 0 })).await;
    assert_eq!(world.end_of(&run).await.run.result, Some(json!({ "steps": 50 })));
    let logs: Vec<_> = world.events_of(&run).await.into_iter().filter(|e| e.0 == "log").collect();
    assert_eq!(logs.len(), 50);
    for (i, (_, mut log)) in (1..).zip(logs) {
        log.as_object_mut().unwrap().remove("index");
        let message = format!("Processing step {i}/50 ({}%)", i * 2);
        let expected =
            json!({ "level": "info", "logger": "long_running_agent", "message": message });
        assert_eq!(log, expected);
    }
    let expected = (1..=50).map(|i| (f64::from(i * 2), format!("step {i} done")));
    assert_eq!(told(&world, &run).await, expected.collect::<Vec<_>>());
}

/// A door that cannot ask says why, and the traveller reads it.
#[tokio::test]
async fn why_the_person_was_not_asked_is_noted_unless_there_are_notes() {
    let reason = Some("unsupported by the client".to_owned());
    let unasked =
        QuestionAnswer { reason, ..QuestionAnswer::new(AnswerAction::Cancel, Value::Null) };
    let declined = QuestionAnswer { content: json!({ "notes": "too dear" }), ..unasked.clone() };
    let accepted = QuestionAnswer {
        action: AnswerAction::Accept,
        content: json!({ "confirm": false }),
        ..unasked.clone()
    };
    for (answer, notes) in
        [(unasked, "unsupported by the client"), (declined, "too dear"), (accepted, "")]
    {
        let input = json!({ "step_ms": 0 });
        let (_world, result, _) = answered("travel_agent", input, Some(answer)).await;
        assert_eq!((&result["notes"], &result["booked"]), (&json!(notes), &json!(false)));
    }
}
