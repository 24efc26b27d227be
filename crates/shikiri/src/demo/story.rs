//! The first part of the demo, step by step.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::child::ServerProcess;
use super::ledger::Ledger;
use super::{talk, team, trip};
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::follow::event_line;
use crate::output::{Output, Style};

const STEPS: usize = 12;
const STEP_MS: u64 = 250;
/// The server dies after this many finished steps.
const STEPS_BEFORE_KILL: usize = 4;
/// Pauses between tries to reach a server again.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
const MAX_TRIES: u32 = 100;

/// Plays it and returns the server that is up at the end.
pub(super) async fn play(root: &Path) -> Result<ServerProcess, Failure> {
    let output = Output::stdout();
    let act = |text: &str| output.line(&format!("\n{}", output.paint(Style::Bold, text)));

    output.line("Shikiri demo: three pieces of work, three killed servers, nothing lost.")?;
    act("1. A server on a fresh embedded store")?;
    let server = ServerProcess::start(root).await?;
    let address = server.address();
    output.line(&format!("   process {} in {}", server.pid(), root.display()))?;
    output.line(&format!("   listening on http://{address}"))?;

    act(&format!("2. A run of long_running_agent, {STEPS} journaled steps, started over REST"))?;
    let client = server.client()?;
    let run = start_run(&client).await?;
    output.line(&format!("   {run}; its events, live:"))?;
    let events = format!("/v1/tenants/local/runs/{run}/events");
    let mut seen = Ledger::default();
    let enough = |seen: &Ledger| seen.count("step_completed") >= STEPS_BEFORE_KILL;
    follow(&client, &events, &mut seen, enough).await?;

    act(&format!("3. SIGKILL to the server, in the middle of the run (process {})", server.pid()))?;
    let status = server.kill().await?;
    let killed = Instant::now();
    output
        .line(&format!("   it ended with {status}; the last event seen is {}", seen.last_id()))?;

    act("4. The server again, on the same store and address")?;
    let server = ServerProcess::start_at(root, address).await?;
    output.line(&format!(
        "   process {}; reconnecting with Last-Event-ID: {}",
        server.pid(),
        seen.last_id()
    ))?;
    follow(&client, &events, &mut seen, |_| false).await?;
    let took = killed.elapsed();

    act("5. What became of it")?;
    conclude(&client, &events, &seen, took).await?;
    let server = trip::play(root, server).await?;
    let server = talk::play(root, server).await?;
    team::play(&server).await?;
    Ok(server)
}

async fn start_run(client: &Client) -> Result<String, Failure> {
    let body = json!({
        "agent": "long_running_agent",
        "input": { "steps": STEPS, "step_ms": STEP_MS },
    });
    let answer = client.request(Method::POST, "/v1/tenants/local/runs", Some(&body)).await;
    let (status, answer) = answer.map_err(|error| went_wrong(&error.to_string()))?;
    match (status, answer["id"].as_str()) {
        (StatusCode::OK | StatusCode::CREATED | StatusCode::ACCEPTED, Some(id)) => {
            Ok(id.to_owned())
        }
        _ => Err(went_wrong(&format!("the server answered {status}: {answer}"))),
    }
}

/// Shows and records events until `enough` or the run's end, reconnecting after the last event
/// seen whenever the connection breaks.
async fn follow(
    client: &Client,
    path: &str,
    seen: &mut Ledger,
    enough: impl Fn(&Ledger) -> bool,
) -> Result<(), Failure> {
    let mut cause = None;
    for _ in 0..MAX_TRIES {
        match follow_once(client, path, seen, &enough).await {
            Ok(()) if enough(seen) || seen.ending().is_some() => return Ok(()),
            Ok(()) => {}
            Err(Broken::Output(failure)) => return Err(failure),
            Err(Broken::Connection(error)) => cause = Some(error),
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
    let cause = cause.map_or("the stream ended too early".to_owned(), |error| error.to_string());
    Err(went_wrong(&cause))
}

enum Broken {
    Connection(io::Error),
    Output(Failure),
}

async fn follow_once(
    client: &Client,
    path: &str,
    seen: &mut Ledger,
    enough: &impl Fn(&Ledger) -> bool,
) -> Result<(), Broken> {
    let output = Output::stdout();
    let mut stream = client.events(path, seen.last_id()).await.map_err(Broken::Connection)?;
    while let Some(frame) = stream.next().await.map_err(Broken::Connection)? {
        let data: Value = serde_json::from_str(&frame.data).unwrap_or(Value::Null);
        let at = data["at"].as_str().unwrap_or_default();
        let line = event_line(output, frame.id, at, &frame.event, &data);
        output.line(&line).map_err(Broken::Output)?;
        seen.record(frame);
        if enough(seen) {
            return Ok(());
        }
    }
    Ok(())
}

/// Compares the events seen live with the log.
async fn conclude(
    client: &Client,
    path: &str,
    seen: &Ledger,
    took: Duration,
) -> Result<(), Failure> {
    let output = Output::stdout();
    let mut replayed = Ledger::default();
    let mut stream = client.events(path, 0).await.map_err(|e| went_wrong(&e.to_string()))?;
    while let Some(frame) = stream.next().await.map_err(|e| went_wrong(&e.to_string()))? {
        replayed.record(frame);
    }
    let (name, data) = seen.ending().unwrap_or(("nothing", Value::Null));
    let steps = seen.steps();
    let checks: [(bool, String); 5] = [
        (name == "result", format!("the run ended with {name}: {}", data["result"])),
        (
            seen.is_whole(),
            format!("{} events seen, numbered from 1 without gap or repeat", seen.len()),
        ),
        (
            seen.same_as(&replayed),
            "read again from the start: the same events, byte for byte".to_owned(),
        ),
        (
            steps.committed == STEPS && steps.each_once,
            format!("{} of {STEPS} steps committed, each once", steps.committed),
        ),
        (
            seen.count("started") >= 2,
            format!("{:.1} s from the kill to the result", took.as_secs_f64()),
        ),
    ];
    for (holds, text) in &checks {
        let mark =
            if *holds { output.paint(Style::Good, "ok") } else { output.paint(Style::Bad, "NO") };
        output.line(&format!("   {mark}  {text}"))?;
    }
    match checks.iter().all(|(holds, _)| *holds) {
        true => Ok(()),
        false => Err(went_wrong("a promise was not kept, see above")),
    }
}

pub(super) fn went_wrong(why: &str) -> Failure {
    Failure::new(Exit::Failed, format!("the story went wrong ({why})"), "please report it")
}
