//! SIGTERM under load: unready at once, streams end so that they can be resumed, runs are handed
//! back rather than left to lapse, and the process ends in good order.

use std::time::{Duration, Instant};

use serde_json::json;
use shikiri_testkit::history::{History, Seen, check};
use shikiri_testkit::{Client, Cut, Frame, Reader, Signal, Tenant, TestApp, until_within};
use tokio::task::JoinSet;

use crate::PROGRAM;
use crate::wire::Wire;

/// Far longer than the test: a waiter for it would be late.
const LEASE_SECONDS: u64 = 120;

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_loses_nothing_and_its_runs_go_on_at_once() {
    let mut app =
        TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", LEASE_SECONDS).start().await;
    let local = app.local();
    let mut runs = Vec::new();
    for _ in 0..8 {
        let input = json!({ "steps": 120, "step_ms": 50 });
        runs.push(local.start_run("long_running_agent", input).await);
    }
    let mut readers = JoinSet::new();
    for (number, run) in (0..32).map(|n| (n, runs[n % runs.len()].clone())) {
        readers.spawn(read_until_cut(number, local.clone(), run));
    }
    let writer = tokio::spawn(write_until_refused(local.clone()));
    tokio::time::sleep(Duration::from_millis(600)).await;

    let mut under_way = Wire::open(app.port()).await;
    under_way.send("GET /readyz HTTP/1.1\r\nHost: localhost\r\n").await;
    // Accepted in their order: once this one has its answer, that one is no longer in the queue.
    assert_eq!(app.client().get("/healthz").await.status, 200);
    tokio::time::sleep(Duration::from_millis(50)).await;

    let asked = Instant::now();
    app.ask_to_end();
    assert_unready_at_once(&app.client(), &mut under_way).await;
    let (code, _) = app.ended().await;
    let took = asked.elapsed();
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(10), "draining took {took:?}");
    assert_no_lease_is_left(&app);

    let cut: Vec<(Reader, History)> = readers.join_all().await;
    for (reader, history) in &cut {
        assert!(!reader.is_done(), "{} got a terminal event", history.name);
    }
    app.restart().await;
    let restarted = Instant::now();
    let mut resumed = JoinSet::new();
    for (mut reader, mut history) in cut {
        resumed.spawn(async move {
            let mut first = None;
            while let Some(frame) = reader.next().await {
                first.get_or_insert_with(|| restarted.elapsed());
                history.seen.push(frame.seen());
            }
            (history, first)
        });
    }
    let resumed = resumed.join_all().await;
    let slowest = resumed.iter().filter_map(|(_, first)| *first).max().unwrap();
    assert!(
        slowest < Duration::from_secs(LEASE_SECONDS / 4),
        "runs went on only after {slowest:?}"
    );
    let leads = |log: &str| log.lines().filter(|line| line.contains("leading: ")).count();
    assert_eq!(leads(&app.log()), 2, "the lead was not given back");
    for run in &runs {
        let log: Vec<Seen> =
            local.reader(run, Cut::End).rest().await.iter().map(Frame::seen).collect();
        for (history, _) in resumed.iter().filter(|(history, _)| history.name.ends_with(run)) {
            check(history, &log).unwrap_or_else(|violation| panic!("{violation}"));
        }
        assert_eq!(local.run(run).await["status"], "completed");
    }
    for run in writer.await.unwrap() {
        let status = local.run(&run).await["status"].clone();
        assert_ne!(status, "failed", "acknowledged while draining: {run}");
    }
    eprintln!("drain: ended after {took:?}, runs went on {slowest:?} after the restart");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_server_at_once() {
    let mut app = TestApp::new(PROGRAM).start().await;
    let run = app.start_run("long_running_agent", json!({ "steps": 100 })).await;
    let mut reader = app.local().reader(&run, Cut::End);
    assert!(reader.next().await.is_some());
    app.server().signal(Signal::TERM);
    app.server().signal(Signal::TERM);
    let (code, took) = app.ended().await;
    assert!(code == 143 || code == 0, "exit {code}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    app.restart().await;
    assert_ne!(app.local().run(&run).await["status"], "failed");
}

async fn read_until_cut(number: usize, local: Tenant, run: String) -> (Reader, History) {
    let mut reader = local.reader(&run, Cut::End);
    let seen = reader.rest().await.iter().map(Frame::seen).collect();
    let name = format!("reader {number} of {run}");
    (reader, History { name, after: 0, seen, whole: true })
}

/// Starts runs until the server takes no more; gives those that it acknowledged.
async fn write_until_refused(local: Tenant) -> Vec<String> {
    let mut acknowledged = Vec::new();
    let body = json!({ "agent": "long_running_agent", "input": { "steps": 1, "step_ms": 1 } });
    loop {
        let request = local.client.request(reqwest::Method::POST, &local.path("/runs")).json(&body);
        match local.client.try_send(request).await {
            Ok(answer) if matches!(answer.status, 201 | 202) => {
                acknowledged.push(answer.json()["id"].as_str().unwrap().to_owned());
            }
            Ok(answer) => {
                answer.problem(503);
                return acknowledged;
            }
            Err(_) => return acknowledged,
        }
    }
}

/// New callers are turned away, and one that was under way is told why.
async fn assert_unready_at_once(client: &Client, under_way: &mut Wire) {
    let start = Instant::now();
    until_within(Duration::from_secs(5), "it no longer says that it is ready", async || {
        let request = client.without_key().request(reqwest::Method::GET, "/readyz");
        client.try_send(request).await.map_or(true, |answer| answer.status == 503)
    })
    .await;
    eprintln!("drain: unready after {:?}", start.elapsed());
    under_way.send("\r\n").await;
    let answer = under_way.rest(Duration::from_secs(20)).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("draining"), "{answer}");
}

/// No node holds anything any more: no process waits for a lease to lapse. The coordinator's stays
/// when it is given back, so that its fence goes on; that it was is seen by the next one to lead.
fn assert_no_lease_is_left(app: &TestApp) {
    let path = app.data_folder().join("state.db");
    let store = shikiri_sqlite::SqliteDatabase::open_reader(&path, &Default::default()).unwrap();
    let count = "SELECT count(*) FROM leases WHERE name <> 'coordinator'";
    let left: u32 = store.query_row(count, (), |row| row.get(0)).unwrap();
    assert_eq!(left, 0, "leases that were not given back");
}
