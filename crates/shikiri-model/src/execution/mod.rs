//! An execution: a run that carries one turn of a conversation through an engine.
//!
//! An engine tells what it does in `EngineMessage`s; the `Processor` turns them into events for
//! readers, messages and tool calls for the record, and a `Tally` of what was spent.

mod message;
mod processor;
mod records;
mod tally;
mod tools;
mod usage;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use message::{EngineMessage, Finish, Spender, SubagentStart, ToolUse};
pub use processor::{Expected, Message, MessageKind, Processor};
pub use records::{MessageLog, SessionFiles, ToolLog, UsageLog};
pub use tally::{PriceList, SpenderKind, Tally, UsageRow, total};
pub use tools::{ToolCall, ToolTracker};
pub use usage::{Cost, Price, Prices, Usage};

use crate::confinement::ConfinementLevel;
use crate::ids::{ConversationId, ModelId};
use crate::models::EngineKind;
use crate::run::RunError;

/// What a run is besides, if it is an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    pub conversation: ConversationId,
    /// 1 for the conversation's first.
    pub turn: u64,
    pub model_id: ModelId,
    pub engine: EngineKind,
    pub executor: Executor,
    /// Its steps are kept, so that another process can go on with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goes_on: bool,
    /// How far what the engine starts is kept from the machine; None if it starts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<ConfinementLevel>,
    /// The whole run's, once it has ended.
    #[serde(default)]
    pub usage: Usage,
    #[serde(default)]
    pub total_cost_usd: Cost,
}

/// On whose behalf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executor {
    pub user_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// How an execution ended, and what it cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    pub ending: Ending,
    pub usage: Usage,
    pub total_cost_usd: Cost,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// The engine gave a result: the data of the `result` event, and what was wrong with it.
    Result {
        data: Value,
        error: Option<RunError>,
    },
    Error(RunError),
}
