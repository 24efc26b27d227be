//! Event streams on the wire: at once, whole, and resumable.

use std::time::Duration;

use serde_json::json;
use shikiri_model::time::Timestamp;
use shikiri_store::{Clock as _, SystemClock};
use shikiri_testkit::history::{History, check};
use shikiri_testkit::{Cut, Frame, Tenant, TestApp};
use tokio::io::AsyncReadExt as _;

use crate::PROGRAM;
use crate::wire::Wire;

/// Far less than the 40 ms for which a system may delay an acknowledgement.
const SOON: Duration = Duration::from_millis(20);
/// So many runs must be quick.
const QUICK: usize = 5;
/// A run of which fewer events come live says nothing.
const LIVE: usize = 10;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// With Nagle's algorithm on, a small segment waits for the acknowledgement of the one before it,
/// and the reader's system delays that for 40 ms: but only on a connection that has gone back and
/// forth before, so the test has one that did.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_event_does_not_wait_for_an_acknowledgement() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_DURABILITY", "normal").start().await;
    let local = app.local();
    let mut wire = Wire::open(app.port()).await;
    for _ in 0..20 {
        wire.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        wire.read_until(b"\r\n\r\n").await;
    }
    // A busy machine delays any of them, but not one in every run; Nagle's algorithm holds one up
    // in nearly every run.
    let mut times = Vec::new();
    for _ in 0..100 {
        let input = json!({ "steps": 5, "step_ms": 8 });
        let run = local.start_run("long_running_agent", input).await;
        let (slowest, live) = slowest_live_event(&mut wire, &local, &run).await;
        if live >= LIVE {
            times.push(slowest);
        }
        if times.iter().filter(|slowest| **slowest < SOON).count() == QUICK {
            return;
        }
    }
    times.sort_unstable();
    panic!("the slowest live event of a short run takes {times:?}");
}

/// Follows the run to its end on this connection, which can be used again afterwards; gives the
/// longest time from an event's commit to its arrival, and how many came live.
async fn slowest_live_event(wire: &mut Wire, local: &Tenant, run: &str) -> (Duration, usize) {
    const AT: &str = "\"at\":\"";
    let asked = SystemClock.now();
    wire.send(&format!(
        "GET {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        local.events_path(run),
        local.key
    ))
    .await;
    let (mut text, mut read, mut slowest, mut live) = (String::new(), 0, Duration::ZERO, 0);
    while !text.ends_with("0\r\n\r\n") {
        let mut part = vec![0; 16 * 1024];
        let count = wire.0.read(&mut part).await.unwrap();
        let now = SystemClock.now();
        assert!(count > 0, "cut off after {text}");
        text.push_str(std::str::from_utf8(&part[..count]).unwrap());
        while let Some(at) = text[read..].find(AT).map(|found| read + found + AT.len()) {
            let Some(time) = text.get(at..at + 24) else { break };
            read = at;
            let committed: Timestamp = time.parse().unwrap();
            if committed > asked {
                slowest = slowest.max(now.since(committed));
                live += 1;
            }
        }
    }
    assert!(text.contains("event: result"), "{text}");
    (slowest, live)
}

#[tokio::test(flavor = "multi_thread")]
async fn live_events_arrive_soon_after_their_commit() {
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    // A busy machine is late now and then; a server that holds events back always is.
    let mut best = Duration::MAX;
    for _ in 0..5 {
        best = best.min(usual_delay(&local).await);
        if best < SOON {
            break;
        }
    }
    eprintln!("live: an event arrives {best:?} after its time (median)");
    assert!(best < SOON, "{best:?}");
}

/// The median over the later events of a run.
async fn usual_delay(local: &Tenant) -> Duration {
    let input = json!({ "steps": 60, "step_ms": 15 });
    let run = local.start_run("long_running_agent", input).await;
    let mut reader = local.reader(&run, Cut::End);
    let mut delays = Vec::new();
    while let Some(frame) = reader.next().await {
        let now = SystemClock.now();
        let at: Timestamp = frame.json()["at"].as_str().unwrap().parse().unwrap();
        delays.push(now.since(at));
    }
    median(delays.split_off(20))
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
    let step = ["log", "step_started", "step_completed", "progress"];
    let looked = ["inputs_taken"];
    let story = [&["queued", "started"], &looked[..], &step, &looked, &["result"]].concat();
    assert_eq!(names, story);
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
