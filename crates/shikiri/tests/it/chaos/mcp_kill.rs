//! Calls over MCP live through kills of the server: the caller comes back with its last event id,
//! hears the whole story once, and what it agreed to is done exactly once.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use shikiri_testkit::{
    Builder, McpClient, Policy, Resuming, Rng, Tenant, TestApp, have_postgres, long,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::mcp_check::{Followed, bookings, events, trip};
use crate::PROGRAM;

const TRAVELLERS: usize = 6;
/// Longer than several kills, restarts and lapsed leases together.
const PATIENCE: Duration = Duration::from_secs(240);

#[tokio::test(flavor = "multi_thread")]
async fn calls_live_through_random_kills_of_the_server() {
    let kills = if long() { 100 } else { 20 };
    tell("mcp_kill on SQLite", TestApp::new(PROGRAM), kills).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_live_through_random_kills_on_postgresql() {
    if have_postgres("mcp_kill on PostgreSQL") {
        let kills = if long() { 25 } else { 5 };
        tell("mcp_kill on PostgreSQL", TestApp::new(PROGRAM).postgres(), kills).await;
    }
}

/// A call that ended, and whether its caller agreed to the price.
struct Trip {
    destination: String,
    agreed: bool,
    call: Resuming,
}

async fn tell(story: &str, builder: Builder, kills: usize) {
    let mut rng = Rng::seeded(story);
    let mut app = builder.env("SHIKIRI_NODE_LEASE_SECONDS", "0.4").start().await;
    let local = app.local();
    let (over, hear) = watch::channel(false);
    let mut travellers = JoinSet::new();
    for number in 0..TRAVELLERS {
        let door = McpClient::connect(&local.client).await;
        travellers.spawn(travel(number, door, hear.clone(), rng.fork()));
    }
    for _ in 0..kills {
        // Sometimes before the runs are taken up again, mostly in their middle.
        tokio::time::sleep(Duration::from_millis(rng.range(30, 900))).await;
        app.kill9();
        app.restart().await;
    }
    over.send_replace(true);
    let trips: Vec<Trip> = travellers.join_all().await.into_iter().flatten().collect();
    let mut losses = 0;
    for trip in &trips {
        let followed = Followed::of(&trip.call, &local).await;
        followed.check();
        let wanted = if trip.agreed { "booked" } else { "cancelled" };
        assert_eq!(followed.status(), wanted, "{}", trip.destination);
        losses += followed.losses();
    }
    let unheard = check_bookings(&local, &trips).await;
    let connections: u32 = trips.iter().map(|trip| trip.call.log().connections).sum();
    eprintln!(
        "{story}: {kills} kills, {} calls over {connections} connections, {losses} times a run \
         lost its node, {unheard} runs whose caller never had an id",
        trips.len()
    );
    assert!(losses >= kills / 4, "the kills hardly hit a run: {losses}");
    assert!(connections as usize >= trips.len() + kills / 4, "the callers were hardly cut off");
}

/// One call after the other; the last one is followed to its end.
async fn travel(
    number: usize,
    door: McpClient,
    over: watch::Receiver<bool>,
    mut rng: Rng,
) -> Vec<Trip> {
    let mut trips = Vec::new();
    while !*over.borrow() {
        let destination = format!("町{number}.{}", trips.len());
        let agreed = !rng.one_in(3);
        let policy = if agreed { Policy::accept() } else { Policy::decline() };
        let mut call = trip(&door, &destination, rng.range(20, 150), policy);
        let finished = tokio::time::timeout(PATIENCE, call.finish()).await;
        finished.unwrap_or_else(|_| panic!("{destination} waits for ever: {}", call.log()));
        trips.push(Trip { destination, agreed, call });
    }
    trips
}

/// A call whose first event never came is made again, so it may have left a run behind,
/// which has no caller and books nothing. Gives how many there are.
async fn check_bookings(local: &Tenant, trips: &[Trip]) -> usize {
    let mut booked: BTreeMap<String, usize> = BTreeMap::new();
    let all = all_runs(local).await;
    for run in &all {
        let destination = run["input"]["destination"].as_str().expect("a destination");
        let id = run["id"].as_str().expect("an id");
        let is_over = run["status"] == "completed";
        let count = if is_over { bookings(&events(local, id).await) } else { 0 };
        *booked.entry(destination.to_owned()).or_default() += count;
    }
    for trip in trips {
        assert_eq!(booked[&trip.destination], usize::from(trip.agreed), "{}", trip.destination);
    }
    let unheard: u32 = trips.iter().map(|trip| trip.call.log().unheard).sum();
    let left = all.len() - trips.len();
    assert!(left <= unheard as usize, "{left} runs without a caller");
    left
}

async fn all_runs(local: &Tenant) -> Vec<Value> {
    let (mut runs, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = local.path(&format!("/runs?limit=100{cursor}"));
        let page = local.client.get(&path).await.expect(200);
        runs.extend(page["items"].as_array().expect("items").iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return runs,
        }
    }
}
