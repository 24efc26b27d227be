//! A run's questions are asked at the terminal where it is followed.

use serde_json::{Value, json};
use shikiri_testkit::TestApp;

use crate::PROGRAM;
use crate::tmux::Pane;

const SIZE: (u16, u16) = (120, 40);

async fn wait_for_question(app: &TestApp, run: &str) {
    let asks = async || app.local().run(run).await["questions"] != json!([]);
    shikiri_testkit::until("it asks", asks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_question_of_a_run_is_asked_where_it_is_followed() {
    let app = TestApp::new(PROGRAM).start().await;
    for (typed, booked) in [("y", true), ("n", false)] {
        let run =
            app.start_run("travel_agent", json!({ "destination": "京都", "step_ms": 1 })).await;
        wait_for_question(&app, &run).await;
        let Some(pane) = Pane::start(&app.cli().command(&["attach", &run]), SIZE).await else {
            return;
        };
        pane.sees("Yes or no?").await;
        pane.line(typed);
        assert_eq!(pane.ended().await, 0, "{}", pane.screen());
        let ended = app.local().run(&run).await;
        assert_eq!(
            (&ended["status"], &ended["result"]["booked"]),
            (&json!("completed"), &json!(booked))
        );
    }
    // One that is left open can be answered elsewhere.
    let run = app.start_run("travel_agent", json!({ "step_ms": 1 })).await;
    wait_for_question(&app, &run).await;
    let Some(pane) = Pane::start(&app.cli().command(&["attach", &run]), SIZE).await else { return };
    pane.sees("Yes or no?").await;
    pane.line("!cancel");
    pane.sees(&format!("left open: answer with `shikiri runs answer {run}`")).await;
    app.cli().run(&["runs", "answer", &run, "--yes"]).done();
    assert_eq!(pane.ended().await, 0, "{}", pane.screen());
    // A program that reads gets the events alone.
    let lines = app.cli().run(&["attach", &run, "--json"]).done().stdout;
    let kinds = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(kinds.filter(|event| event["event"] == "question").count(), 1);
}
