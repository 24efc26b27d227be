//! After the players: everything settles by itself, and sessions that come fresh are told what was
//! left and find nothing that blocks them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_testkit::{Tenant, until};

use super::door::{Door, Reply};
use super::journal::{Known, Outcome, Told, Who, now_ms};
use super::player::{PASSKEY, Stage, items, text_of};
use super::state::State;

/// All limits together, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

pub(super) async fn end(stage: &Stage, local: &Tenant) {
    let project = &stage.project;
    let settled = async || State::is_settled(local, project).await;
    until(&format!("{project} is settled"), settled).await;
    for agent in ["ann", "ben"] {
        Visitor::log_in(stage, agent, "chat").await.drain().await;
        let worker = Visitor::log_in(stage, agent, "task").await;
        worker.finish_tasks(local).await;
        worker.hear_the_rest().await;
    }
}

/// A session of an agent that does everything right, at a server that is left alone.
struct Visitor {
    stage: Stage,
    who: Who,
    door: Door,
    token: String,
}

impl Visitor {
    async fn log_in(stage: &Stage, agent: &'static str, purpose: &str) -> Self {
        let door = Door::patient(&stage.client, &stage.faults);
        let login = json!({
            "agent_id": agent,
            "passkey": PASSKEY,
            "project_id": stage.project,
            "purpose": purpose,
        });
        let Reply::Done(answer) = door.call("authenticate", login).await else {
            panic!("no session for {agent}");
        };
        let who = Who { agent, session: stage.journal.next_session() };
        Self { stage: stage.clone(), who, door, token: text_of(&answer, "session_token") }
    }

    async fn call(&self, tool: &str, mut arguments: Value) -> Value {
        arguments["session_token"] = json!(self.token);
        match self.door.call(tool, arguments).await {
            Reply::Done(answer) => {
                self.stage.journal.acknowledge(&self.who);
                answer
            }
            other => panic!("{} {:?} {tool}: {other:?}", self.stage.project, self.who),
        }
    }

    /// Takes all that is left in the inbox: ends and single messages, nothing to be done.
    async fn drain(&self) {
        loop {
            let news = self.call("get_pending_messages", json!({ "wait_seconds": 0 })).await;
            for what in ["pending_delegations", "invitations"] {
                if !items(&news, what).is_empty() {
                    let project = &self.stage.project;
                    self.stage.faults.add(format!("{project}: {what} after the end: {news}"));
                }
            }
            let mut notes = self.stage.journal.notes();
            for ended in items(&news, "ended_conversations") {
                notes.told.push(Told::read(&self.who, ended));
            }
            for message in items(&news, "pending_messages") {
                let message_id = text_of(message, "message_id");
                match message["conversation_id"].as_str() {
                    // A turn in a talk that is over: the transcript will not have it as said.
                    Some(conversation) => notes.heard.push(Known {
                        by: self.who.clone(),
                        conversation: format!("{conversation}, after its end"),
                        message_id,
                        content: text_of(message, "content"),
                    }),
                    None => notes.received.push((self.who.clone(), message_id, now_ms())),
                }
            }
            if items(&news, "ended_conversations").is_empty()
                && items(&news, "pending_messages").is_empty()
            {
                return;
            }
        }
    }

    /// Goes on with every task that was left, and reports it.
    async fn finish_tasks(&self, local: &Tenant) {
        let started = Instant::now();
        while has_tasks(&self.stage, local, self.who.agent).await {
            assert!(
                started.elapsed() < PATIENCE,
                "{}: no session gets {}'s tasks",
                self.stage.project,
                self.who.agent
            );
            let next = self.call("get_next_action", json!({ "wait_seconds": 1 })).await;
            match next["action"].as_str() {
                // What became of its delegations comes before the task.
                Some("delegation_result") => self.hear(&next),
                Some("work") => self.finish(text_of(&next["task"], "id")).await,
                // The session of a player that is gone has it still.
                Some("none") => {}
                _ => {
                    let project = &self.stage.project;
                    self.stage.faults.add(format!("{project}: a fresh session got {next}"));
                }
            }
        }
    }

    /// Outcomes that are for the next session.
    async fn hear_the_rest(&self) {
        loop {
            let next = self.call("get_next_action", json!({ "wait_seconds": 0 })).await;
            match next["action"].as_str() {
                Some("delegation_result") => self.hear(&next),
                _ => return,
            }
        }
    }

    async fn finish(&self, task: String) {
        self.call("report_completed", json!({ "task_id": task, "status": "done" })).await;
        self.stage.journal.notes().done.push(task);
    }

    fn hear(&self, next: &Value) {
        let messages = items(next, "messages").iter();
        self.stage.journal.notes().outcomes.push(Outcome {
            by: self.who.clone(),
            task: None,
            delegation: text_of(next, "delegation_id"),
            status: text_of(next, "status"),
            contents: messages.map(|message| text_of(message, "content")).collect(),
            at_ms: now_ms(),
        });
    }
}

async fn has_tasks(stage: &Stage, local: &Tenant, agent: &str) -> bool {
    let tasks = State::tasks(local, &stage.project).await;
    let mut own = tasks.iter().filter(|task| task.assignee == agent);
    own.any(|task| task.status == "todo" || task.status == "in_progress")
}
