//! Runs from the terminal: a command is a process of its own beside the server.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{Cut, TestApp};

use super::fresh;
use crate::PROGRAM;

#[test]
fn what_does_not_exist_is_exit_4() {
    let (_folder, cli) = fresh();
    cli.run(&["tenants", "create", "another"]).done();
    cli.run(&["runs", "show", "run_0"]).refused(4, &["run_0", "runs list"]);
    cli.run(&["attach", "run_0"]).refused(4, &["run_0"]);
    cli.run(&["cancel", "run_0"]).refused(4, &["run_0"]);
    cli.run(&["tenants", "show", "absent"]).refused(4, &["absent"]);
    cli.run(&["runs", "list", "--tenant", "absent"]).refused(4, &["absent"]);
    cli.run(&["runs", "start", "no_agent"]).refused(2, &["no_agent", "long_running_agent"]);
    let wrong = ["runs", "start", "long_running_agent", "--input", r#"{"steps":0}"#];
    cli.run(&wrong).refused(2, &["steps"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_of_a_run_is_found_by_its_store_and_not_by_a_port() {
    let app = TestApp::new(PROGRAM).start().await;
    let start = ["runs", "start", "long_running_agent", "--input", r#"{"steps":1,"step_ms":1}"#];
    // It listens at another address than this command's settings say.
    let started = app.cli().run(&start).done();
    assert!(!started.stderr.contains("no server answers"), "{}", started.stderr);
    let (_folder, cli) = fresh();
    let cli = cli.env("SHIKIRI_LISTEN", format!("127.0.0.1:{}", app.port()));
    let started = cli.run(&start).done();
    assert!(started.stderr.contains("no server answers"), "{}", started.stderr);
    assert!(started.stderr.contains("another project's"), "{}", started.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn attach_follows_live_from_another_process_to_the_end() {
    let app = TestApp::new(PROGRAM).start().await;
    // Longer than any machine needs to attach; it is ended once it was seen to be live.
    let run = app.start_run("long_running_agent", json!({ "steps": 1_000, "step_ms": 100 })).await;
    let mut attached = app.cli().start(&["attach", &run, "--json"]);
    let live =
        attached.find(Duration::from_secs(60), |line| line.contains("step 2 ").then_some(()));
    assert!(live.is_some() && attached.ended().is_none(), "{}", attached.output());
    let status = app.local().run(&run).await["status"].clone();
    assert_eq!(status, "running", "it was not live: the run had ended");
    app.cli().run(&["cancel", &run]).done();
    assert_eq!(attached.wait(Duration::from_secs(60)), 0);
    let printed = attached.output();
    let lines: Vec<Value> = printed.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let events = app.local().reader(&run, Cut::End).rest().await;
    let (seqs, names): (Vec<_>, Vec<_>) =
        lines.iter().map(|l| (l["seq"].as_u64(), l["event"].as_str().unwrap().to_owned())).unzip();
    assert_eq!(seqs, events.iter().map(|e| e.seq()).collect::<Vec<_>>());
    assert_eq!(names, events.iter().map(|e| e.event.clone()).collect::<Vec<_>>());

    let tail = app.cli().run(&["attach", &run, "--after", &(events.len() - 1).to_string()]).done();
    assert_eq!(tail.stdout.lines().count(), 1, "{}", tail.stdout);
    let ahead = app.cli().run(&["attach", &run, "--after", "1000000"]);
    assert!(ahead.code != 0 && ahead.stderr.lines().count() == 1, "{}", ahead.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_stops_a_run_that_another_process_carries() {
    let app = TestApp::new(PROGRAM).start().await;
    let run = app.start_run("long_running_agent", json!({ "steps": 1_000, "step_ms": 50 })).await;
    let mut reader = app.local().reader(&run, Cut::End);
    while reader.next().await.is_some_and(|frame| frame.event != "step_completed") {}
    app.cli().run(&["cancel", &run]).done();
    let rest = tokio::time::timeout(Duration::from_secs(30), reader.rest()).await.unwrap();
    assert_eq!(rest.last().unwrap().json()["code"], "CANCELLED");
    assert_eq!(app.local().run(&run).await["status"], "cancelled");
    app.cli().run(&["cancel", &run]).refused(3, &["ended"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_started_and_followed_in_one_command() {
    let app = TestApp::new(PROGRAM).start().await;
    let input = r#"{"steps":3,"step_ms":10}"#;
    let start = ["runs", "start", "long_running_agent", "--input", input, "--follow"];
    let followed = app.cli().run(&start).done();
    assert!(followed.stdout.contains("step 3"), "{}", followed.stdout);
    let with_key =
        ["runs", "start", "long_running_agent", "--input", input, "--idempotency-key", "k"];
    let first = app.cli().run(&with_key).done().stdout;
    assert_eq!(app.cli().run(&with_key).done().stdout, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_on_one_folder_share_the_work() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", "1").start().await;
    let mut second = app.another().await;
    let local = app.local();
    let beside = shikiri_testkit::Client::new(second.base()).with_key(&app.admin_key());
    let mut runs = Vec::new();
    for number in 0..10 {
        let body = json!({
            "agent": "long_running_agent", "input": { "steps": 30, "step_ms": 50 },
        });
        let door = if number % 2 == 0 { &local.client } else { &beside };
        let answer = door.post("/v1/tenants/local/runs", &body).await;
        runs.push(answer.json()["id"].as_str().unwrap().to_owned());
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    second.kill9();
    for run in &runs {
        let events = local.reader(run, Cut::End).rest().await;
        let steps = events.iter().filter(|event| event.event == "step_completed").count();
        assert_eq!((steps, events.last().unwrap().event.as_str()), (30, "result"), "{run}");
    }
}
