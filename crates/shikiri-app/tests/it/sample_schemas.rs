//! What the samples say of their inputs, updates and results is what they take and give.

use jsonschema::Validator;
use serde_json::{Value, json};
use shikiri_agents::samples;
use shikiri_model::run::{AnswerAction, QuestionAnswer};
use shikiri_runtime::run::DurableAgent;

use crate::world::World;

fn validator(schema: &Value) -> Validator {
    assert!(jsonschema::draft202012::meta::is_valid(schema), "{schema}");
    jsonschema::draft202012::new(schema).unwrap()
}

fn sample(name: &str) -> std::sync::Arc<dyn DurableAgent> {
    samples().into_iter().find(|agent| agent.name() == name).unwrap()
}

/// Values, and whether they are good.
type Table = Vec<(Value, bool)>;

fn texts() -> Table {
    vec![
        (json!("京都"), true),
        (json!(" x "), true),
        (json!("長".repeat(1_000)), true),
        (json!("長".repeat(1_001)), false),
        (json!(""), false),
        (json!(" \t\n\u{3000}"), false),
        (json!(null), false),
        (json!(7), false),
        (json!(["Paris"]), false),
    ]
}

fn whole_numbers(least: u64, most: u64) -> Table {
    vec![
        (json!(least), true),
        (json!(most), true),
        (json!(most + 1), false),
        (json!(u64::MAX), false),
        (json!(3.0), true),
        (json!(3.5), false),
        (json!(1e300), false),
        (json!(-1), false),
        (json!(-1.0), false),
        (json!("3"), false),
        (json!(true), false),
        (json!(null), false),
        (json!({}), false),
    ]
}

/// Every sample with its own field and what that may be.
fn cases() -> Vec<(&'static str, &'static str, Table)> {
    vec![
        ("travel_agent", "destination", texts()),
        ("research_agent", "topic", texts()),
        ("long_running_agent", "steps", {
            let mut steps = whole_numbers(1, 10_000);
            steps.push((json!(0), false));
            steps
        }),
    ]
}

fn agrees(schema: &Validator, check: Result<(), String>, value: &Value, good: bool) {
    assert_eq!(check.is_ok(), good, "check of {value}: {check:?}");
    assert_eq!(schema.is_valid(value), good, "schema of {value}");
}

#[test]
fn inputs_are_described_as_they_are_checked() {
    for (name, field, values) in cases() {
        let agent = sample(name);
        let schema = validator(&agent.input_schema());
        let mut inputs = vec![
            (json!({}), true),
            (json!({ field: values[0].0, "step_ms": 0 }), true),
            (json!({ field: values[0].0, "extra": 1 }), false),
            (json!([]), false),
            (json!("x"), false),
        ];
        inputs.extend(values.into_iter().map(|(value, good)| (json!({ field: value }), good)));
        let paces = whole_numbers(0, 3_600_000).into_iter();
        inputs.extend(paces.map(|(value, good)| (json!({ "step_ms": value }), good)));
        for (input, good) in inputs {
            agrees(&schema, agent.check(&input), &input, good);
        }
        // No input at all is an empty one, which a schema of an object cannot say.
        assert_eq!(agent.check(&json!(null)), Ok(()));
    }
}

#[test]
fn updates_are_described_as_they_are_checked() {
    for (name, field, values) in cases() {
        let agent = sample(name);
        let schema = validator(&agent.update_schema().unwrap());
        let mut updates = vec![
            (json!({}), false),
            (json!({ field: values[0].0, "step_ms": 0 }), false),
            (json!([values[0].0]), false),
        ];
        updates.extend(values.into_iter().map(|(value, good)| (json!({ field: value }), good)));
        for (update, good) in updates {
            agrees(&schema, agent.check_update(&update), &update, good);
        }
        assert!(agent.check_update(&json!(null)).is_err());
    }
}

/// What a caller may leave out is said with the value that it then has.
#[test]
fn defaults_are_said_and_described() {
    for (name, field, default) in [
        ("travel_agent", "destination", json!("Paris")),
        ("research_agent", "topic", json!("AI trends")),
        ("long_running_agent", "steps", json!(50)),
    ] {
        let schema = sample(name).input_schema();
        assert_eq!(schema["properties"][field]["default"], default);
        assert_eq!(schema["properties"]["step_ms"]["default"], 2_000);
        for property in schema["properties"].as_object().unwrap().values() {
            assert!(property["description"].is_string(), "{name}: {property}");
        }
        assert_ne!(sample(name).title(), name);
    }
}

#[tokio::test]
async fn results_are_as_described() {
    let world = World::new(samples()).await;
    let _node = world.node();
    let yes = QuestionAnswer::accept(json!({ "confirm": true, "notes": "窓側" }));
    let no = QuestionAnswer::new(AnswerAction::Decline, Value::Null);
    for (name, answer) in [
        ("travel_agent", Some(yes)),
        ("travel_agent", Some(no.clone())),
        ("research_agent", Some(QuestionAnswer::accept(json!("要約")))),
        ("research_agent", Some(no)),
        ("long_running_agent", None),
    ] {
        let run = world.start(name, json!({ "step_ms": 0 })).await;
        if let Some(answer) = answer {
            world.answer(&run, answer).await;
        }
        let result = world.end_of(&run).await.run.result.unwrap();
        let schema = sample(name).output_schema().unwrap();
        assert!(validator(&schema).is_valid(&result), "{name}: {result}");
        let mut lacking = result;
        lacking.as_object_mut().unwrap().clear();
        assert!(!validator(&schema).is_valid(&lacking), "{name} leaves its fields open");
    }
}
