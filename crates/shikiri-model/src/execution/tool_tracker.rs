//! Tracks every tool call from its start to its result.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::engine_message::ToolUse;
use crate::time::Timestamp;

/// One call of a tool. It may have no end, because a run can stop in the middle of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub tool_use_id: String,
    pub tool_name: String,
    pub tool_input: Value,
    #[serde(default)]
    pub parent_tool_use_id: Option<String>,
    pub started_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    #[serde(default)]
    pub duration_ms: Option<u64>,
    #[serde(default)]
    pub is_error: Option<bool>,
}

/// Calls in the order in which they began.
#[derive(Clone, Debug, Default)]
pub struct ToolTracker {
    calls: Vec<ToolCall>,
    places: HashMap<String, usize>,
}

impl ToolTracker {
    /// Returns false if this call is known: engines repeat calls after a retry.
    pub fn begin(&mut self, tool: &ToolUse, now: Timestamp) -> bool {
        if self.places.contains_key(&tool.id) {
            return false;
        }
        self.places.insert(tool.id.clone(), self.calls.len());
        self.calls.push(ToolCall {
            tool_use_id: tool.id.clone(),
            tool_name: tool.name.clone(),
            tool_input: tool.input.clone(),
            parent_tool_use_id: tool.parent.clone(),
            started_at: now,
            ended_at: None,
            duration_ms: None,
            is_error: None,
        });
        true
    }

    /// Records the first result of a call. A result without a call is ignored.
    pub fn end(&mut self, tool_use_id: &str, is_error: bool, now: Timestamp) {
        let place = self.places.get(tool_use_id);
        let Some(call) = place.and_then(|place| self.calls.get_mut(*place)) else { return };
        if call.ended_at.is_none() {
            let took = now.since(call.started_at);
            call.ended_at = Some(now);
            call.duration_ms = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            call.is_error = Some(is_error);
        }
    }

    pub fn calls(&self) -> &[ToolCall] {
        &self.calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(id: &str) -> ToolUse {
        ToolUse { id: id.into(), name: "読む".into(), input: json!({}), parent: None }
    }

    #[test]
    fn calls_end_in_any_order_and_only_once() {
        let mut tracker = ToolTracker::default();
        let at = Timestamp::from_millis;
        assert!(tracker.begin(&tool("a"), at(0)));
        assert!(tracker.begin(&tool("b"), at(10)));
        assert!(!tracker.begin(&tool("a"), at(20)));
        tracker.end("b", true, at(15));
        tracker.end("absent", false, at(16));
        tracker.end("a", false, at(30));
        tracker.end("a", true, at(99));

        let ended = |n: usize| {
            let call = &tracker.calls()[n];
            (call.tool_use_id.as_str(), call.duration_ms, call.is_error)
        };
        assert_eq!(ended(0), ("a", Some(30), Some(false)));
        assert_eq!(ended(1), ("b", Some(5), Some(true)));
        assert_eq!(tracker.calls().len(), 2);
    }
}
