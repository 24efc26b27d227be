//! The sample agents, redirected while they work.

use serde_json::{Value, json};
use shikiri_model::ids::RunId;
use shikiri_model::run::{QuestionAnswer, RunStatus};
use shikiri_testkit::until;

use crate::world::World;

async fn world() -> World {
    World::new(shikiri_agents::samples()).await
}

/// (level, logger, message) of what the run logged.
async fn logs(world: &World, run: &RunId) -> Vec<[String; 3]> {
    let events = world.events_of(run).await.into_iter().filter(|(kind, _)| kind == "log");
    let text = |data: &Value, field: &str| data[field].as_str().unwrap().to_owned();
    events.map(|(_, data)| ["level", "logger", "message"].map(|f| text(&data, f))).collect()
}

fn log(level: &str, logger: &str, message: &str) -> [String; 3] {
    [level, logger, message].map(str::to_owned)
}

#[tokio::test]
async fn a_trip_goes_elsewhere_until_its_price_is_asked() {
    let world = world().await;
    let run = world.start("travel_agent", json!({ "step_ms": 1 })).await;
    for destination in ["大阪", "京都"] {
        world.update(&run, json!({ "destination": destination })).await.unwrap();
    }
    let _node = world.node();
    let waiting = world.until_status(&run, RunStatus::Waiting).await;
    let asked = &waiting.run.questions[0].message;
    assert!(asked.ends_with("$1200 for your trip to 京都"), "{asked}");
    world.update(&run, json!({ "destination": "Rome" })).await.unwrap();
    world.answer(&run, QuestionAnswer::accept(json!({ "confirm": true }))).await;
    let result = world.end_of(&run).await.run.result.unwrap();
    assert_eq!((&result["destination"], &result["booked"]), (&json!("京都"), &json!(true)));
    assert_eq!(
        logs(&world, &run).await,
        [
            log("info", "travel_agent", r#"Changed destination from "Paris" to "京都""#),
            log("warning", "travel_agent", r#"Too late to change destination: it stays "京都""#),
        ]
    );
}

#[tokio::test]
async fn research_turns_to_another_topic_until_the_model_is_asked() {
    let world = world().await;
    let run = world.start("research_agent", json!({ "step_ms": 1 })).await;
    world.update(&run, json!({ "topic": "tea" })).await.unwrap();
    let _node = world.node();
    let waiting = world.until_status(&run, RunStatus::Waiting).await;
    let asked = waiting.run.questions[0].schema.to_string();
    assert!(asked.contains("research on: tea"), "{asked}");
    world.answer(&run, QuestionAnswer::accept(json!("leaves"))).await;
    let result = world.end_of(&run).await.run.result.unwrap();
    assert_eq!((&result["topic"], &result["summary"]), (&json!("tea"), &json!("leaves")));
    let changed = log("info", "research_agent", r#"Changed topic from "AI trends" to "tea""#);
    assert_eq!(logs(&world, &run).await, [changed]);
}

#[tokio::test]
async fn work_that_is_under_way_gets_longer_or_shorter_and_never_goes_back() {
    let world = world().await;
    let run = world.start("long_running_agent", json!({ "steps": 3, "step_ms": 1 })).await;
    world.update(&run, json!({ "steps": 1_000 })).await.unwrap();
    let _node = world.node();
    world.until(&run, |view| view.progress.is_some()).await;
    for steps in [5_000, 2_000] {
        world.update(&run, json!({ "steps": steps })).await.unwrap();
        let taken = format!("to {steps}");
        let is_taken =
            async || logs(&world, &run).await.iter().any(|[.., text]| text.ends_with(&taken));
        until("the run takes the update", is_taken).await;
    }
    world.update(&run, json!({ "steps": 1 })).await.unwrap();
    let end = world.end_of(&run).await;
    let done = end.run.result.unwrap()["steps"].as_u64().unwrap();

    let events = world.events_of(&run).await;
    let told = events.iter().filter(|(kind, _)| kind == "progress");
    let told: Vec<_> = told.map(|(_, data)| data["progress"].as_f64().unwrap()).collect();
    assert!(told.is_sorted_by(|a, b| a < b), "{told:?}");
    assert_eq!(told.last(), Some(&100.0));
    let changed: Vec<_> = logs(&world, &run).await.into_iter().map(|[.., text]| text).collect();
    let changed: Vec<_> = changed.iter().filter(|text| text.starts_with("Changed")).collect();
    let expected = [
        "Changed steps from 3 to 1000".to_owned(),
        "Changed steps from 1000 to 5000".to_owned(),
        "Changed steps from 5000 to 2000".to_owned(),
        format!("Changed steps from 2000 to {done}"),
    ];
    assert_eq!(changed, expected.iter().collect::<Vec<_>>());
    let completed = events.iter().filter(|(kind, _)| kind == "step_completed").count();
    assert_eq!(completed as u64, done, "what was done stays done");
}
