//! The events of executions and runs: their names, and the shape of their data.

use std::collections::BTreeMap;

use serde_json::{Value, json};
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
    insta::assert_snapshot!("run_events", shapes.text());
}
