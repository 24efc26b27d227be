//! The offline engine of a server. A separate program plays the turns of team agents; the plain
//! offline engine answers everything else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use async_trait::async_trait;
use shikiri_engines::offline::OfflineScriptEngine;
use shikiri_executions::execution::{
    Engine, EngineError, EngineSender, ResolvedServer, TurnRequest,
};
use shikiri_model::execution::{EngineFinish, EngineMessage};
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::server::McpServerTransport;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::{COMMAND, TOKEN, URL};

/// This program, even if its file was replaced since the start.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// The variables of the request's environment that the player needs.
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
        OfflineScriptEngine.check(model, env).await
    }

    async fn run(
        &self,
        request: TurnRequest,
        output: EngineSender,
        stop: CancellationToken,
    ) -> Result<(), EngineError> {
        match request.servers.iter().find(|server| server.is_own) {
            Some(team_server) => {
                let player = start(team_server, &request.env)?;
                let session_id = request.resume.unwrap_or_else(|| session_id_of(player.id()));
                let model = request.model.model_name;
                output.send(EngineMessage::Started { session_id: session_id.clone(), model }).await;
                follow(player, session_id, &output, &stop).await
            }
            None => OfflineScriptEngine.run(request, output, stop).await,
        }
    }
}

/// A session id for the player. Its sessions cannot be resumed.
fn session_id_of(pid: Option<u32>) -> String {
    format!("offline-player-{}", pid.unwrap_or_default())
}

fn start(
    team_server: &ResolvedServer,
    env: &BTreeMap<String, String>,
) -> Result<Child, EngineError> {
    let McpServerTransport::Http { url } = &team_server.transport else {
        return Err(EngineError::new("the player's server is no address"));
    };
    let authorization =
        team_server.headers.get("Authorization").map(String::as_str).unwrap_or_default();
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

/// Sends the player's output. The turn ends when the player ends.
async fn follow(
    mut player: Child,
    session_id: String,
    output: &EngineSender,
    stop: &CancellationToken,
) -> Result<(), EngineError> {
    let gone = || EngineError::new("the player says nothing");
    // Closed when this process ends, for any reason. The player then ends too.
    let stdin = player.stdin.take();
    let mut lines = BufReader::new(player.stdout.take().ok_or_else(gone)?).lines();
    let mut complaints = BufReader::new(player.stderr.take().ok_or_else(gone)?).lines();
    let (mut said, mut last_words) = (String::new(), String::new());
    let status = loop {
        tokio::select! {
            // Output from before its end is read first.
            biased;
            Ok(Some(mut line)) = lines.next_line() => {
                line.push('\n');
                said.push_str(&line);
                output.send(EngineMessage::TextDelta { text: line }).await;
            }
            Ok(Some(line)) = complaints.next_line() => last_words = line,
            () = stop.cancelled() => {
                // Stopping the player loses nothing.
                let _ = player.kill().await;
                return Ok(());
            }
            ended = player.wait() => break ended,
        }
    };
    drop(stdin);
    output.send(EngineMessage::Text { text: said.clone(), parent: None, streamed: true }).await;
    match status {
        Ok(status) if status.success() => {
            let finish = EngineFinish {
                result: said,
                is_error: false,
                errors: Vec::new(),
                num_turns: 1,
                session_id: Some(session_id),
                limit: None,
            };
            output.send(EngineMessage::Finished(finish)).await;
            Ok(())
        }
        Ok(status) => Err(ended_badly(status, &last_words)),
        Err(error) => Err(EngineError::new(format!("the player was lost: {error}"))),
    }
}

fn ended_badly(status: ExitStatus, last_words: &str) -> EngineError {
    EngineError::new(format!("the player ended with {status}: {last_words}"))
}
