//! What an engine tells of its work, in one vocabulary for all engines.

use serde_json::Value;

use super::usage::Usage;

#[derive(Clone, Debug, PartialEq)]
pub enum EngineMessage {
    /// The engine's session is open. An engine may say so again; the first one counts.
    Started {
        session_id: String,
        model: String,
    },
    /// A piece of the main thread's text, as it arrives.
    TextDelta {
        text: String,
    },
    /// A whole block of text. `streamed` if its pieces were told before.
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
    /// Tokens of one request to a model, up to now: a later one of the same `request` replaces it.
    Spent {
        who: Spender,
        request: String,
        model: String,
        usage: Usage,
    },
    /// What one should know and the run survives.
    Warning {
        code: &'static str,
        message: String,
        server: Option<String>,
    },
    /// Something that only the engine's own log would show: kept as a message, told to nobody.
    Note {
        subtype: String,
        content: Value,
    },
    /// The engine has ended its work. An engine with work in the background may say so several
    /// times; the last one counts.
    Finished(Finish),
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
    /// As asked for, an alias perhaps; None if the engine chooses.
    pub model: Option<String>,
}

/// Who spent tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spender {
    Main,
    /// By the call that spawned it.
    Subagent(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finish {
    pub result: String,
    pub is_error: bool,
    pub errors: Vec<String>,
    pub num_turns: u64,
    pub session_id: Option<String>,
    /// The limit that ended it.
    pub limit: Option<&'static str>,
}
