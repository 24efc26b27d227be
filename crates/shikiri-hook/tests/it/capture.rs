//! What Claude Code sent to a hook, as it was captured; who is who in it; and every order in which
//! it could have come.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::world::Rng;

#[derive(Clone)]
pub(crate) struct Capture {
    pub(crate) name: String,
    pub(crate) events: Vec<Value>,
    /// What Claude Code wrote beside each subagent's transcript.
    pub(crate) metas: BTreeMap<String, Value>,
    /// Calls that no hook saw, by id, with their prompts: they are in the transcript only.
    pub(crate) unseen: BTreeMap<String, String>,
}

pub(crate) const NAMES: [&str; 25] = [
    "api-400",
    "background",
    "big-context",
    "compact-blocked",
    "compact-manual",
    "custom-agents",
    "deny-and-block",
    "five-a",
    "inject-context",
    "mcp",
    "named-agents-print-mode",
    "parallel",
    "parallel-2.1.197",
    "parallel-partial",
    "partial-updated-input",
    "permission-denied",
    "resume",
    "rewrite-agent-input",
    "slow-start-and-continue-false",
    "subagent-api-error",
    "subagent-stopped",
    "tasks-print-mode",
    "team-in-process",
    "tool-errors",
    "unset-background-2.1.197",
];

pub(crate) fn load(name: &str) -> Capture {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/captures");
    let read = |ending: &str| std::fs::read_to_string(format!("{folder}/{name}{ending}")).unwrap();
    let events = read(".jsonl");
    let events = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let metas = serde_json::from_str(&read(".meta.json")).unwrap();
    let mut capture = Capture { name: name.to_owned(), events, metas, unseen: BTreeMap::new() };
    // Its hooks were installed for subagents only.
    if name == "five-a" {
        let call = |n| (format!("toolu_r{n}"), format!("[ROLE:r{n}] work"));
        capture.unseen = (1..=5).map(call).collect();
    }
    capture
}

/// A main agent that spawns many of one type at once, with roles in turn.
pub(crate) fn many(count: usize, roles: &[&str]) -> Capture {
    let session = "11111111-2222-4333-8444-555555555555";
    let event = |name: &str, more: Value| common(session, name, &more);
    let mut events = Vec::new();
    let mut metas = BTreeMap::new();
    for n in 0..count {
        let input = spawn_input("general-purpose", roles[n % roles.len()]);
        events.push(event("PreToolUse", call(&format!("toolu_{n}"), &input)));
        metas.insert(format!("a{n:04}"), meta(&format!("toolu_{n}"), None));
    }
    for n in 0..count {
        events.extend(life(session, &format!("a{n:04}"), &[]));
    }
    for n in 0..count {
        let mut more =
            call(&format!("toolu_{n}"), &spawn_input("general-purpose", roles[n % roles.len()]));
        more["tool_response"] = json!({ "status": "completed", "agentId": format!("a{n:04}") });
        events.push(event("PostToolUse", more));
    }
    events.push(event("Stop", json!({ "background_tasks": [] })));
    Capture { name: format!("many {count}"), events, metas, unseen: BTreeMap::new() }
}

/// A coder that has two testers and a scribe work for it, all of one type.
pub(crate) fn nested() -> Capture {
    let session = "66666666-2222-4333-8444-555555555555";
    let outer = "a0001";
    let children = [("a0002", "tester"), ("a0003", "scribe"), ("a0004", "tester")];
    let mut metas = BTreeMap::from([(outer.to_owned(), meta("toolu_outer", None))]);
    let input = spawn_input("general-purpose", "coder");
    let mut events = vec![common(session, "PreToolUse", &call("toolu_outer", &input))];
    let mut inner = Vec::new();
    for (agent, role) in children {
        let mut more = call(&format!("toolu_{agent}"), &spawn_input("general-purpose", role));
        more["agent_id"] = json!(outer);
        more["agent_type"] = json!("general-purpose");
        inner.push(common(session, "PreToolUse", &more));
        metas.insert(agent.to_owned(), meta(&format!("toolu_{agent}"), Some(outer)));
    }
    let lives = children.iter().flat_map(|(agent, _)| life(session, agent, &[]));
    inner.extend(lives.collect::<Vec<_>>());
    for (agent, role) in children {
        let mut more = call(&format!("toolu_{agent}"), &spawn_input("general-purpose", role));
        more["agent_id"] = json!(outer);
        more["agent_type"] = json!("general-purpose");
        more["tool_response"] = json!({ "status": "completed", "agentId": agent });
        inner.push(common(session, "PostToolUse", &more));
    }
    events.extend(life(session, outer, &inner));
    let mut more = call("toolu_outer", &input);
    more["tool_response"] = json!({ "status": "completed", "agentId": outer });
    events.push(common(session, "PostToolUse", &more));
    events.push(common(session, "SessionEnd", &json!({})));
    Capture { name: "nested".to_owned(), events, metas, unseen: BTreeMap::new() }
}

