//! The events of executions and runs: their names, and the shape of their data.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shikiri_model::run::{ExecutionEventName, RunEventName};
use shikiri_testkit::{Cut, TestApp};

use super::json_shape::{json_shape, merge, pretty};
use crate::PROGRAM;
use crate::executions::kit::Talk;

/// Executions that make every kind of event that the offline engine knows.
const PROMPTS: [&str; 2] = [
    "hello\n#offline events=4 chars=6 tools=2 subagents=2 thinking=1",
    "broken\n#offline error=broken",
];

/// By the names of the events.
#[derive(Default)]
struct Shapes(BTreeMap<String, Value>);

impl Shapes {
    fn add(&mut self, event: &str, data: &Value) {
        let shape = json_shape(data);
        let known = self.0.get(event);
        let shape = known.map_or_else(|| shape.clone(), |known| merge(known, &shape));
        self.0.insert(event.to_owned(), shape);
    }

    /// Every event and field is one that the reference page has, by the comments of its names, and
    /// what is not marked as optional there is in each event.
    fn check_names(&self, names: &[(&str, &str)]) {
        for (event, shape) in &self.0 {
            let found = names.iter().find(|(name, _)| name == event);
            let (_, comment) = found.unwrap_or_else(|| panic!("{event} has no name"));
            let (_, fields) = comment.split_once("\n\n").expect("fields");
            let fields: Vec<_> = fields.split('`').skip(1).step_by(2).collect();
            let everywhere = ["seq", "at", "run_id", "execution_id"];
            let sent: Vec<_> = shape.as_object().unwrap().keys().map(String::as_str).collect();
            for field in sent.iter().filter(|field| !everywhere.contains(field)) {
                let is_known = fields.iter().any(|known| known.trim_end_matches('?') == *field);
                assert!(is_known, "{event} has {field}, which its comment does not name");
            }
            for field in fields.iter().filter(|field| !field.ends_with('?')) {
                assert!(sent.contains(field), "{event} has no {field}");
            }
        }
    }

    fn text(&self) -> String {
        pretty(&json!(self.0))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_executions() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let mut shapes = Shapes::default();
    for prompt in PROMPTS {
        for event in talk.say(prompt).await {
            shapes.add(&event.kind, &event.data);
        }
    }
    shapes.check_names(&ExecutionEventName::ALL.map(|name| (name.as_str(), name.comment())));
    insta::assert_snapshot!("execution_events", shapes.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_runs() {
    let app = TestApp::new(PROGRAM).start().await;
    let mut shapes = Shapes::default();
    for (agent, input) in [
        ("long_running_agent", json!({ "steps": 2, "step_ms": 1 })),
        ("travel_agent", json!({ "destination": "Kyoto" })),
    ] {
        let run = app.start_run(agent, input).await;
        let mut reader = app.local().reader(&run, Cut::End);
        while let Some(frame) = reader.next().await {
            shapes.add(&frame.event, &frame.json());
            // After the question: a cancel before the run waits would leave this event out.
            if frame.event == "waiting" {
                app.local()
                    .client
                    .post(&app.local().path(&format!("/runs/{run}/cancel")), &json!({}))
                    .await;
            }
        }
    }
    shapes.check_names(&RunEventName::ALL.map(|name| (name.as_str(), name.comment())));
    insta::assert_snapshot!("run_events", shapes.text());
}
