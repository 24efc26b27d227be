//! Event streams on the wire: at once, whole, and resumable.

use std::time::{Duration, Instant};

use serde_json::json;
use shikiri_model::time::Timestamp;
use shikiri_store::{Clock as _, SystemClock};
use shikiri_testkit::history::{History, check};
use shikiri_testkit::{Cut, Frame, TestApp};

use super::Wire;
use crate::PROGRAM;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// With Nagle's algorithm on, each of these takes 40 ms: the second small segment waits for the
/// acknowledgement of the first, and the reader's system delays that.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_of_one_event_arrives_at_once() {
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    let input = json!({ "steps": 3, "step_ms": 1 });
    let run = local.start_run("long_running_agent", input).await;
    let last = local.reader(&run, Cut::End).rest().await.last().unwrap().seq().unwrap();
    let request = format!(
        "GET {}?after={} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Accept: text/event-stream\r\n\r\n",
        local.events_path(&run),
        last - 1,
        app.admin_key()
    );
    // One connection for all: a fresh one acknowledges at once, and so hides the fault.
    let mut wire = Wire::open(app.port()).await;
    let mut times = Vec::new();
    for _ in 0..25 {
        let start = Instant::now();
        wire.send(&request).await;
        wire.read_until(b"event: result").await;
        times.push(start.elapsed());
        wire = finish(wire).await;
    }
    let median = median(times.split_off(5));
    eprintln!("nagle: a reply of one event takes {median:?} (median of 20)");
    assert!(median < Duration::from_millis(20), "{median:?}");
}

/// Reads to the end of the body, so that the connection can be used again.
async fn finish(mut wire: Wire) -> Wire {
    let mut end = [0; 4096];
    let quiet = Duration::from_millis(5);
    while let Ok(Ok(count)) =
        tokio::time::timeout(quiet, tokio::io::AsyncReadExt::read(&mut wire.0, &mut end)).await
    {
        assert!(count > 0, "the connection was closed after a whole answer");
    }
    wire
}

#[tokio::test(flavor = "multi_thread")]
async fn live_events_arrive_soon_after_their_commit() {
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    let input = json!({ "steps": 60, "step_ms": 15 });
    let run = local.start_run("long_running_agent", input).await;
    let mut reader = local.reader(&run, Cut::End);
    let mut delays = Vec::new();
    while let Some(frame) = reader.next().await {
        let now = SystemClock.now();
        let at: Timestamp = frame.json()["at"].as_str().unwrap().parse().unwrap();
        delays.push(now.since(at));
    }
    let median = median(delays.split_off(20));
    eprintln!("live: an event arrives {median:?} after its time (median)");
    assert!(median < Duration::from_millis(20), "{median:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_sleeps_gets_every_event_in_the_end() {
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    let input = json!({ "steps": 3_000, "step_ms": 0 });
    let run = local.start_run("long_running_agent", input).await;
    let mut asleep = local.reader(&run, Cut::Resume(Duration::from_millis(50)));
    let first = asleep.next().await.unwrap();
    let awake = local.reader(&run, Cut::Resume(Duration::from_millis(50)));
    let log: Vec<_> = { awake }.rest().await.iter().map(Frame::seen).collect();
    let mut seen = vec![first.seen()];
    seen.extend(asleep.rest().await.iter().map(Frame::seen));
    assert!(log.len() > 10_000, "{} events do not fill a socket", log.len());
    let history = History { name: "the sleeper".to_owned(), after: 0, seen, whole: true };
    check(&history, &log).unwrap_or_else(|violation| panic!("{violation}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_have_the_form_that_was_promised() {
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    let run = local.start_run("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
    let frames = local.reader(&run, Cut::End).rest().await;
    let names: Vec<&str> = frames.iter().map(|frame| frame.event.as_str()).collect();
    assert_eq!(
        names,
        ["queued", "started", "log", "step_started", "step_completed", "progress", "result"]
    );
    for (seq, frame) in (1..).zip(&frames) {
        let data = frame.json();
        assert_eq!((frame.seq(), data["seq"].as_u64()), (Some(seq), Some(seq)));
        let at = data["at"].as_str().unwrap();
        assert!(at.ends_with('Z') && at.len() == 24, "{at}");
        assert_eq!(data["run_id"], run.as_str(), "{data}");
    }
    let raw = local.client.get(&local.events_path(&run)).await;
    assert_eq!(raw.header("content-type"), Some("text/event-stream"));
    assert_eq!(raw.header("cache-control").map(|c| c.contains("no-")), Some(true));
    assert!(raw.text().contains("retry: 1000\n"), "{}", raw.text());
}
