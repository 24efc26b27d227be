//! Host processes that are killed in the middle of a call, and others that take it up: with the
//! server alive, killed too, or changed meanwhile. Every call comes to its right end, and nothing is
//! shown twice.

mod check;
mod points;
mod tokens;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{Rng, Tenant, long};
use tokio::task::JoinSet;

use self::check::{Plan, Told};
use self::world::{Home, HostProcess, World};

pub(super) const LEGACY: &str = "2025-11-25";
pub(super) const MODERN: &str = "2026-07-28";

/// Row 4.18: what leads back is kept with tool and arguments. Row 4.19: another process rejoins the
/// session.
#[tokio::test(flavor = "multi_thread")]
async fn calls_live_through_random_kills_of_the_host() {
    tell("host_kill", kills(), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_live_through_kills_of_the_server() {
    tell("host_kill of the server", 0, kills() / 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_live_through_kills_of_host_and_server() {
    tell("host_kill of both", kills(), kills() / 2).await;
}

fn kills() -> usize {
    if long() { 20 } else { 8 }
}

/// Several callers, one for each kind of call, go on until so many host processes were killed; in
/// between, the server is.
async fn tell(story: &str, host_kills: usize, server_kills: usize) {
    let mut rng = Rng::seeded(story);
    let World { mut app, host } = World::new().await;
    let host = Arc::new(host);
    let left = Arc::new(AtomicUsize::new(host_kills));
    let mut callers = JoinSet::new();
    for number in 0..6 {
        callers.spawn(call_on(number, Arc::clone(&host), Arc::clone(&left), rng.fork()));
    }
    for _ in 0..server_kills {
        tokio::time::sleep(Duration::from_millis(rng.range(200, 1_500))).await;
        app.kill9();
        tokio::time::sleep(Duration::from_millis(rng.range(0, 500))).await;
        app.restart().await;
    }
    let told: Vec<Told> = callers.join_all().await.into_iter().flatten().collect();
    told.iter().for_each(|told| told.check(&host));
    assert_eq!(host.open(), Vec::<Value>::new());
    let runs = runs(&app.local()).await;
    assert_eq!(runs, told.len(), "one run for each call");
    let shown: usize = told.iter().map(|told| told.events.len()).sum();
    eprintln!(
        "{story}: {host_kills} kills of hosts, {server_kills} of the server, {} calls, {shown} \
         events",
        told.len()
    );
    assert_eq!(left.load(Ordering::SeqCst), 0, "not every host was killed");
}

/// Calls, and is killed while there are kills left; the last call is left in peace.
async fn call_on(
    number: usize,
    host: Arc<Home>,
    left: Arc<AtomicUsize>,
    mut rng: Rng,
) -> Vec<Told> {
    let mut calls = Vec::new();
    loop {
        let plan = plan(number, calls.len(), &mut rng);
        let told = follow(&host, plan, &left, &mut rng).await;
        calls.push(told);
        if left.load(Ordering::SeqCst) == 0 {
            return calls;
        }
    }
}

fn plan(number: usize, round: usize, rng: &mut Rng) -> Plan {
    let step_ms = rng.range(20, 150);
    let name = format!("町{number}.{round}");
    let (tool, arguments) = match number % 3 {
        0 => ("travel_agent", json!({ "destination": name, "step_ms": step_ms })),
        1 => ("research_agent", json!({ "topic": name, "step_ms": step_ms })),
        // Told from others by the number of its steps.
        _ => ("long_running_agent", json!({ "steps": 8 + 6 * round + number, "step_ms": step_ms })),
    };
    Plan { tool, arguments, protocol: if number < 3 { LEGACY } else { MODERN } }
}

/// One call to its end, over as many processes as it takes.
async fn follow(host: &Home, plan: Plan, left: &AtomicUsize, rng: &mut Rng) -> Told {
    let words = plan.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut told = Told { plan, events: Vec::new() };
    let mut process = host.start(&words);
    loop {
        let is_to_die = take(left);
        let was_killed = is_to_die && kill_somewhere(&mut process, rng).await;
        if is_to_die && !was_killed {
            // It was quicker: another one dies for it.
            left.fetch_add(1, Ordering::SeqCst);
        }
        let code = if was_killed { -9 } else { process.wait().await };
        told.events.extend(process.events());
        if code == 5 && told.events.is_empty() {
            // The server was not there, and nothing was sent.
            process = host.start(&words);
            continue;
        }
        if !was_killed {
            assert_eq!(code, 0, "{:?}: {}", told.plan, process.said());
            return told;
        }
        let open = host.open();
        let mine = |call: &&Value| {
            call["tool"] == told.plan.tool && call["arguments"] == told.plan.arguments
        };
        process = match open.iter().find(mine) {
            Some(call) => {
                let id = call["call_id"].as_str().expect("an id");
                let era = told.plan.protocol;
                host.start(&["--protocol", era, "resume", id, "--events", "--yes"])
            }
            // Killed after its end was kept.
            None if told.call_id().is_some() => return told,
            // Killed before there was a call.
            None => host.start(&words),
        };
    }
}

fn take(left: &AtomicUsize) -> bool {
    let less = |left: usize| left.checked_sub(1);
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
}

/// After a random number of events and a random while. False if it ended before.
async fn kill_somewhere(process: &mut HostProcess, rng: &mut Rng) -> bool {
    let events = rng.index(8);
    let came = process.until(|shown| shown.len() >= events).await;
    if !came {
        return false;
    }
    tokio::time::sleep(Duration::from_millis(rng.range(0, 200))).await;
    if process.ended().is_some() {
        return false;
    }
    process.kill9();
    true
}

/// How many runs there are at the server.
async fn runs(local: &Tenant) -> usize {
    let page = local.client.get(&local.path("/runs?limit=100")).await.expect(200);
    page["items"].as_array().expect("items").len()
}