fn common(session: &str, event: &str, more: &Value) -> Value {
    let mut payload = json!({
        "session_id": session, "hook_event_name": event, "cwd": "/project",
        "transcript_path": format!("/home/user/.claude/projects/-project/{session}.jsonl"),
    });
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    payload
}

fn spawn_input(kind: &str, role: &str) -> Value {
    json!({ "subagent_type": kind, "prompt": format!("[ROLE:{role}] Work.") })
}

fn call(id: &str, input: &Value) -> Value {
    json!({ "tool_name": "Agent", "tool_use_id": id, "tool_input": input })
}

fn meta(call: &str, parent: Option<&str>) -> Value {
    json!({ "agentType": "general-purpose", "toolUseId": call, "parentAgentId": parent })
}

/// What one agent does: it starts, uses two tools at once, does what else it does, and stops.
fn life(session: &str, agent: &str, inner: &[Value]) -> Vec<Value> {
    let event = |name: &str, more: Value| {
        let mut more = more;
        more["agent_id"] = json!(agent);
        more["agent_type"] = json!("general-purpose");
        common(session, name, &more)
    };
    let tool = |n: u32| json!({ "tool_name": "Bash", "tool_use_id": format!("t{agent}{n}"), "tool_input": {} });
    let mut events = vec![event("SubagentStart", json!({}))];
    events.extend([1, 2].map(|n| event("PreToolUse", tool(n))));
    events.extend([1, 2].map(|n| event("PostToolUse", tool(n))));
    events.push(event("PostToolBatch", json!({})));
    events.extend_from_slice(inner);
    events.push(event("SubagentStop", json!({})));
    events
}

pub(crate) fn text<'a>(event: &'a Value, field: &str) -> Option<&'a str> {
    event[field].as_str()
}

pub(crate) fn is_spawn(event: &Value) -> bool {
    matches!(text(event, "tool_name"), Some("Agent" | "Task"))
}

impl Capture {
    pub(crate) fn agents(&self) -> BTreeSet<String> {
        self.metas.keys().cloned().collect()
    }

    /// The role that an agent was spawned with: of the call that its file names or, of a teammate,
    /// the call with its name.
    pub(crate) fn role_of(&self, agent: &str) -> String {
        let meta = &self.metas[agent];
        let prompt = match text(meta, "toolUseId") {
            Some(id) => self
                .unseen
                .get(id)
                .map(String::as_str)
                .or_else(|| self.prompt(|e| text(e, "tool_use_id") == Some(id))),
            None => self.prompt(|e| text(&e["tool_input"], "name") == text(meta, "name")),
        };
        let (_, rest) = prompt.unwrap().split_once("[ROLE:").unwrap();
        rest.split_once(']').unwrap().0.to_owned()
    }

    fn prompt(&self, is_it: impl Fn(&Value) -> bool) -> Option<&str> {
        let spawn = self.events.iter().find(|event| is_spawn(event) && is_it(event))?;
        text(&spawn["tool_input"], "prompt")
    }

