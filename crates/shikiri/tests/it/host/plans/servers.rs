//! Plans over real servers, which are killed in the middle, as the host is.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{TestApp, until};

use super::{Desk, course, task};
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);

async fn server() -> TestApp {
    TestApp::new(PROGRAM).start().await
}

/// The runs that a server was asked for: agents and their states, in the order of their start.
async fn runs(app: &TestApp) -> Vec<(String, String)> {
    let page = app.client().get("/v1/tenants/local/runs?limit=200").await.expect(200);
    let mut items = page["items"].as_array().unwrap().clone();
    items.sort_by_key(|run| run["id"].as_str().unwrap().to_owned());
    let text = |run: &Value, key: &str| run[key].as_str().unwrap().to_owned();
    items.iter().map(|run| (text(run, "agent"), text(run, "status"))).collect()
}

async fn until_running(app: &TestApp, agent: &str) {
    until("the agent runs", async || {
        runs(app).await.contains(&(agent.to_owned(), "running".to_owned()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_is_replaced_where_another_offers_the_tool_and_named_where_none_does() {
    let (a, b, mut c) = tokio::join!(server(), server(), server());
    let desk = Desk::with_servers(&[("a", &a), ("b", &b), ("c", &c)]);
    desk.write(
        r#"
        [[task]]
        id = "trip"
        tool = "travel_agent"
        server = "a"
        args = { destination = "Kyoto", step_ms = 5 }
        [[task]]
        id = "study"
        tool = "research_agent"
        server = "b"
        args = { topic = "what to do in ${trip.destination} for ${trip.price_usd}", step_ms = 5 }
        [[task]]
        id = "moves"
        tool = "long_running_agent"
        server = ["c", "a"]
        args = { steps = 10, step_ms = 300 }
        [[task]]
        id = "stays"
        tool = "long_running_agent"
        server = "c"
        args = { steps = 10, step_ms = 300 }
        timeout_seconds = 12
        [synthesis]
        template = "${trip.destination}: ${study.topic}. ${moves.steps} ${stays.steps}"
        "#,
    );
    let mut host = desk.cli.start(&["host", "run", "plan.toml", "--yes"]);
    until("both work at c", async || {
        runs(&c).await.iter().filter(|(_, status)| status == "running").count() == 2
    })
    .await;
    c.kill9();
    // Long before its calls give the server up: another is there.
    let moved = host.find(Duration::from_secs(25), |line| {
        line.contains("moves: running at a, try 2").then_some(())
    });
    assert!(moved.is_some(), "{}", host.output());
    assert_eq!(host.wait(PATIENCE), 1, "{}", host.output());
    let output = host.output();
    assert!(
        output.contains("Kyoto: what to do in Kyoto for 1200. 10 (missing: stays: "),
        "{output}"
    );
    assert!(output.contains("\nMissing: stays: "), "{output}");
    // Nothing was done twice but what had to move.
    let done = |agent: &str| (agent.to_owned(), "completed".to_owned());
    assert_eq!(runs(&b).await, [done("research_agent")]);
    let mut at_a = runs(&a).await;
    at_a.sort();
    assert_eq!(at_a, [done("long_running_agent"), done("travel_agent")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_ends_the_call_that_it_had() {
    let mut app = server().await;
    let desk = Desk::with_servers(&[("only", &app)]);
    desk.write(
        "[[task]]\nid = \"a\"\ntool = \"long_running_agent\"\n\
         args = { steps = 8, step_ms = 200 }\n",
    );
    let mut host = desk.cli.start(&["host", "run", "plan.toml"]);
    until_running(&app, "long_running_agent").await;
    app.restart().await;
    assert_eq!(host.wait(PATIENCE), 0, "{}", host.output());
    let done = ("long_running_agent".to_owned(), "completed".to_owned());
    assert_eq!(runs(&app).await, [done], "{}", host.output());
}

const CHAIN: &str = r#"
    [[task]]
    id = "first"
    tool = "travel_agent"
    args = { destination = "Oslo", step_ms = 5 }
    [[task]]
    id = "second"
    tool = "long_running_agent"
    args = { steps = 15, step_ms = 200 }
    after = ["first"]
    [[task]]
    id = "third"
    tool = "research_agent"
    args = { topic = "${first.destination} in ${second.steps} steps", step_ms = 5 }
    [synthesis]
    template = "${third.topic}"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_host_goes_on_where_it_was_and_repeats_nothing() {
    let app = server().await;
    let desk = Desk::with_servers(&[("only", &app)]);
    desk.write(CHAIN);
    let mut host = desk.cli.start(&["host", "run", "plan.toml", "--yes"]);
    until_running(&app, "long_running_agent").await;
    host.kill9();
    assert_eq!(runs(&app).await.len(), 2, "killed in the middle");

    let ended = desk.command(&["host", "run", "plan.toml", "--yes", "--resume", "--json"]).await;
    let report = ended.clone().done().json();
    assert!(ended.stderr.contains("goes on with plan pln_"), "{}", ended.stderr);
    let told =
        [("first", "done", "only", 1), ("second", "done", "only", 1), ("third", "done", "only", 1)];
    assert_eq!(course(&report), told);
    assert_eq!(report["synthesis"], "Oslo in 15 steps");
    assert_eq!(task(&report, "first")["result"]["structured"]["booked"], json!(true));
    let agents: Vec<_> = runs(&app).await.into_iter().map(|(agent, _)| agent).collect();
    assert_eq!(agents, ["travel_agent", "long_running_agent", "research_agent"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_came_while_the_host_was_dead_is_taken_though_its_time_is_over() {
    let app = server().await;
    let desk = Desk::with_servers(&[("only", &app)]);
    desk.write(
        "[[task]]\nid = \"a\"\ntool = \"long_running_agent\"\ntimeout_seconds = 6\n\
         args = { steps = 2, step_ms = 1500 }\n",
    );
    let mut host = desk.cli.start(&["host", "run", "plan.toml"]);
    until_running(&app, "long_running_agent").await;
    host.kill9();
    until("the run ends", async || runs(&app).await[0].1 == "completed").await;
    // The time itself is what has to pass.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let ended = desk.command(&["host", "run", "plan.toml", "--json"]).await.done();
    assert_eq!(course(&ended.json()), [("a", "done", "only", 1)]);
    assert_eq!(runs(&app).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_process_that_runs_the_plan_has_it() {
    let app = server().await;
    let desk = Desk::with_servers(&[("only", &app)]);
    // Still at work when the other has started.
    desk.write(&CHAIN.replace("step_ms = 200", "step_ms = 500"));
    let mut first = desk.cli.start(&["host", "run", "plan.toml", "--yes"]);
    until_running(&app, "long_running_agent").await;
    let second = desk.command(&["host", "run", "plan.toml", "--yes"]).await.done();
    assert_eq!(second.stdout, "Oslo in 15 steps\n", "{}", second.stderr);
    assert_eq!(first.wait(PATIENCE), 3, "{}", first.output());
    assert!(first.output().contains("taken"), "{}", first.output());
    assert_eq!(runs(&app).await.len(), 3, "nothing was done twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn starting_over_leaves_the_unfinished_run_alone() {
    let app = server().await;
    let desk = Desk::with_servers(&[("only", &app)]);
    desk.write(CHAIN);
    let mut host = desk.cli.start(&["host", "run", "plan.toml", "--yes"]);
    until_running(&app, "long_running_agent").await;
    host.kill9();
    let fresh = desk.command(&["host", "run", "plan.toml", "--yes", "--fresh"]).await.done();
    assert!(fresh.stderr.contains("begins: 3 tasks"), "{}", fresh.stderr);
    assert_eq!(runs(&app).await.len(), 5, "two of the first, three of the second");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_plan_cancels_its_calls_and_says_what_is_missing() {
    let app = server().await;
    let desk = Desk::with_servers(&[("only", &app)]);
    // Long enough not to end by itself while the cancellation is on its way.
    desk.write(&CHAIN.replace("steps = 15", "steps = 50"));
    let mut host = desk.cli.start(&["host", "run", "plan.toml", "--yes"]);
    until_running(&app, "long_running_agent").await;
    host.signal(shikiri_testkit::Signal::INT);
    assert_eq!(host.wait(PATIENCE), 1, "{}", host.output());
    let output = host.output();
    assert!(output.contains("Missing: second: it was cancelled"), "{output}");
    assert!(output.contains("Missing: third: skipped, since the plan was cancelled"), "{output}");
    until("the run at the server ends", async || {
        runs(&app).await.contains(&("long_running_agent".to_owned(), "cancelled".to_owned()))
    })
    .await;
}
