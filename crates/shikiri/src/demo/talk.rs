//! The third part of the demo: turns of a conversation, with subagents, an exact bill, and a server
//! that dies during a turn.

use std::path::Path;
use std::time::Instant;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::child::ServerProcess;
use super::stage::{Scoreboard, Stage, went_wrong};
use super::story::RECONNECT_PAUSE;
use crate::client::Client;
use crate::exit::Failure;
use crate::output::Style;

const CONVERSATIONS: &str = "/v1/tenants/local/conversations";
const FIRST: &str = "Plan a day in Kyoto.\n#offline events=4 tools=1 subagents=3 tokens_in=1200";
const LONG: &str = "Now in detail.\n#offline events=3 tokens_in=800 hang=1";
const MAX_TRIES: u32 = 100;

/// Plays it on a running server, and returns the one that is up at the end.
pub(super) async fn play(
    root: &Path,
    server: ServerProcess,
    stage: Stage,
    score: &mut Scoreboard,
) -> Result<ServerProcess, Failure> {
    stage
        .act("3. A conversation with an exact bill (offline engine: a script, no model is asked)")
        .await?;
    let mut talk = Talk::start(server.client()?).await?;
    let first = talk.turn(FIRST).await?;
    talk.follow(&first, stage).await?;
    let bill = talk.bill(&first).await?;
    stage.prove(bill.is_exact, &bill.text)?;

    let second = talk.turn(LONG).await?;
    talk.wait_for_text(&second).await?;
    stage.announce_kill(server.pid(), "during the second turn").await?;
    let address = server.address();
    server.kill().await?;
    let server = ServerProcess::start_at(root, address).await?;
    let restarted = Instant::now();
    stage.line(&format!("server {}; the conversation's next turn:", server.pid()))?;
    let third = talk.turn("Where were we?\n#offline events=2").await?;
    talk.follow(&third, stage).await?;
    let took = restarted.elapsed();

    let lost = talk.execution(&second).await?;
    let billed = lost["usage"]["input_tokens"].as_u64().unwrap_or(0);
    let error = &lost["error"]["code"];
    stage.prove(
        error == "INTERRUPTED" && billed > 0,
        &format!("the killed turn ended as {error}, and its {billed} tokens are billed"),
    )?;
    let sessions = &talk.sessions;
    stage.prove(
        sessions.len() == 2 && sessions[0] == sessions[1],
        &format!("the next turn went on in the same session, {:.1} s later", took.as_secs_f64()),
    )?;
    stage.pause().await;
    score.kills += 1;
    for execution in [&first, &second, &third] {
        let usage = &talk.execution(execution).await?["usage"];
        score.tokens += usage["input_tokens"].as_u64().unwrap_or(0);
    }
    Ok(server)
}

/// One conversation of the demo.
struct Talk {
    client: Client,
    path: String,
    /// The engine's session at the start of each followed turn.
    sessions: Vec<Value>,
}

struct Bill {
    is_exact: bool,
    text: String,
}

impl Talk {
    async fn start(client: Client) -> Result<Self, Failure> {
        let made = client.request(Method::POST, CONVERSATIONS, Some(&json!({}))).await;
        let (_, made) = made.map_err(|error| went_wrong(&error.to_string()))?;
        let id = made["id"].as_str().ok_or_else(|| went_wrong("there is no conversation"))?;
        Ok(Self { path: format!("{CONVERSATIONS}/{id}"), client, sessions: Vec::new() })
    }

