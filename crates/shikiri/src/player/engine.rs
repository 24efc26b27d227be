//! The offline engine of a server: what it is asked for an agent of a team is played by a program
//! of its own, all else by the plain one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use async_trait::async_trait;
use shikiri_app::execution::{Engine, EngineError, Order, Server, Told};
use shikiri_engines::offline::Offline;
use shikiri_model::execution::{EngineMessage, Finish};
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::server::Transport;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::{COMMAND, TOKEN, URL};

/// This program, even if its file was replaced since it started.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// What of the order's environment it needs.
const SEEN: [&str; 3] = ["PATH", "LANG", "TZ"];

#[derive(Clone, Copy, Debug, Default)]
pub struct OfflineEngine;

#[async_trait]
impl Engine for OfflineEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Offline
    }

    async fn check(
        &self,
        model: &Model,
        env: &BTreeMap<String, String>,
    ) -> Result<(), EngineError> {
        Offline.check(model, env).await
    }

    async fn run(
        &self,
        order: Order,
        told: Told,
        stop: CancellationToken,
    ) -> Result<(), EngineError> {
        match order.servers.iter().find(|server| server.is_own) {
            Some(door) => {
                let player = start(door, &order.env)?;
                let session_id = order.resume.unwrap_or_else(|| told_id(player.id()));
                let model = order.model.model_name;
                told.tell(EngineMessage::Started { session_id: session_id.clone(), model }).await;
                follow(player, session_id, &told, &stop).await
            }
            None => Offline.run(order, told, stop).await,
        }
    }
}

/// A name for what the player does; nothing of it is kept that could be taken up.
fn told_id(pid: Option<u32>) -> String {
    format!("offline-player-{}", pid.unwrap_or_default())
}

fn start(door: &Server, env: &BTreeMap<String, String>) -> Result<Child, EngineError> {
    let Transport::Http { url } = &door.transport else {
        return Err(EngineError::new("the player's door is no address"));
    };
    let authorization = door.headers.get("Authorization").map(String::as_str).unwrap_or_default();
    let token = authorization.strip_prefix("Bearer ").unwrap_or_default();
    let here = PathBuf::from(THIS_PROGRAM);
    let program = if here.exists() { here } else { std::env::current_exe().unwrap_or(here) };
    let mut command = Command::new(program);
    command.arg(COMMAND).env_clear();
    command.envs(env.iter().filter(|(name, _)| SEEN.contains(&name.as_str())));
    command.env(URL, url).env(TOKEN, token);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let failed = |error| EngineError::new(format!("the player cannot be started: {error}"));
    command.spawn().map_err(failed)
}

/// Tells what the player says. Its end is the end of the turn.
async fn follow(
    mut player: Child,
    session_id: String,
    told: &Told,
    stop: &CancellationToken,
) -> Result<(), EngineError> {
    let gone = || EngineError::new("the player says nothing");
    // It ends with this, whatever ends us.
    let stdin = player.stdin.take();
    let mut lines = BufReader::new(player.stdout.take().ok_or_else(gone)?).lines();
    let mut complaints = BufReader::new(player.stderr.take().ok_or_else(gone)?).lines();
    let (mut said, mut last_words) = (String::new(), String::new());
    let status = loop {
        tokio::select! {
            // What it said before it ended is heard first.
            biased;
            Ok(Some(mut line)) = lines.next_line() => {
                line.push('\n');
                said.push_str(&line);
                told.tell(EngineMessage::TextDelta { text: line }).await;
            }
            Ok(Some(line)) = complaints.next_line() => last_words = line,
            () = stop.cancelled() => {
                // Nothing of what it does would be lost.
                let _ = player.kill().await;
                return Ok(());
            }
            ended = player.wait() => break ended,
        }
    };
    drop(stdin);
    told.tell(EngineMessage::Text { text: said.clone(), parent: None, streamed: true }).await;
    match status {
        Ok(status) if status.success() => {
            let finish = Finish {
                result: said,
                is_error: false,
                errors: Vec::new(),
                num_turns: 1,
                session_id: Some(session_id),
                limit: None,
            };
            told.tell(EngineMessage::Finished(finish)).await;
            Ok(())
        }
        Ok(status) => Err(ended_badly(status, &last_words)),
        Err(error) => Err(EngineError::new(format!("the player was lost: {error}"))),
    }
}

fn ended_badly(status: ExitStatus, last_words: &str) -> EngineError {
    EngineError::new(format!("the player ended with {status}: {last_words}"))
}
