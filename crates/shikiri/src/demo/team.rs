//! The fourth part of the demo: a task for one of two agents, which has to talk to the other. The
//! server starts both; no person logs in.

use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::child::ServerProcess;
use super::story::went_wrong;
use super::talk::check;
use crate::client::Client;
use crate::exit::Failure;
use crate::output::{Output, Style};

const PROJECTS: &str = "/v1/tenants/local/projects";
const PROJECT: &str = "demo-team";
const TASK: &str = "worker-bと6往復しりとりをしてほしい";
/// Between two polls of state that sends no events.
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn play(server: &ServerProcess) -> Result<(), Failure> {
    let output = Output::stdout();
    let act = |text: &str| output.line(&format!("\n{}", output.paint(Style::Bold, text)));
    let team = Team { client: server.client()? };

    act("13. A team: two agents that the server starts when there is work (players, no model)")?;
    team.make("", &json!({ "id": PROJECT, "name": "しりとり" })).await?;
    for agent in ["worker-a", "worker-b"] {
        let agent = json!({ "id": agent, "kind": "ai", "spawn": "auto", "model_id": "offline" });
        team.make(&format!("/{PROJECT}/agents"), &agent).await?;
    }
    let task = json!({ "title": TASK, "assignee": "worker-a" });
    let task = team.make(&format!("/{PROJECT}/tasks"), &task).await?;
    let begun = Instant::now();
    output.line(&format!("   task for worker-a: {TASK}"))?;
    output.line("   (six rounds of a word game with worker-b)")?;
    team.wait_for("delegations", "its chat session was asked to talk", |_| true).await?;
    let dialogue = team.wait_for("dialogues", "the talk, as it happens:", |_| true).await?;
    let id = dialogue["id"].as_str().unwrap_or_default().to_owned();
    team.follow(&id).await?;
    let done = team
        .wait_for("tasks", "the outcome is back with the task", |one| {
            one["id"] == task["id"] && one["status"] == "done"
        })
        .await?;
    let took = begun.elapsed().as_secs_f64();

    act("14. What became of it")?;
    let dialogues = team.list("dialogues").await?;
    let (count, reason) = (&dialogues[0]["messages"], &dialogues[0]["end_reason"]);
    check(
        dialogues.len() == 1 && *count == json!(12),
        &format!("{count} messages in one talk, strictly in turn, ended by the server: {reason}"),
    )?;
    let delegations = team.list("delegations").await?;
    let status = &delegations[0]["status"];
    check(*status == json!("completed"), &format!("the delegation is {status}"))?;
    check(
        done["status"] == json!("done"),
        &format!("the task is {}, {took:.1} s after it was given", done["status"]),
    )
}

struct Team {
    client: Client,
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
                Output::stdout().line(&format!("   {message}"))?;
                return Ok(found);
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(went_wrong(&format!("no such thing came among the {what}")))
    }

    /// Shows a dialogue to its end.
    async fn follow(&self, id: &str) -> Result<(), Failure> {
        let output = Output::stdout();
        let broke = |error: std::io::Error| went_wrong(&error.to_string());
        let path = format!("{PROJECTS}/{PROJECT}/dialogues/{id}/events");
        let mut stream = self.client.events(&path, 0).await.map_err(broke)?;
        let mut number = 0;
        while let Some(frame) = stream.next().await.map_err(broke)? {
            if frame.event == "message" {
                let data: Value = serde_json::from_str(&frame.data).unwrap_or_default();
                let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
                number += 1;
                let who = output.paint(Style::Dim, &text("from_agent_id"));
                output.line(&format!("   {number:>4}. {who}  {}", text("content")))?;
            }
        }
        Ok(())
    }
}
