//! What leads back to calls: listed, cleaned, foreign, expired, and taken up by two at once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_testkit::TestApp;

use super::check::{Plan, Told};
use super::world::{Home, HostProcess, PATIENCE, World};
use super::{LEGACY, MODERN};
use crate::PROGRAM;

const ERAS: [&str; 2] = [LEGACY, MODERN];

fn slow(protocol: &'static str) -> Plan {
    let arguments = json!({ "steps": 30, "step_ms": 100 });
    Plan { tool: "long_running_agent", arguments, protocol }
}

/// A call whose host was killed after it had shown progress.
async fn left_behind(home: &Home, plan: &Plan) -> HostProcess {
    let words = plan.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut process = home.start(&words);
    process.until_event("progress").await;
    process.kill9();
    process
}

fn id_of(process: &HostProcess) -> String {
    process.events()[0]["call_id"].as_str().expect("an id").to_owned()
}

/// Row 4.18.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_listed_with_tool_and_arguments_and_cleaned_away() {
    let World { app: _app, host } = World::new().await;
    let legacy = left_behind(&host, &slow(LEGACY)).await;
    let modern = left_behind(&host, &slow(MODERN)).await;
    let open = host.open();
    let seen: Vec<_> = open.iter().map(|call| (&call["tool"], &call["arguments"])).collect();
    let wanted = (&json!("long_running_agent"), &slow(LEGACY).arguments);
    assert_eq!(seen, [wanted, wanted]);
    assert_eq!(open[0]["call_id"], id_of(&legacy));
    assert_eq!((&open[0]["protocol"], &open[1]["protocol"]), (&json!(LEGACY), &json!(MODERN)));
    assert_eq!(open[0]["has_session"], json!(true));
    assert_eq!(open[0]["has_cursor"], json!(true));
    assert!(open[1]["task_id"].as_str().is_some_and(|task| task.starts_with("run_")), "{open:?}");
    let table = host.run(&["tokens", "list"]).done().stdout;
    assert!(table.contains(&id_of(&legacy)) && table.contains(&id_of(&modern)), "{table}");
    let cleaned = host.run(&["tokens", "clean"]).done();
    assert!(cleaned.stderr.contains("2 calls forgotten"), "{}", cleaned.stderr);
    assert_eq!(host.open(), Vec::<Value>::new());
    let nothing = host.run(&["resume", "--events"]).done();
    assert_eq!(nothing.stdout, "");
    assert!(nothing.stderr.contains("nothing was left"), "{}", nothing.stderr);
    host.run(&["resume", &id_of(&legacy)]).refused(1, &["tokens were cleaned away"]);
}

/// Row 4.19.
#[tokio::test(flavor = "multi_thread")]
async fn call_resume_takes_the_last_call_of_the_tool_up() {
    for protocol in ERAS {
        let World { app, host } = World::new().await;
        let plan = slow(protocol);
        let first = left_behind(&host, &plan).await;
        let again = host.run(&["call", plan.tool, "--resume", "--events", "--yes"]).done();
        let mut events = first.events();
        events.extend(again.stdout.lines().map(|line| serde_json::from_str(line).unwrap()));
        Told { plan, events }.check(&host);
        assert_eq!(super::runs(&app.local()).await, 1);
        let words = ["call", "long_running_agent", "--resume", "--events"];
        let new =
            host.run(&[&words[..], &["--args", "{\"steps\":1,\"step_ms\":1}"]].concat()).done();
        assert!(new.stderr.contains("a new one is made"), "{}", new.stderr);
        assert_eq!(super::runs(&app.local()).await, 2);
    }
}

