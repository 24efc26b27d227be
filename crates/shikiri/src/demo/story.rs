//! The course of the demo, and its first part: a run that survives the death of its server.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::child::ServerProcess;
use super::ledger::Ledger;
use super::stage::{Scoreboard, Stage, went_wrong};
use super::{talk, team, trip};
use crate::client::Client;
use crate::exit::Failure;

const STEPS: usize = 12;
const STEP_MS: u64 = 250;
/// The server dies after this many finished steps.
const STEPS_BEFORE_KILL: usize = 4;
/// Pauses between tries to reach a server again.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
const MAX_TRIES: u32 = 100;

/// Plays all parts and returns the server that is up at the end.
pub(super) async fn play(root: &Path, stage: Stage) -> Result<ServerProcess, Failure> {
    stage
        .output()
        .line("Shikiri demo: four pieces of work, three killed servers, nothing lost.")?;
    let mut score = Scoreboard::default();
    let server = survive_a_kill(root, stage, &mut score).await?;
    let server = trip::play(root, server, stage, &mut score).await?;
    let server = talk::play(root, server, stage, &mut score).await?;
    team::play(&server, stage, &mut score).await?;
    stage.scoreboard(&score)?;
    Ok(server)
}

async fn survive_a_kill(
    root: &Path,
    stage: Stage,
    score: &mut Scoreboard,
) -> Result<ServerProcess, Failure> {
    stage.act("1. A run with journaled steps, on a fresh server").await?;
    let server = ServerProcess::start(root).await?;
    let address = server.address();
    stage.line(&format!("server {} in {}", server.pid(), root.display()))?;
    stage.line(&format!("listening on http://{address}"))?;
    let client = server.client()?;
    let run = start_run(&client).await?;
    stage.line(&format!("{run}: long_running_agent, {STEPS} steps, started over REST"))?;
    let events = format!("/v1/tenants/local/runs/{run}/events");
    let mut seen = Ledger::default();
    let enough = |seen: &Ledger| seen.count("step_completed") >= STEPS_BEFORE_KILL;
    follow(&client, &events, &mut seen, stage, enough).await?;

    stage.announce_kill(server.pid(), "in the middle of the run").await?;
    server.kill().await?;
    let killed = Instant::now();
    let server = ServerProcess::start_at(root, address).await?;
    let (pid, last) = (server.pid(), seen.last_id());
    stage
        .line(&format!("server {pid} on the same store; reading on with Last-Event-ID: {last}"))?;
    follow(&client, &events, &mut seen, stage, |_| false).await?;
    let took = killed.elapsed();
    conclude(&client, &events, &seen, stage, took).await?;
    score.kills += 1;
    score.events += seen.len();
    score.steps += seen.steps().committed;
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

/// Records events until `enough` or the run's end, and shows each committed step. Reconnects after
/// the last event seen whenever the connection breaks.
async fn follow(
    client: &Client,
    path: &str,
    seen: &mut Ledger,
    stage: Stage,
    enough: impl Fn(&Ledger) -> bool,
) -> Result<(), Failure> {
    let mut cause = None;
    for _ in 0..MAX_TRIES {
        match follow_once(client, path, seen, stage, &enough).await {
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
    stage: Stage,
    enough: &impl Fn(&Ledger) -> bool,
) -> Result<(), Broken> {
    let mut stream = client.events(path, seen.last_id()).await.map_err(Broken::Connection)?;
    while let Some(frame) = stream.next().await.map_err(Broken::Connection)? {
        let (id, is_step) = (frame.id, frame.event == "step_completed");
        seen.record(frame);
        if is_step {
            let line = format!(
                "step {:>2} of {STEPS} committed, event {id}",
                seen.count("step_completed")
            );
            stage.line(&line).map_err(Broken::Output)?;
        }
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
    stage: Stage,
    took: Duration,
) -> Result<(), Failure> {
    let mut replayed = Ledger::default();
    let mut stream = client.events(path, 0).await.map_err(|e| went_wrong(&e.to_string()))?;
    while let Some(frame) = stream.next().await.map_err(|e| went_wrong(&e.to_string()))? {
        replayed.record(frame);
    }
    let (name, data) = seen.ending().unwrap_or(("nothing", Value::Null));
    let (steps, count) = (seen.steps(), seen.len());
    stage.prove(
        seen.is_whole() && seen.same_as(&replayed),
        &format!(
            "{count} events, none lost or repeated; read again, they are the same byte for byte"
        ),
    )?;
    stage.prove(
        steps.committed == STEPS && steps.each_once,
        &format!("{} of {STEPS} steps committed, each once", steps.committed),
    )?;
    stage.prove(
        name == "result" && seen.count("started") >= 2,
        &format!("{name} {}, {:.1} s after the kill", data["result"], took.as_secs_f64()),
    )?;
    stage.pause().await;
    Ok(())
}
