//! The fourth part of the demo: a task for one of two agents, which has to talk to the other. The
//! server starts both; no person logs in.

use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::child::ServerProcess;
use super::stage::{Scoreboard, Stage, went_wrong};
use crate::client::Client;
use crate::exit::Failure;
use crate::output::Style;

const PROJECTS: &str = "/v1/tenants/local/projects";
const PROJECT: &str = "demo-team";
const TASK: &str = "Talk to worker-b: play 6 rounds of word chain";
/// Between two polls of state that sends no events.
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn play(
    server: &ServerProcess,
    stage: Stage,
    score: &mut Scoreboard,
) -> Result<(), Failure> {
    let team = Team { client: server.client()?, stage };

    stage.act("4. A team: two agents that the server starts when there is work (no model)").await?;
    team.make("", &json!({ "id": PROJECT, "name": "Word chain" })).await?;
    for agent in ["worker-a", "worker-b"] {
        let agent = json!({ "id": agent, "kind": "ai", "spawn": "auto", "model_id": "offline" });
        team.make(&format!("/{PROJECT}/agents"), &agent).await?;
    }
    let task = json!({ "title": TASK, "assignee": "worker-a" });
    let task = team.make(&format!("/{PROJECT}/tasks"), &task).await?;
    let begun = Instant::now();
    stage.line(&format!("task for worker-a: {TASK}"))?;
    team.wait_for(
        "delegations",
        "worker-a's task session hands the talk to its chat session",
        |_| true,
    )
    .await?;
    let dialogue = team.wait_for("dialogues", "the talk, as it happens:", |_| true).await?;
    let id = dialogue["id"].as_str().unwrap_or_default().to_owned();
    team.follow(&id).await?;
    let done = team
        .wait_for("tasks", "the outcome is back with the task", |one| {
            one["id"] == task["id"] && one["status"] == "done"
        })
        .await?;
    let took = begun.elapsed().as_secs_f64();

    let (dialogues, delegations) = (team.list("dialogues").await?, team.list("delegations").await?);
    let (count, reason) = (&dialogues[0]["messages"], &dialogues[0]["end_reason"]);
    stage.prove(
        dialogues.len() == 1 && *count == json!(12),
        &format!("{count} messages in one talk, in turn, ended by the server: {reason}"),
    )?;
    let (delegation, task) = (&delegations[0]["status"], &done["status"]);
    stage.prove(
        *delegation == json!("completed") && *task == json!("done"),
        &format!("the delegation is {delegation}, the task {task}, {took:.1} s after it was given"),
    )?;
    stage.pause().await;
    score.messages = count.as_u64().unwrap_or(0);
    Ok(())
}

struct Team {
    client: Client,
    stage: Stage,
}

impl Team {
    async fn make(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let path = format!("{PROJECTS}{path}");
        let made = self.client.request(Method::POST, &path, Some(body)).await;
        match made.map_err(|error| went_wrong(&error.to_string()))? {
            (StatusCode::CREATED, made) => Ok(made),
            (status, answer) => Err(went_wrong(&format!("the server answered {status}: {answer}"))),
        }
    }

    async fn list(&self, what: &str) -> Result<Vec<Value>, Failure> {
        let path = format!("{PROJECTS}/{PROJECT}/{what}");
        let answer = self.client.request(Method::GET, &path, None).await;
        let (_, answer) = answer.map_err(|error| went_wrong(&error.to_string()))?;
        Ok(answer["items"].as_array().cloned().unwrap_or_default())
    }

    /// Waits for it and prints the message.
    async fn wait_for(
        &self,
        what: &str,
        message: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, Failure> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(found) = self.list(what).await?.into_iter().find(&wanted) {
                self.stage.line(message)?;
                return Ok(found);
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(went_wrong(&format!("no such thing came among the {what}")))
    }

    /// Shows a dialogue to its end.
    async fn follow(&self, id: &str) -> Result<(), Failure> {
        let broke = |error: std::io::Error| went_wrong(&error.to_string());
        let path = format!("{PROJECTS}/{PROJECT}/dialogues/{id}/events");
        let mut stream = self.client.events(&path, 0).await.map_err(broke)?;
        let mut number = 0;
        while let Some(frame) = stream.next().await.map_err(broke)? {
            if frame.event == "message" {
                let data: Value = serde_json::from_str(&frame.data).unwrap_or_default();
                let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
                number += 1;
                let who = self.stage.output().paint(Style::Dim, &text("from_agent_id"));
                self.stage.line(&format!("{number:>4}. {who}  {}", text("content")))?;
            }
        }
        Ok(())
    }
}
