//! What the newest lines of the log tell about sessions of Claude Code: which there are, and what
//! each of their agents did last.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::hook_reports::HookLogRecord;
use crate::macros::text_enum;
use crate::time::Timestamp;

text_enum! {
    /// What the main agent of a session does.
    pub enum HookSessionState {
        Working = "working",
        /// It has ended its turn: the next prompt is its user's.
        Idle = "idle",
        Ended = "ended",
    }
}

/// The tool that an agent called last. Whether the call has returned is not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastToolUse {
    pub tool: String,
    pub at: Timestamp,
}

/// A session as the log shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSessionActivity {
    pub session_id: String,
    pub state: HookSessionState,
    /// The newest event of the session, its subagents' included.
    pub last_event: String,
    pub last_at: Timestamp,
    pub main_tool: Option<LastToolUse>,
    /// By the id of the subagent.
    pub subagent_tools: BTreeMap<String, LastToolUse>,
}

/// The sessions in these lines of the log. Both are ordered newest first.
pub fn read_activity(lines: &[HookLogRecord]) -> Vec<HookSessionActivity> {
    let mut sessions: Vec<(HookSessionActivity, bool)> = Vec::new();
    for line in lines {
        let known = sessions.iter().position(|(known, _)| known.session_id == line.session_id);
        let at = known.unwrap_or_else(|| {
            sessions.push((HookSessionActivity::of(line), false));
            sessions.len() - 1
        });
        let (session, is_settled) = &mut sessions[at];
        session.note_tool(line);
        // The newest event of the main agent that tells its state.
        if let Some(state) = state_after(line).filter(|_| !*is_settled) {
            (session.state, *is_settled) = (state, true);
        }
    }
    sessions.into_iter().map(|(session, _)| session).collect()
}

/// What the main agent does after this event; None if the event does not tell.
fn state_after(line: &HookLogRecord) -> Option<HookSessionState> {
    let is_main = line.agent_id.is_none();
    match line.event_type.as_str() {
        "SessionEnd" => Some(HookSessionState::Ended),
        "Stop" | "StopFailure" | "SessionStart" if is_main => Some(HookSessionState::Idle),
        "UserPromptSubmit" | "PreToolUse" if is_main => Some(HookSessionState::Working),
        _ => None,
    }
}

impl HookSessionActivity {
    fn of(newest: &HookLogRecord) -> Self {
        Self {
            session_id: newest.session_id.clone(),
            state: HookSessionState::Working,
            last_event: newest.event_type.clone(),
            last_at: newest.timestamp,
            main_tool: None,
            subagent_tools: BTreeMap::new(),
        }
    }

    fn note_tool(&mut self, line: &HookLogRecord) {
        let tool = line.details.as_ref().and_then(|details| details.get("tool"));
        let Some(tool) = tool.and_then(Value::as_str).filter(|_| line.event_type == "PreToolUse")
        else {
            return;
        };
        let used = || LastToolUse { tool: tool.to_owned(), at: line.timestamp };
        match &line.agent_id {
            None => drop(self.main_tool.get_or_insert_with(used)),
            Some(agent) => drop(self.subagent_tools.entry(agent.clone()).or_insert_with(used)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Lines as they were written, oldest first: session, event, subagent, tool.
    fn activity(written: &[(&str, &str, Option<&str>, Option<&str>)]) -> Vec<HookSessionActivity> {
        let lines =
            written.iter().zip(1..).map(|((session, event, agent, tool), id)| HookLogRecord {
                id,
                session_id: (*session).to_owned(),
                hook_name: (*event).to_owned(),
                event_type: (*event).to_owned(),
                agent_id: agent.map(str::to_owned),
                timestamp: Timestamp::from_millis(id),
                result: None,
                details: tool.map(|tool| json!({ "tool": tool })),
                duration_ms: None,
                tool_use_id: None,
            });
        let mut lines: Vec<_> = lines.collect();
        lines.reverse();
        read_activity(&lines)
    }

    fn used(tool: &str, at: i64) -> LastToolUse {
        LastToolUse { tool: tool.to_owned(), at: Timestamp::from_millis(at) }
    }

    #[test]
    fn each_agent_has_its_last_tool() {
        let found = activity(&[
            ("old", "PreToolUse", None, Some("Grep")),
            ("s", "UserPromptSubmit", None, None),
            ("s", "PreToolUse", None, Some("Read")),
            ("s", "PreToolUse", None, Some("Agent")),
            ("s", "PreToolUse", Some("a1"), Some("Bash")),
            ("s", "PreToolUse", Some("a1"), Some("Edit")),
        ]);
        let names: Vec<_> = found.iter().map(|session| session.session_id.as_str()).collect();
        assert_eq!(names, ["s", "old"]);
        let session = &found[0];
        assert_eq!(session.main_tool, Some(used("Agent", 4)));
        assert_eq!(session.subagent_tools, BTreeMap::from([("a1".to_owned(), used("Edit", 6))]));
        assert_eq!((session.last_event.as_str(), session.last_at.as_millis()), ("PreToolUse", 6));
        assert_eq!(session.state, HookSessionState::Working);
    }

    #[test]
    fn a_subagent_that_works_does_not_make_its_idle_main_agent_work() {
        let state = |written: &[_]| activity(written)[0].state;
        let stopped = ("s", "Stop", None, None);
        assert_eq!(state(&[stopped]), HookSessionState::Idle);
        assert_eq!(
            state(&[stopped, ("s", "PreToolUse", Some("a"), Some("Bash"))]),
            HookSessionState::Idle
        );
        assert_eq!(
            state(&[stopped, ("s", "UserPromptSubmit", None, None)]),
            HookSessionState::Working
        );
        assert_eq!(state(&[stopped, ("s", "SessionEnd", None, None)]), HookSessionState::Ended);
        let resumed = [("s", "SessionEnd", None, None), ("s", "SessionStart", None, None)];
        assert_eq!(state(&resumed), HookSessionState::Idle);
    }
}
