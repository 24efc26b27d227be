//! The input of a hook: one JSON object from Claude Code, of which a few fields matter here.
//! Versions differ, so a field of another type is treated as missing.

use serde_json::{Map, Value};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookInput {
    pub session_id: String,
    /// The event's name, such as `PreToolUse` or `SubagentStart`.
    pub event: String,
    pub transcript_path: Option<String>,
    pub cwd: Option<String>,
    /// Only inside a subagent.
    pub agent_id: Option<String>,
    pub agent_type: Option<String>,
    pub tool_name: Option<String>,
    pub tool_use_id: Option<String>,
    pub tool_input: Map<String, Value>,
    pub tool_response: Map<String, Value>,
    /// For `SessionStart`: startup, resume, clear, compact or fork.
    pub source: Option<String>,
    /// For `SessionStart` of a session with a history: the tokens in its context.
    pub context_tokens: Option<u64>,
    /// For `UserPromptSubmit`.
    pub prompt: Option<String>,
    /// For `SubagentStop`.
    pub agent_transcript_path: Option<String>,
    /// The agent's last message, if the event has it.
    pub last_message: Option<String>,
    /// Background tasks that still run, if the event lists them.
    pub background: Option<Vec<HookBackgroundTask>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookBackgroundTask {
    pub id: String,
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookInputError {
    #[error("no JSON object on standard input: {0}")]
    NoJson(String),
    #[error("the payload has no {0}")]
    Missing(&'static str),
}

/// Claude Code's names and ids are shorter than this.
const LONGEST_NAME: usize = 256;
/// Longer paths cannot be opened.
const LONGEST_PATH: usize = 4_096;

impl HookInput {
    pub fn parse(text: &[u8]) -> Result<Self, HookInputError> {
        let value: Value = serde_json::from_slice(text)
            .map_err(|error| HookInputError::NoJson(error.to_string()))?;
        let Value::Object(mut fields) = value else {
            return Err(HookInputError::NoJson("it is not an object".to_owned()));
        };
        let context_tokens = fields.get("context_tokens").and_then(Value::as_u64);
        let mut name = |field: &str| text_of(&mut fields, field, LONGEST_NAME);
        let session_id = name("session_id").ok_or(HookInputError::Missing("session_id"))?;
        let event = name("hook_event_name").ok_or(HookInputError::Missing("hook_event_name"))?;
        Ok(Self {
            session_id,
            event,
            agent_id: name("agent_id"),
            agent_type: name("agent_type"),
            tool_name: name("tool_name"),
            tool_use_id: name("tool_use_id"),
            source: name("source"),
            context_tokens,
            transcript_path: text_of(&mut fields, "transcript_path", LONGEST_PATH),
            agent_transcript_path: text_of(&mut fields, "agent_transcript_path", LONGEST_PATH),
            cwd: text_of(&mut fields, "cwd", LONGEST_PATH),
            prompt: text_of(&mut fields, "prompt", usize::MAX),
            tool_input: object_of(&mut fields, "tool_input"),
            tool_response: object_of(&mut fields, "tool_response"),
            last_message: text_of(&mut fields, "last_assistant_message", usize::MAX),
            background: background_of(&mut fields),
        })
    }

    /// Whether the tool starts a subagent: `Agent`, or `Task` in older versions.
    pub fn is_spawn_call(&self) -> bool {
        matches!(self.tool_name.as_deref(), Some("Agent" | "Task"))
    }

    /// Whether the subagent was started by a workflow, whose script no event shows call by call.
    pub(super) fn is_of_workflow(&self) -> bool {
        self.agent_type.as_deref() == Some("workflow-subagent")
    }

    pub fn input(&self, field: &str) -> Option<&str> {
        self.tool_input.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    pub fn response(&self, field: &str) -> Option<&str> {
        self.tool_response.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Whether the tool runs a script that starts subagents.
    pub fn is_workflow_call(&self) -> bool {
        self.tool_name.as_deref() == Some("Workflow")
    }

    /// Whether the prompts of a workflow's agents may name roles. A workflow that is called by its
    /// name does not show its script.
    pub(super) fn may_name_roles(&self) -> bool {
        let shown = ["script", "args"].map(|field| self.tool_input.get(field));
        shown[0].is_none()
            || shown.into_iter().flatten().any(|value| value.to_string().contains("[ROLE:"))
    }

    /// Claude Code's file about a subagent, in its folder beside the session's transcript. Those of
    /// a workflow's agents lie in a folder of each workflow under [`Self::workflows_folder`].
    pub fn subagent_file(&self, agent_id: &str, ending: &str) -> Option<String> {
        let name = subagent_file_name(agent_id, ending)?;
        Some(format!("{}/subagents/{name}", self.session_folder()?))
    }

    /// The folder with one folder for each workflow of the session.
    pub fn workflows_folder(&self) -> Option<String> {
        Some(format!("{}/subagents/workflows", self.session_folder()?))
    }

    fn session_folder(&self) -> Option<&str> {
        self.transcript_path.as_deref()?.strip_suffix(".jsonl")
    }
}

/// None if the id, which becomes part of a path, has other characters than ids have.
pub fn subagent_file_name(agent_id: &str, ending: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    agent_id.chars().all(is_plain).then(|| format!("agent-{agent_id}{ending}"))
}

fn text_of(fields: &mut Map<String, Value>, name: &str, longest: usize) -> Option<String> {
    match fields.remove(name) {
        Some(Value::String(text)) if !text.is_empty() && text.len() <= longest => Some(text),
        _ => None,
    }
}

fn object_of(fields: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
    match fields.remove(name) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

fn background_of(fields: &mut Map<String, Value>) -> Option<Vec<HookBackgroundTask>> {
    let Some(Value::Array(tasks)) = fields.remove("background_tasks") else { return None };
    let text = |task: &Value, field: &str| task[field].as_str().unwrap_or_default().to_owned();
    Some(
        tasks
            .iter()
            .map(|t| HookBackgroundTask { id: text(t, "id"), kind: text(t, "type") })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_of_another_type_is_not_told() {
        let payload = HookInput::parse(
            r#"{"session_id":"一","hook_event_name":"PreToolUse","agent_id":7,"tool_input":"x",
                "agent_type":"","transcript_path":null,"background_tasks":[{"id":"a"},3]}"#
                .as_bytes(),
        )
        .unwrap();
        let background = vec![
            HookBackgroundTask { id: "a".to_owned(), kind: String::new() },
            HookBackgroundTask::default(),
        ];
        let expected = HookInput {
            session_id: "一".to_owned(),
            event: "PreToolUse".to_owned(),
            background: Some(background),
            ..HookInput::default()
        };
        assert_eq!(payload, expected);
    }

    #[test]
    fn without_a_session_or_an_event_there_is_nothing_to_do() {
        let refused = |text: &str| HookInput::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(refused("").starts_with("no JSON object on standard input"));
        assert!(refused("[1]").contains("not an object"));
        assert_eq!(refused(r#"{"hook_event_name":"Stop"}"#), "the payload has no session_id");
        assert_eq!(refused(r#"{"session_id":"s"}"#), "the payload has no hook_event_name");
        let long = format!(r#"{{"session_id":"{}"}}"#, "x".repeat(300));
        assert_eq!(refused(&long), "the payload has no session_id");
    }

    #[test]
    fn an_id_cannot_lead_out_of_the_subagents_folder() {
        let payload =
            HookInput { transcript_path: Some("/p/s.jsonl".to_owned()), ..HookInput::default() };
        let file = |id| payload.subagent_file(id, ".meta.json");
        assert_eq!(file("a1").as_deref(), Some("/p/s/subagents/agent-a1.meta.json"));
        assert_eq!(file("../../x"), None);
        assert_eq!(HookInput::default().subagent_file("a1", ""), None);
    }
}
