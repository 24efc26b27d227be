//! Commit, then send: whatever a reader has seen is in the log afterwards, byte for byte, however
//! often the server was killed meanwhile; a reader that comes back with its last id misses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use shikiri_testkit::history::{History, Seen, check, check_log};
use shikiri_testkit::{Builder, Cut, Frame, Rng, Tenant, TestApp, have_postgres, long};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::PROGRAM;

const READERS: usize = 64;
/// A reader follows one of so many runs, so that each run has many readers and no reader all.
const CLASSES: usize = 4;
const FIRST_RUNS: usize = 6;
/// Longer than a kill, a restart and a lapsed lease together.
const PATIENCE: Duration = Duration::from_secs(240);

#[tokio::test(flavor = "multi_thread")]
async fn readers_live_through_random_kills_of_the_server() {
    let kills = if long() { 500 } else { 20 };
    tell("sse_kill on SQLite", TestApp::new(PROGRAM), kills).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_live_through_random_kills_on_postgresql() {
    if have_postgres("sse_kill on PostgreSQL") {
        let kills = if long() { 125 } else { 5 };
        tell("sse_kill on PostgreSQL", TestApp::new(PROGRAM).postgres(), kills).await;
    }
}

/// The runs so far, and whether there will be more.
#[derive(Clone, Default)]
struct Runs {
    ids: Vec<String>,
    complete: bool,
}

async fn tell(story: &str, builder: Builder, kills: usize) {
    let mut rng = Rng::seeded(story);
    let mut app = builder.env("SHIKIRI_NODE_LEASE_SECONDS", "0.6").start().await;
    let local = app.local();
    let (runs, hear) = watch::channel(Runs::default());
    for _ in 0..FIRST_RUNS {
        let step_ms = rng.range(5, 40);
        add_run(&local, &runs, &mut rng, step_ms).await;
    }
    let mut readers = JoinSet::new();
    for number in 0..READERS {
        readers.spawn(follow(number, local.clone(), hear.clone(), rng.fork()));
    }
    for _ in 0..kills {
        // Slow steps, so that the kill below hits this run before its end.
        add_run(&local, &runs, &mut rng, 90).await;
        // Sometimes at once, while it still takes up what the one before left.
        let life = if rng.one_in(5) { 0 } else { rng.range(100, 1_800) };
        tokio::time::sleep(Duration::from_millis(life)).await;
        app.kill9();
        tokio::time::sleep(Duration::from_millis(rng.range(0, 150))).await;
        app.restart().await;
    }
    runs.send_modify(|runs| runs.complete = true);
    let mut histories = Vec::new();
    let mut connections = 0;
    while let Some(followed) = readers.join_next().await {
        let (seen, times) = followed.expect("a reader that follows to the end");
        histories.extend(seen);
        connections += times;
    }
    app.restart().await;
    let ids = runs.borrow().ids.clone();
    let log = read_logs(&local, &ids).await;
    compare(&histories, &log);
    let lost: usize = log.values().map(|frames| count(frames, "node_lost")).sum();
    let seen: usize = histories.iter().map(|(_, history)| history.seen.len()).sum();
    eprintln!(
        "{story}: {kills} kills, {} runs, {} histories of {seen} events, {connections} \
         connections, {lost} times a run lost its node",
        ids.len(),
        histories.len()
    );
    assert!(lost >= kills / 2, "the kills hardly hit a run: {lost}");
    assert!(connections as usize >= READERS * kills / 4, "the readers were hardly cut off");
}

async fn add_run(local: &Tenant, runs: &watch::Sender<Runs>, rng: &mut Rng, step_ms: u64) {
    let input = json!({ "steps": rng.range(20, 50), "step_ms": step_ms });
    let id = local.start_run("long_running_agent", input).await;
    runs.send_modify(|runs| runs.ids.push(id));
}

/// Follows every run of its class to its end; gives what it saw, by run, and how often it had to
/// connect.
async fn follow(
    number: usize,
    local: Tenant,
    mut runs: watch::Receiver<Runs>,
    mut rng: Rng,
) -> (Vec<(String, History)>, u32) {
    let (mut histories, mut connections) = (Vec::new(), 0);
    for place in (number % CLASSES..).step_by(CLASSES) {
        let known = runs.wait_for(|runs| runs.complete || runs.ids.len() > place).await;
        let Some(id) = known.expect("a story").ids.get(place).cloned() else { break };
        let pause = Duration::from_millis(rng.range(5, 60));
        let mut reader = local.reader(&id, Cut::Resume(pause));
        let mut seen: Vec<Seen> = Vec::new();
        loop {
            let next = tokio::time::timeout(PATIENCE, reader.next()).await;
            match next.unwrap_or_else(|_| panic!("reader {number} of {id} waits for ever")) {
                Some(frame) => seen.push(frame.seen()),
                None => break,
            }
            if rng.one_in(60) {
                reader.drop_connection();
            }
        }
        connections += reader.connections();
        let name = format!("reader {number} of {id}");
        histories.push((id, History { name, after: 0, seen, whole: true }));
    }
    (histories, connections)
}

/// Every run's log, read at the end by a reader that is never cut off, and what it must hold.
async fn read_logs(local: &Tenant, ids: &[String]) -> BTreeMap<String, Vec<Frame>> {
    let mut logs = BTreeMap::new();
    for id in ids {
        let run = local.run(id).await;
        assert_eq!(run["status"], "completed", "{run}");
        let frames = local.reader(id, Cut::End).rest().await;
        let steps = run["result"]["steps"].as_u64().expect("a number of steps");
        let mut completed: Vec<u64> = frames
            .iter()
            .filter(|frame| frame.event == "step_completed")
            .map(|frame| frame.json()["result"].as_u64().expect("a step's number"))
            .collect();
        completed.sort_unstable();
        assert_eq!(completed, (1..=steps).collect::<Vec<_>>(), "the steps of {id}, each once");
        assert_eq!(frames.iter().filter(|frame| frame.is_terminal()).count(), 1, "{id}");
        assert!(frames.last().is_some_and(|last| last.event == "result"), "{id}");
        logs.insert(id.clone(), frames);
    }
    logs
}

fn compare(histories: &[(String, History)], logs: &BTreeMap<String, Vec<Frame>>) {
    let logs: BTreeMap<&String, Arc<[Seen]>> =
        logs.iter().map(|(id, frames)| (id, frames.iter().map(Frame::seen).collect())).collect();
    for (id, log) in &logs {
        check_log(id, log).unwrap_or_else(|violation| panic!("{violation}"));
    }
    for (id, history) in histories {
        check(history, &logs[id]).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

fn count(frames: &[Frame], event: &str) -> usize {
    frames.iter().filter(|frame| frame.event == event).count()
}
