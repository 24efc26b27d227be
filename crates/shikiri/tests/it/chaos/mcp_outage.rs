//! The database goes away and comes back under open calls: no client hears that a call failed whose
//! run goes on, and no answer is lost that was taken.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use shikiri_testkit::{Client, McpClient, Policy, Resuming, Rng, TestApp, long};
use shikiri_testpg::{Cluster, Installed};
use tokio::task::JoinSet;

use super::mcp_check::{Followed, trip};
use crate::PROGRAM;

const STORY: &str = "calls_live_through_restarts_of_the_database";
const CALLS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn calls_live_through_restarts_of_the_database() {
    let Some(installed) = Installed::find_or_skip(STORY) else { return };
    let mut rng = Rng::seeded(STORY);
    let cluster = tokio::task::spawn_blocking(move || Cluster::start(&installed)).await.unwrap();
    let cluster = Arc::new(cluster.unwrap());
    let app = TestApp::new(PROGRAM).store(&cluster.url()).start().await;
    let local = app.local();
    let other = app.another().await;
    let other = Client::new(other.base()).with_key(&local.key);
    for round in 0..if long() { 24 } else { 1 } {
        let mut calls = JoinSet::new();
        for number in 0..CALLS {
            let here = McpClient::connect(&local.client).await;
            let there = here.through(&other);
            let step_ms = rng.range(20, 200);
            let call = trip(&here, &format!("港{number}"), step_ms, Policy::accept());
            calls.spawn(to_the_end(call, there.clone()));
            // So many events that some are being read whenever the database goes.
            let arguments = json!({ "steps": 120, "step_ms": 3, "wait": true });
            let call = Resuming::call(&here, "long_running_agent", arguments, Policy::Leave);
            calls.spawn(to_the_end(call, there));
        }
        tokio::time::sleep(Duration::from_millis(rng.range(300, 600))).await;
        // Longer than anything waits for a connection, or only a hiccup.
        let away_ms = if round % 2 == 0 { rng.range(5_500, 6_500) } else { rng.range(0, 700) };
        let cluster = Arc::clone(&cluster);
        let restart = move || {
            cluster.stop().unwrap();
            std::thread::sleep(Duration::from_millis(away_ms));
            cluster.restart().unwrap();
        };
        tokio::task::spawn_blocking(restart).await.unwrap();
        for call in calls.join_all().await {
            Followed::of(&call, &local).await.check();
        }
        eprintln!("database away for {away_ms} ms: every call was heard whole");
    }
}

/// Begun here and followed there, by a node that must read what another writes.
async fn to_the_end(mut call: Resuming, there: McpClient) -> Resuming {
    call.next().await.expect("a first event");
    call.cut();
    call.go_through(&there);
    let finished = tokio::time::timeout(PATIENCE, call.finish()).await;
    finished.unwrap_or_else(|_| panic!("it waits for ever: {}", call.log()));
    call
}