    /// The agents that calls spawned.
    pub(crate) fn spawned(&self) -> BTreeMap<&str, &str> {
        let told =
            |event: &'_ Value| is_spawn(event) && event["tool_response"]["agentId"].is_string();
        let answers = self.events.iter().filter(|event| told(event));
        let answers =
            answers.map(|event| (&event["tool_use_id"], &event["tool_response"]["agentId"]));
        let answers = answers.filter_map(|(call, agent)| Some((call.as_str()?, agent.as_str()?)));
        let metas = self.metas.iter();
        let metas =
            metas.filter_map(|(agent, meta)| Some((text(meta, "toolUseId")?, agent.as_str())));
        answers.chain(metas).collect()
    }

    pub(crate) fn uses_tools(&self, agent: &str) -> bool {
        self.events.iter().any(|event| {
            text(event, "hook_event_name") == Some("PreToolUse")
                && text(event, "agent_id") == Some(agent)
        })
    }

    /// For each event, those that must have come before it.
    pub(crate) fn causes(&self) -> Vec<Vec<usize>> {
        let spawned = self.spawned();
        (0..self.events.len()).map(|index| self.causes_of(index, &spawned)).collect()
    }

    fn causes_of(&self, index: usize, spawned: &BTreeMap<&str, &str>) -> Vec<usize> {
        let event = &self.events[index];
        let thread = text(event, "agent_id");
        let name = text(event, "hook_event_name").unwrap();
        let agent_of =
            |call: &Value| call["tool_use_id"].as_str().and_then(|id| spawned.get(id).copied());
        let returns = is_spawn(event) && name != "PreToolUse" && !goes_on(event);
        let returning = agent_of(event).filter(|_| returns);
        let is_end = matches!(name, "Stop" | "SessionEnd");
        let is_cause = |other: &Value| {
            let other_name = text(other, "hook_event_name").unwrap();
            let same_call = name != "PreToolUse" && other["tool_use_id"] == event["tool_use_id"];
            let author = text(other, "agent_id");
            // In one thread only tools run side by side.
            (author == thread && (!is_tool(name) || !is_tool(other_name) || same_call))
                // An agent starts when it is called, and a call in the foreground returns when the
                // agent is done.
                || (thread.is_some() && is_spawn(other) && other_name == "PreToolUse" && agent_of(other) == thread)
                || (returning.is_some() && author == returning)
                // An agent that is not told to work any more has ended before.
                || (is_end && author.is_some_and(|agent| !works(event, agent)))
        };
        (0..index).filter(|&earlier| is_cause(&self.events[earlier])).collect()
    }
}

fn is_tool(name: &str) -> bool {
    matches!(name, "PreToolUse" | "PostToolUse" | "PostToolUseFailure")
}

/// The call has returned, and its agent works on.
fn goes_on(event: &Value) -> bool {
    let status = text(&event["tool_response"], "status");
    matches!(status, Some("async_launched" | "teammate_spawned"))
}

/// Whether an event lists an agent as still working. Teammates are listed under other names.
fn works(event: &Value, agent: &str) -> bool {
    let tasks = event["background_tasks"].as_array();
    tasks
        .into_iter()
        .flatten()
        .any(|task| text(task, "id") == Some(agent) || text(task, "type") == Some("teammate"))
}

/// An order in which events can come that have these causes.
pub(crate) fn shuffled(causes: &[Vec<usize>], rng: &mut Rng) -> Vec<usize> {
    let mut open: Vec<usize> = causes.iter().map(Vec::len).collect();
    let mut effects = vec![Vec::new(); causes.len()];
    for (effect, causes) in causes.iter().enumerate() {
        for &cause in causes {
            effects[cause].push(effect);
        }
    }
    let mut ready: Vec<usize> = (0..causes.len()).filter(|&index| open[index] == 0).collect();
    let mut order = Vec::new();
    while !ready.is_empty() {
        let next = ready.swap_remove(rng.below(ready.len()));
        order.push(next);
        for &effect in &effects[next] {
            open[effect] -= 1;
            if open[effect] == 0 {
                ready.push(effect);
            }
        }
    }
    assert_eq!(order.len(), causes.len(), "causes in a circle");
    order
}
