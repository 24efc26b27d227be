//! The subagents of a run, from the call that spawns one to the last that is heard of it.

use std::collections::HashMap;

use serde_json::Value;
use shikiri_model::execution::{EngineMessage, SubagentStart};

/// The tool that spawns: its name, and the one that it had before.
const SPAWNING: [&str; 2] = ["Agent", "Task"];
/// The only kind of task that is a subagent.
const LOCAL_AGENT: &str = "local_agent";

#[derive(Debug, Default)]
pub(super) struct Agents {
    /// What a call asked for, by its id.
    calls: HashMap<String, Asked>,
    /// By the task's id, which is the agent's.
    alive: HashMap<String, Agent>,
    /// Of all that were ever heard of: the call that spawned an agent.
    spawned: HashMap<String, String>,
}

#[derive(Debug, Default)]
struct Asked {
    subagent_type: Option<String>,
    model: Option<String>,
}

#[derive(Debug)]
struct Agent {
    start: SubagentStart,
    /// It has ended, and the model is still to hear of it.
    has_ended: bool,
}

impl Agents {
    /// A call, if it is one that spawns. The agent may be known already: then this tells what was
    /// asked for it.
    pub(super) fn called(&mut self, id: &str, tool: &str, input: &Value) -> Option<EngineMessage> {
        if !SPAWNING.contains(&tool) {
            return None;
        }
        let text = |name: &str| input[name].as_str().map(str::to_owned);
        let asked = Asked { subagent_type: text("subagent_type"), model: text("model") };
        let agent = self.alive.values_mut().find(|agent| agent.start.tool_use_id == id);
        let told = agent.filter(|agent| asked.model != agent.start.model).map(|agent| {
            agent.start.model.clone_from(&asked.model);
            EngineMessage::SubagentStarted(agent.start.clone())
        });
        self.calls.insert(id.to_owned(), asked);
        told
    }

    /// A task has begun; tasks that are no agents are nobody's business.
    pub(super) fn started(&mut self, line: &Value) -> Option<EngineMessage> {
        if line["task_type"] != LOCAL_AGENT {
            return None;
        }
        let task_id = line["task_id"].as_str()?;
        let tool_use_id = line["tool_use_id"].as_str()?;
        let asked = self.calls.get(tool_use_id);
        let told_type = line["subagent_type"].as_str().map(str::to_owned);
        let asked_type = asked.and_then(|asked| asked.subagent_type.clone());
        let start = SubagentStart {
            tool_use_id: tool_use_id.to_owned(),
            agent_id: Some(task_id.to_owned()),
            subagent_type: told_type.or(asked_type).unwrap_or_else(|| "general-purpose".into()),
            model: asked.and_then(|asked| asked.model.clone()),
        };
        self.spawned.insert(task_id.to_owned(), tool_use_id.to_owned());
        let agent = Agent { start: start.clone(), has_ended: false };
        self.alive.insert(task_id.to_owned(), agent);
        Some(EngineMessage::SubagentStarted(start))
    }

    /// A task has another status.
    pub(super) fn updated(&mut self, line: &Value) -> Option<EngineMessage> {
        let is_error = ending(line["patch"]["status"].as_str()?)?;
        self.alive.get_mut(line["task_id"].as_str()?)?.end(is_error)
    }

    /// The model hears of a task's end: nothing more will come of it.
    pub(super) fn notified(&mut self, line: &Value) -> Option<EngineMessage> {
        let is_error = ending(line["status"].as_str()?)?;
        self.alive.remove(line["task_id"].as_str()?)?.end(is_error)
    }

    /// A call has returned. If it was one that spawned, its agent has ended, unless it goes on in
    /// the background.
    pub(super) fn returned(
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

    pub(super) fn call_of(&self, agent_id: &str) -> Option<&str> {
        self.spawned.get(agent_id).map(String::as_str)
    }

    /// Whether nothing more will come of any of them.
    pub(super) fn are_gone(&self) -> bool {
        self.alive.is_empty()
    }

    /// Whether all have ended, though the model may still hear of some.
    pub(super) fn have_ended(&self) -> bool {
        self.alive.values().all(|agent| agent.has_ended)
    }
}

impl Agent {
    fn end(&mut self, is_error: bool) -> Option<EngineMessage> {
        if std::mem::replace(&mut self.has_ended, true) {
            return None;
        }
        let tool_use_id = self.start.tool_use_id.clone();
        Some(EngineMessage::SubagentEnded { tool_use_id, is_error })
    }
}

/// Whether a status is an end, and if so whether a bad one.
fn ending(status: &str) -> Option<bool> {
    match status {
        "completed" => Some(false),
        "failed" | "killed" | "stopped" => Some(true),
        _ => None,
    }
}