/// Calls with defaults are taken up like any other, several of them by one process.
#[tokio::test(flavor = "multi_thread")]
async fn calls_with_default_and_empty_arguments_are_taken_up() {
    let World { app, host } = World::new().await;
    let mut left = Vec::new();
    for protocol in ERAS {
        let given = Plan { tool: "travel_agent", arguments: json!({}), protocol };
        left.push((left_behind(&host, &given).await, given));
        let none = ["--protocol", protocol, "call", "research_agent", "--events", "--yes"];
        let mut process = host.start(&none);
        process.until_event("progress").await;
        process.kill9();
        let plan = Plan { tool: "research_agent", arguments: json!({}), protocol };
        left.push((process, plan));
    }
    assert_eq!(host.open().len(), 4);
    let mut resuming = host.start(&["resume", "--events", "--yes"]);
    assert_eq!(resuming.wait().await, 0, "{}", resuming.said());
    let rest = resuming.events();
    for (process, plan) in left {
        let mut events = process.events();
        let id = json!(id_of(&process));
        events.extend(rest.iter().filter(|event| event["call_id"] == id).cloned());
        Told { plan, events }.check(&host);
    }
    assert_eq!(super::runs(&app.local()).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_leads_to_another_server_now_is_explained_and_the_call_is_lost() {
    let World { app: first, mut host } = World::new().await;
    let second = TestApp::new(PROGRAM).start().await;
    host.name_server("trips");
    let call = |protocol| {
        let args = "{\"steps\":30,\"step_ms\":100}";
        ["host", "--protocol", protocol, "call", "trips", "long_running_agent", "--args", args]
    };
    for protocol in ERAS {
        let mut process = host.cli().start(&call(protocol));
        let is_under_way = |line: &str| {
            let told = line.contains("%)") || line.contains("goes on as the task");
            told.then_some(())
        };
        assert!(process.find(PATIENCE, is_under_way).is_some(), "{}", process.output());
        process.kill9();
    }
    assert_eq!(host.open().len(), 2);
    host.now_at(&second);
    host.name_server("trips");
    let resumed = tokio::task::block_in_place(|| host.cli().run(&["host", "resume"]));
    assert_eq!(resumed.code, 1, "{}", resumed.stderr);
    let explained = resumed.stderr.matches("is now another place").count();
    assert_eq!(explained, 2, "{}", resumed.stderr);
    assert_eq!(host.open(), Vec::<Value>::new());
    assert_eq!(super::runs(&second.local()).await, 0, "it was called at a foreign place");
    drop(first);
}

/// The same address, but a server that knows nothing of the call.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_session_or_task_is_explained_and_the_call_is_lost() {
    for protocol in ERAS {
        let World { mut app, mut host } = World::new().await;
        let process = left_behind(&host, &slow(protocol)).await;
        app.kill9();
        std::fs::remove_dir_all(app.data_folder()).unwrap();
        app.restart().await;
        host.now_at(&app);
        let start = Instant::now();
        let ended = host.run(&["resume", &id_of(&process), "--json"]);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        assert_eq!(ended.json()["state"], "lost", "{}", ended.stdout);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains("is not known"), "{}", ended.stderr);
        assert_eq!(host.open(), Vec::<Value>::new());
        assert_eq!(super::runs(&app.local()).await, 0, "it was called again behind our back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_take_a_call_up_one_follows_it_and_the_other_says_so() {
    for protocol in ERAS {
        let World { app, host } = World::new().await;
        // Still at work when the second of the two has started.
        let arguments = json!({ "steps": 80, "step_ms": 100 });
        let plan = Plan { arguments, ..slow(protocol) };
        let first = left_behind(&host, &plan).await;
        let id = id_of(&first);
        let resume = ["resume", id.as_str(), "--events", "--yes"];
        let mut both = [host.start(&resume), host.start(&resume)];
        let codes = [both[0].wait().await, both[1].wait().await];
        let said = format!("{}{}", both[0].said(), both[1].said());
        assert!(codes == [0, 3] || codes == [3, 0], "{codes:?} {said}");
        assert!(said.contains("taken this call up"), "{said}");
        let (winner, loser) = if codes[0] == 0 { (0, 1) } else { (1, 0) };
        let mut events = first.events();
        events.extend(both[loser].events());
        events.extend(both[winner].events());
        let told = Told { plan, events };
        assert_eq!(told.of_kind("ended").count(), 1);
        told.check(&host);
        assert_eq!(super::runs(&app.local()).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_never_ends_ends_at_its_time_limit() {
    for protocol in ERAS {
        let World { app: _app, host } = World::new().await;
        let args = "{\"steps\":10000,\"step_ms\":1000}";
        let words = ["--protocol", protocol, "call", "long_running_agent", "--timeout", "5"];
        let start = Instant::now();
        let ended = host.run(&[&words[..], &["--json", "--args", args]].concat());
        assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
        ended.refused(1, &["time limit"]);
        assert_eq!(ended.json()["state"], "failed");
        assert_eq!(host.open(), Vec::<Value>::new());
    }
}
