//! Tracks the subagents of a run, from the call that spawns one to its end.

use std::collections::HashMap;

use serde_json::Value;
use shikiri_model::execution::{EngineMessage, SubagentStart};

/// The current and the former name of the tool that spawns.
const SPAWNING: [&str; 2] = ["Agent", "Task"];
/// The only kind of task that is a subagent.
const LOCAL_AGENT: &str = "local_agent";

#[derive(Debug, Default)]
pub(super) struct SubagentTracker {
    /// The input of spawning calls, by the id of the call.
    calls: HashMap<String, SubagentCallInput>,
    /// Live subagents by their task id, which is the agent's id.
    alive: HashMap<String, TrackedSubagent>,
    /// The spawning call of every agent, also of ended ones.
    spawned: HashMap<String, String>,
}

#[derive(Debug, Default)]
struct SubagentCallInput {
    subagent_type: Option<String>,
    model: Option<String>,
}

#[derive(Debug)]
struct TrackedSubagent {
    start: SubagentStart,
    /// It has ended, but the model was not told yet.
    has_ended: bool,
}

impl SubagentTracker {
    /// Handles a tool call. If it spawns an agent that is already known, reports the requested model.
    pub(super) fn on_tool_call(
        &mut self,
        id: &str,
        tool: &str,
        arguments: &Value,
    ) -> Option<EngineMessage> {
        if !SPAWNING.contains(&tool) {
            return None;
        }
        let text = |name: &str| arguments[name].as_str().map(str::to_owned);
        let input =
            SubagentCallInput { subagent_type: text("subagent_type"), model: text("model") };
        let agent = self.alive.values_mut().find(|agent| agent.start.tool_use_id == id);
        let message = agent.filter(|agent| input.model != agent.start.model).map(|agent| {
            agent.start.model.clone_from(&input.model);
            EngineMessage::SubagentStarted(agent.start.clone())
        });
        self.calls.insert(id.to_owned(), input);
        message
    }

    /// Handles the start of a task. Tasks that are no agents are ignored.
    pub(super) fn on_task_started(&mut self, line: &Value) -> Option<EngineMessage> {
        if line["task_type"] != LOCAL_AGENT {
            return None;
        }
        let task_id = line["task_id"].as_str()?;
        let tool_use_id = line["tool_use_id"].as_str()?;
        let input = self.calls.get(tool_use_id);
        let reported_type = line["subagent_type"].as_str().map(str::to_owned);
        let requested_type = input.and_then(|input| input.subagent_type.clone());
        let start = SubagentStart {
            tool_use_id: tool_use_id.to_owned(),
            agent_id: Some(task_id.to_owned()),
            subagent_type: reported_type
                .or(requested_type)
                .unwrap_or_else(|| "general-purpose".into()),
            model: input.and_then(|input| input.model.clone()),
        };
        self.spawned.insert(task_id.to_owned(), tool_use_id.to_owned());
        let agent = TrackedSubagent { start: start.clone(), has_ended: false };
        self.alive.insert(task_id.to_owned(), agent);
        Some(EngineMessage::SubagentStarted(start))
    }

    /// Handles a new status of a task.
    pub(super) fn on_task_updated(&mut self, line: &Value) -> Option<EngineMessage> {
        let is_error = ending(line["patch"]["status"].as_str()?)?;
        self.alive.get_mut(line["task_id"].as_str()?)?.end(is_error)
    }

    /// Handles the message that tells the model of a task's end.
    pub(super) fn on_task_notification(&mut self, line: &Value) -> Option<EngineMessage> {
        let is_error = ending(line["status"].as_str()?)?;
        self.alive.remove(line["task_id"].as_str()?)?.end(is_error)
    }

    /// Handles the result of a call. If the call spawned an agent, the agent has ended, unless it
    /// continues in the background.
    pub(super) fn on_tool_result(
        &mut self,
        tool_use_id: &str,
        is_error: bool,
        details: &Value,
    ) -> Option<EngineMessage> {
        if details["isAsync"] == true || details["status"] == "async_launched" {
            return None;
        }
        let found = self.alive.iter().find(|(_, agent)| agent.start.tool_use_id == tool_use_id);
        let task_id = found?.0.clone();
        self.alive.remove(&task_id)?.end(is_error)
    }

    pub(super) fn spawning_call(&self, agent_id: &str) -> Option<&str> {
        self.spawned.get(agent_id).map(String::as_str)
    }

    /// Whether the model was told of every end.
    pub(super) fn all_reported(&self) -> bool {
        self.alive.is_empty()
    }

    /// Whether all have ended, even if the model was not told yet.
    pub(super) fn all_ended(&self) -> bool {
        self.alive.values().all(|agent| agent.has_ended)
    }
}

impl TrackedSubagent {
    fn end(&mut self, is_error: bool) -> Option<EngineMessage> {
        if std::mem::replace(&mut self.has_ended, true) {
            return None;
        }
        let tool_use_id = self.start.tool_use_id.clone();
        Some(EngineMessage::SubagentEnded { tool_use_id, is_error })
    }
}

/// Whether a final status is a failure; `None` if the status is not final.
fn ending(status: &str) -> Option<bool> {
    match status {
        "completed" => Some(false),
        "failed" | "killed" | "stopped" => Some(true),
        _ => None,
    }
}
