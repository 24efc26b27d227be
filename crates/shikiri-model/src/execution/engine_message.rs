//! Messages from an engine about its work, the same for all engines.

use serde_json::Value;

use super::token_usage::TokenUsage;
use crate::run::WarningCode;

#[derive(Clone, Debug, PartialEq)]
pub enum EngineMessage {
    /// The engine's session is open. An engine may repeat this; the first one counts.
    Started {
        session_id: String,
        model: String,
    },
    /// A piece of the main thread's text, as it is streamed.
    TextDelta {
        text: String,
    },
    /// A complete block of text. `streamed` if its pieces were sent before.
    Text {
        text: String,
        parent: Option<String>,
        streamed: bool,
    },
    Thinking {
        text: String,
        parent: Option<String>,
    },
    ToolUse(ToolUse),
    ToolResult {
        tool_use_id: String,
        content: Value,
        is_error: bool,
        parent: Option<String>,
    },
    SubagentStarted(SubagentStart),
    SubagentEnded {
        tool_use_id: String,
        is_error: bool,
    },
    /// The tokens of one request to a model so far. A later message for the same `request` replaces
    /// it.
    Spent {
        who: TokenSpender,
        request: String,
        model: String,
        usage: TokenUsage,
    },
    /// A problem that does not stop the run.
    Warning {
        code: WarningCode,
        message: String,
        server: Option<String>,
    },
    /// A note of the engine's own log. It is stored as a message and not streamed to readers.
    Note {
        subtype: String,
        content: Value,
    },
    /// The engine has finished. An engine with work in the background may send this several times;
    /// the last one counts.
    Finished(EngineFinish),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse {
    pub id: String,
    pub name: String,
    pub input: Value,
    /// The call of the subagent that made this call; None on the main thread.
    pub parent: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SubagentStart {
    /// The call that spawned it.
    pub tool_use_id: String,
    pub agent_id: Option<String>,
    pub subagent_type: String,
    /// As requested, possibly an alias; None if the engine chooses.
    pub model: Option<String>,
}

/// The thread that spent tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenSpender {
    Main,
    /// A subagent, by the call that spawned it.
    Subagent(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineFinish {
    pub result: String,
    pub is_error: bool,
    pub errors: Vec<String>,
    pub num_turns: u64,
    pub session_id: Option<String>,
    /// The limit that ended the turn.
    pub limit: Option<&'static str>,
}
