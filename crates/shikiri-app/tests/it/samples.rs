//! The sample agents, through runs as anybody would start them.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::ids::TenantId;
use shikiri_model::run::{Answer, AnswerAction, QuestionKind, RunStatus};

use crate::world::World;

async fn answered(agent: &str, input: Value, answer: Option<Answer>) -> (World, Value, String) {
    let world = World::new(shikiri_app::agents::samples()).await;
    let _node = world.node();
    let run = world.start(agent, input).await;
    let waiting = world.until_status(&run, RunStatus::Waiting).await;
    let question = waiting.run.questions[0].clone();
    match answer {
        Some(answer) => {
            let tenant = TenantId::local();
            world.app.answer_run(&tenant, &run, &question.id, answer).await.unwrap();
        }
        None => world.clock.jump(3_600_000),
    }
    let asked = match question.kind {
        QuestionKind::Human => question.message,
        QuestionKind::Model => question.schema.to_string(),
    };
    let result = world.end_of(&run).await.run.result.unwrap();
    (world, result, asked)
}

#[tokio::test]
async fn a_trip_is_booked_only_after_a_clear_yes() {
    let decline = Answer { action: AnswerAction::Decline, content: json!({ "confirm": true }) };
    let cancel = Answer { action: AnswerAction::Cancel, content: Value::Null };
    for (answer, booked) in [
        (Some(Answer::accept(json!({ "confirm": true, "notes": "窓側" }))), true),
        (Some(Answer::accept(json!({ "confirm": false }))), false),
        (Some(Answer::accept(json!({ "confirm": "yes" }))), false),
        (Some(Answer::accept(json!({}))), false),
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
async fn research_uses_the_callers_model_or_says_that_there_is_no_summary() {
    let message = json!({ "role": "assistant", "content": { "type": "text", "text": "要約" } });
    for (answer, summary, source) in [
        (Some(Answer::accept(message)), "要約", "client"),
        (Some(Answer::accept(json!("要約"))), "要約", "client"),
        (Some(Answer { action: AnswerAction::Decline, content: Value::Null }), "", "none"),
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

#[tokio::test]
async fn samples_tell_their_progress_in_quarters() {
    let world = World::new(shikiri_app::agents::samples()).await;
    let _node = world.node();
    let run = world.start("travel_agent", json!({ "step_ms": 1 })).await;
    let waiting = world.until_status(&run, RunStatus::Waiting).await;
    assert_eq!(
        waiting.progress,
        Some(json!({ "progress": 75.0, "total": 100.0, "message": "Confirming prices..." }))
    );
    world.clock.advance(Duration::from_secs(1));
    world.clock.jump(3_600_000);
    assert_eq!(world.end_of(&run).await.progress.unwrap()["progress"], json!(100.0));
}
