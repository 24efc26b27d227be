//! The requested limits of a turn.

use serde::{Deserialize, Serialize};

use crate::execution::Cost;
use crate::macros::text_enum;

/// Limits of an execution. None: not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutionLimits {
    /// Replies of the model on the main thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u64>,
    /// Tokens of every kind, in and out, of the main thread and all subagents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The cost of those tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Cost>,
    /// Tokens of each subagent, including its own subagents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<Box<ExecutionLimits>>,
}

text_enum! {
    /// The kind of a limit.
    pub enum LimitKind {
        MaxTurns = "max_turns",
        MaxTokens = "max_tokens",
        MaxCostUsd = "max_cost_usd",
    }
}

/// An invalid limit: its name and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LimitError {
    pub field: &'static str,
    pub reason: &'static str,
}

impl ExecutionLimits {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub fn check(&self) -> Result<(), LimitError> {
        let bad = |field, reason| Err(LimitError { field, reason });
        if self.max_turns == Some(0) {
            return bad("limits.max_turns", "must be at least 1");
        }
        if self.max_tokens == Some(0) {
            return bad("limits.max_tokens", "must be at least 1");
        }
        if self.max_cost_usd == Some(Cost::default()) {
            return bad("limits.max_cost_usd", "must be more than 0");
        }
        match &self.subagent {
            Some(inner) if inner.subagent.is_some() => {
                bad("limits.subagent", "holds the limits of every subagent, however deep")
            }
            Some(inner) => inner.check(),
            None => Ok(()),
        }
    }

    /// Whether a cost limit is set, so that prices must be known.
    pub fn needs_prices(&self) -> bool {
        self.max_cost_usd.is_some()
            || self.subagent.as_ref().is_some_and(|inner| inner.needs_prices())
    }

    /// The limits of a subagent.
    pub fn of_subagent(&self) -> Self {
        self.subagent.as_deref().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn implausible_limits_are_refused() {
        let check = |value| serde_json::from_value::<ExecutionLimits>(value).unwrap().check();
        for (bad, field) in [
            (json!({ "max_turns": 0 }), "limits.max_turns"),
            (json!({ "max_tokens": 0 }), "limits.max_tokens"),
            (json!({ "max_cost_usd": 0 }), "limits.max_cost_usd"),
            (json!({ "subagent": { "max_turns": 0 } }), "limits.max_turns"),
            (json!({ "subagent": { "subagent": {} } }), "limits.subagent"),
        ] {
            assert_eq!(check(bad).unwrap_err().field, field);
        }
        let good = json!({ "max_turns": 3, "max_cost_usd": 0.5, "subagent": { "max_tokens": 9 } });
        assert_eq!(check(good.clone()), Ok(()));
        let limits: ExecutionLimits = serde_json::from_value(good.clone()).unwrap();
        assert_eq!(serde_json::to_value(&limits).unwrap(), good);
        assert!(limits.needs_prices() && !limits.of_subagent().needs_prices());
        for bad in
            [json!({ "max_turns": -1 }), json!({ "turns": 1 }), json!({ "max_cost_usd": "1" })]
        {
            assert!(serde_json::from_value::<ExecutionLimits>(bad.clone()).is_err(), "{bad}");
        }
    }
}