    /// Starts a turn and returns its id. The server may be starting, or the conversation may not be
    /// free yet.
    async fn turn(&self, said: &str) -> Result<String, Failure> {
        let path = format!("{}/executions", self.path);
        let body = json!({ "user_input": said, "executor": { "user_id": "demo" } });
        let prefer = [("prefer", "respond-async")];
        let mut last = String::new();
        for _ in 0..MAX_TRIES {
            match self.client.exchange(Method::POST, &path, &prefer, Some(&body)).await {
                Ok(answer) if answer.status() == StatusCode::ACCEPTED => {
                    let location = answer.headers().get("location").and_then(|at| at.to_str().ok());
                    let id = location.and_then(|at| at.rsplit_once('/')).map(|(_, id)| id);
                    return id.map(str::to_owned).ok_or_else(|| went_wrong("it has no place"));
                }
                Ok(answer) => last = answer.status().to_string(),
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
        Err(went_wrong(&format!("no turn was started: {last}")))
    }

    /// Shows a turn to its end.
    async fn follow(&mut self, id: &str, stage: Stage) -> Result<(), Failure> {
        let broke = |error: std::io::Error| went_wrong(&error.to_string());
        let path = format!("/v1/tenants/local/executions/{id}/events");
        let mut stream = self.client.events(&path, 0).await.map_err(broke)?;
        while let Some(frame) = stream.next().await.map_err(broke)? {
            let data: Value = serde_json::from_str(&frame.data).unwrap_or_default();
            if frame.event == "session_start" {
                self.sessions.push(data["session_id"].clone());
            }
            if let Some(line) = line(&frame.event, &data) {
                let event = stage.output().paint(Style::Dim, &format!("{:14}", frame.event));
                stage.line(&format!("{event} {line}"))?;
            }
        }
        Ok(())
    }

    async fn wait_for_text(&self, id: &str) -> Result<(), Failure> {
        let broke = |error: std::io::Error| went_wrong(&error.to_string());
        let path = format!("/v1/tenants/local/executions/{id}/events");
        let mut stream = self.client.events(&path, 0).await.map_err(broke)?;
        let mut pieces = 0;
        while let Some(frame) = stream.next().await.map_err(broke)? {
            pieces += usize::from(frame.event == "text_delta");
            if pieces == 3 && self.is_billed(id).await? {
                return Ok(());
            }
        }
        Err(went_wrong("the turn ended by itself"))
    }

    /// Whether everything spent so far is in the store.
    async fn is_billed(&self, id: &str) -> Result<bool, Failure> {
        for _ in 0..MAX_TRIES {
            if !self.rows(id).await?.is_empty() {
                return Ok(true);
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
        Ok(false)
    }

    async fn execution(&self, id: &str) -> Result<Value, Failure> {
        self.get(&format!("/v1/tenants/local/executions/{id}")).await
    }

    async fn rows(&self, id: &str) -> Result<Vec<Value>, Failure> {
        let rows = self.get(&format!("/v1/tenants/local/executions/{id}/usage")).await?;
        Ok(rows["items"].as_array().cloned().unwrap_or_default())
    }

    async fn bill(&self, id: &str) -> Result<Bill, Failure> {
        let (rows, whole) = (self.rows(id).await?, self.execution(id).await?);
        let tokens = |usage: &Value| usage["input_tokens"].as_u64().unwrap_or(0);
        let sum: u64 = rows.iter().map(|row| tokens(&row["usage"])).sum();
        let subagents = rows.iter().filter(|row| row["kind"] == "subagent").count();
        let text = format!(
            "the bill: {} input tokens; its rows, the main thread and {subagents} subagents, add up to {sum}",
            tokens(&whole["usage"])
        );
        Ok(Bill { is_exact: sum == tokens(&whole["usage"]) && subagents == 3, text })
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        let answer = self.client.request(Method::GET, path, None).await;
        Ok(answer.map_err(|error| went_wrong(&error.to_string()))?.1)
    }
}

/// A short line for an event; None if it is not interesting here.
fn line(event: &str, data: &Value) -> Option<String> {
    let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
    Some(match event {
        "session_start" => format!("turn {}, resumed: {}", data["turn"], data["resumed"]),
        "tool_use" => text("tool_name"),
        "subagent_start" | "subagent_end" => text("subagent_type"),
        "title" => text("title"),
        "result" => format!("{} input tokens", data["usage"]["input_tokens"]),
        "error" => text("code"),
        _ => return None,
    })
}
