//! Requests that never become whole.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use shikiri_testkit::TestApp;
use tokio::task::JoinSet;

use crate::PROGRAM;
use crate::wire::Wire;

const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_requests_are_closed_within_ten_seconds() {
    let app = TestApp::new(PROGRAM).start().await;
    let head = format!(
        "POST /v1/tenants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\n",
        app.admin_key()
    );
    let beginnings = [
        String::new(),
        "POST /v1/ten".to_owned(),
        head.clone(),
        format!("{head}Content-Length: 100\r\n\r\n"),
        format!("{head}Content-Length: 100\r\n\r\n{{\"id\": \"half"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\n{{\"id"),
    ];
    let mut connections = JoinSet::new();
    for number in 0..54 {
        let (port, beginning) = (app.port(), beginnings[number % beginnings.len()].clone());
        connections.spawn(async move {
            let mut wire = Wire::open(port).await;
            let start = Instant::now();
            wire.send(&beginning).await;
            let answer = wire.rest(2 * LIMIT).await;
            (beginning, answer, start.elapsed())
        });
    }
    // A late one of nine waited for this machine; a beginning that is not closed makes all late.
    let (mut fastest, mut slowest) = (BTreeMap::new(), Duration::ZERO);
    for (beginning, answer, took) in connections.join_all().await {
        let answer = answer.unwrap_or_else(|| panic!("still open: {beginning:?}"));
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        slowest = slowest.max(took);
        let best = fastest.entry(beginning).or_insert(took);
        *best = took.min(*best);
    }
    assert!(fastest.values().all(|took| *took < LIMIT), "{fastest:?}");
    app.client().get("/v1/tenants/half").await.problem(404);
    eprintln!("half sent: 54 connections, the last closed after {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_drips_is_closed_within_ten_seconds_too() {
    let app = TestApp::new(PROGRAM).start().await;
    let mut connections = JoinSet::new();
    for _ in 0..3 {
        connections.spawn(drip(app.port()));
    }
    let times = connections.join_all().await;
    assert!(times.iter().any(|took| *took < LIMIT), "{times:?}");
    assert_eq!(app.client().get("/healthz").await.status, 200);
}

/// How long it takes until the connection is closed.
async fn drip(port: u16) -> Duration {
    let mut wire = Wire::open(port).await;
    let start = Instant::now();
    wire.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n").await;
    loop {
        if wire.rest(Duration::from_millis(500)).await.is_some() {
            return start.elapsed();
        }
        assert!(start.elapsed() < 3 * LIMIT, "a dripping head keeps its connection");
        if tokio::io::AsyncWriteExt::write_all(&mut wire.0, b"X-Drip: 1\r\n").await.is_err() {
            return start.elapsed();
        }
    }
}
