//! Killed at every single point where something is kept: just before, and just after.

use serde_json::json;
use shikiri_testkit::{Cut, Tenant};

use super::check::{Plan, Told};
use super::world::{Home, HostProcess, World};
use super::{LEGACY, MODERN};

/// Where a host dies: just before it keeps something, just after, and just after a question.
const HOST_POINTS: [&str; 3] = ["host.before_keep", "host.after_keep", "host.after_question"];
/// More points than a call has.
const MAX_POINTS: usize = 60;
/// Processes at the same time.
const AT_ONCE: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn a_host_killed_before_it_keeps_something_has_not_shown_it() {
    for protocol in [LEGACY, MODERN] {
        let world = World::new().await;
        let whole = sweep(&world.host, protocol, HOST_POINTS[0]).await;
        // In the newer era a task is looked at from time to time, and not every step is seen.
        if protocol == LEGACY {
            for (number, told) in whole.iter().enumerate() {
                let mut progress = told.progress();
                // Heartbeats of a busy server are a fraction more, and may come before the zero.
                progress.retain(|value| *value >= 1.0 && value.fract() == 0.0);
                assert_eq!(progress, [25.0, 50.0, 75.0, 100.0], "killed at {}", number + 1);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_killed_after_it_kept_something_does_not_show_it_later() {
    for protocol in [LEGACY, MODERN] {
        let World { app, host } = World::new().await;
        let all = sweep(&host, protocol, HOST_POINTS[1]).await;
        assert_eq!(answers(&app.local()).await, vec![1; all.len()], "answers of each run");
    }
}

/// Which number a question has among all that is kept depends on how often a task was looked at, so
/// this point has a name of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_a_killed_host_left_open_is_answered_once_by_the_next() {
    for protocol in [LEGACY, MODERN] {
        let World { app, host } = World::new().await;
        let (plan, mut process) = start(&host, protocol, HOST_POINTS[2], 1);
        assert_eq!(process.wait().await, -9, "{}", process.said());
        let mut told = Told { plan, events: process.events() };
        assert_eq!(told.of_kind("asked").count(), 0, "shown although it was killed before");
        let left = host.open();
        assert_eq!(left[0]["questions"], 1, "{left:?}");
        take_up(&host, &mut told).await;
        told.check(&host);
        assert_eq!(answers(&app.local()).await, [1]);
    }
}

/// A call for each time that the point is passed, until one is not killed any more.
async fn sweep(home: &Home, protocol: &'static str, point: &str) -> Vec<Told> {
    let mut all = Vec::new();
    for first in (1..=MAX_POINTS).step_by(AT_ONCE) {
        let batch: Vec<_> =
            (first..first + AT_ONCE).map(|nth| start(home, protocol, point, nth)).collect();
        let mut survivors = 0;
        for (plan, mut process) in batch {
            let code = process.wait().await;
            let mut told = Told { plan, events: process.events() };
            match code {
                0 => survivors += 1,
                -9 => take_up(home, &mut told).await,
                other => panic!("ended with {other}: {}", process.said()),
            }
            told.check(home);
            all.push(told);
        }
        if survivors > 0 {
            assert!(all.len() > AT_ONCE, "{point} was hardly passed");
            return all;
        }
    }
    panic!("{point} never ends");
}

/// A call whose host dies when it passes the point for the nth time.
fn start(home: &Home, protocol: &'static str, point: &str, nth: usize) -> (Plan, HostProcess) {
    let arguments = json!({ "destination": format!("津{nth}"), "step_ms": 30 });
    let plan = Plan { tool: "travel_agent", arguments, protocol };
    let words = plan.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let armed = format!("{point}:{nth}");
    let process = home.start_with(&words, Some(&armed));
    (plan, process)
}

/// Another host follows the call to its end, unless that was kept already.
async fn take_up(home: &Home, told: &mut Told) {
    let open = home.open();
    let Some(call) = open.iter().find(|call| call["arguments"] == told.plan.arguments) else {
        return;
    };
    let id = call["call_id"].as_str().expect("an id");
    let mut process =
        home.start(&["--protocol", told.plan.protocol, "resume", id, "--events", "--yes"]);
    let code = process.wait().await;
    told.events.extend(process.events());
    assert_eq!(code, 0, "{}", process.said());
}

/// How many answers each run got.
async fn answers(local: &Tenant) -> Vec<usize> {
    let page = local.client.get(&local.path("/runs?limit=100")).await.expect(200);
    let mut counts = Vec::new();
    for run in page["items"].as_array().expect("items") {
        let id = run["id"].as_str().expect("an id");
        let told = local.reader(id, Cut::End).rest().await;
        counts.push(told.iter().filter(|frame| frame.event == "answer").count());
    }
    counts
}
