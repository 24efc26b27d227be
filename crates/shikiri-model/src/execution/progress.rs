//! What an execution has told its readers so far, by its events: for one whose process is gone.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::token_usage::{Cost, TokenUsage};
use super::usage_ledger::UsageRow;
use crate::event::NewEvent;
use crate::run::ExecutionEventName;

#[derive(Clone, Debug, Default)]
pub struct ExecutionProgress {
    text: String,
    session_id: Option<String>,
    /// The data of `subagent_start`, by the call that started it.
    subagents: BTreeMap<String, Value>,
}

impl ExecutionProgress {
    /// Takes the next event.
    pub fn take(&mut self, kind: &str, data: &str) {
        let is = |name: ExecutionEventName| kind == name.as_str();
        let is_followed = is(ExecutionEventName::TextDelta)
            || is(ExecutionEventName::SessionStart)
            || is(ExecutionEventName::SubagentStart)
            || is(ExecutionEventName::SubagentEnd);
        if !is_followed {
            return;
        }
        let Ok(data) = serde_json::from_str::<Value>(data) else { return };
        let call = data["tool_use_id"].as_str().unwrap_or_default().to_owned();
        if is(ExecutionEventName::TextDelta) {
            if data["parent_tool_use_id"].is_null() {
                self.text.push_str(data["text"].as_str().unwrap_or_default());
            }
        } else if is(ExecutionEventName::SessionStart) {
            self.session_id = data["session_id"].as_str().map(str::to_owned);
        } else if is(ExecutionEventName::SubagentStart) {
            self.subagents.insert(call, data);
        } else {
            self.subagents.remove(&call);
        }
    }

    /// The ends of the subagents that still ran.
    pub fn subagent_ends(&self, rows: &[UsageRow]) -> Vec<NewEvent> {
        let end = |(call, start): (&String, &Value)| {
            let own = rows.iter().filter(|row| row.tool_use_id.as_ref() == Some(call));
            let (mut usage, mut cost, mut data) =
                (TokenUsage::default(), Cost::default(), start.clone());
            for row in own {
                (usage, cost) = (usage + row.usage, cost + row.cost_usd);
                data["model"] = json!(row.model);
            }
            data["is_error"] = json!(true);
            data["usage"] = json!(usage);
            data["cost_usd"] = json!(cost);
            NewEvent::from_value(ExecutionEventName::SubagentEnd.as_str(), &data)
        };
        self.subagents.iter().map(end).collect()
    }

    /// The text so far in the form of a result; None if there was none.
    pub fn partial_result(&self, rows: &[UsageRow]) -> Option<Value> {
        let (usage, cost) = super::total(rows);
        (!self.text.is_empty()).then(|| {
            json!({
                "result": self.text, "is_error": true, "errors": [], "usage": usage,
                "total_cost_usd": cost, "num_turns": 0, "session_id": self.session_id,
                "partial": true,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::SpenderKind;

    #[test]
    fn what_was_told_is_known_without_the_process_that_told_it() {
        let mut progress = ExecutionProgress::default();
        assert_eq!(progress.partial_result(&[]), None);
        for (kind, data) in [
            ("session_start", json!({ "session_id": "s1", "turn": 1 })),
            ("text_delta", json!({ "text": "半" })),
            ("subagent_start", json!({ "tool_use_id": "t1", "subagent_type": "a", "model": "m" })),
            ("text_delta", json!({ "text": "its own", "parent_tool_use_id": "t1" })),
            ("subagent_start", json!({ "tool_use_id": "t2", "subagent_type": "b", "model": "m" })),
            ("subagent_end", json!({ "tool_use_id": "t2" })),
            ("text_delta", json!({ "text": "分" })),
            ("of_tomorrow", json!({ "text": "x" })),
        ] {
            progress.take(kind, &data.to_string());
        }
        let row = UsageRow {
            kind: SpenderKind::Subagent,
            tool_use_id: Some("t1".into()),
            agent_id: None,
            subagent_type: None,
            model: "m-2026".into(),
            usage: TokenUsage { output_tokens: 5, ..TokenUsage::default() },
            cost_usd: Cost::default(),
        };
        let ends = progress.subagent_ends(std::slice::from_ref(&row));
        let [end] = &ends[..] else { panic!("{ends:?}") };
        let end: Value = serde_json::from_str(end.data()).unwrap();
        assert_eq!((&end["tool_use_id"], &end["is_error"]), (&json!("t1"), &json!(true)));
        assert_eq!((&end["model"], &end["usage"]["output_tokens"]), (&json!("m-2026"), &json!(5)));
        let partial = progress.partial_result(&[row]).unwrap();
        assert_eq!((&partial["result"], &partial["session_id"]), (&json!("半分"), &json!("s1")));
        assert_eq!(
            (&partial["partial"], &partial["usage"]["output_tokens"]),
            (&json!(true), &json!(5))
        );
    }
}
