//! An execution: a run that processes one turn of a conversation with an engine.
//!
//! An engine reports its work in [`EngineMessage`]s. The [`MessageProcessor`] turns them into
//! events for readers, messages and tool calls to store, and a [`UsageLedger`] of the tokens spent.

mod built_in_prices;
mod engine_message;
mod execution_records;
mod message_processor;
mod progress;
mod token_usage;
mod tool_tracker;
mod usage_ledger;
mod usage_totals;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use built_in_prices::{PRICES_AS_OF, built_in_prices};
pub use engine_message::{EngineFinish, EngineMessage, SubagentStart, TokenSpender, ToolUse};
pub use execution_records::{MessageLog, SessionFiles, ToolLog, UsageLog};
pub use message_processor::{ConversationMessage, MessageKind, MessageProcessor, ProcessorConfig};
pub use progress::ExecutionProgress;
pub use token_usage::{Cost, ModelPrices, TokenPrice, TokenUsage};
pub use tool_tracker::{ToolCall, ToolTracker};
pub use usage_ledger::{PriceList, SpenderKind, UsageLedger, UsageRow, total};
pub use usage_totals::{UsageGrouping, UsageShare, UsageSpan, bill_totals};

use crate::confinement::ConfinementLevel;
use crate::ids::{ConversationId, ModelId};
use crate::models::EngineKind;
use crate::run::RunError;

/// The part of a run that only executions have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    pub conversation: ConversationId,
    /// The number of the turn in the conversation, from 1.
    pub turn: u64,
    pub model_id: ModelId,
    pub engine: EngineKind,
    pub executor: ExecutionUser,
    /// Its steps are stored, so that another process can resume it. Stored by its first name.
    #[serde(rename = "goes_on", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_resumable: bool,
    /// The confinement of the programs that the engine starts; None if it starts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<ConfinementLevel>,
    /// The usage of the whole run, set at its end.
    #[serde(default)]
    pub usage: TokenUsage,
    #[serde(default)]
    pub total_cost_usd: Cost,
}

/// The person or agent that the execution acts for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionUser {
    pub user_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// The outcome of an execution, and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutionConclusion {
    pub ending: ExecutionOutcome,
    pub usage: TokenUsage,
    pub total_cost_usd: Cost,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExecutionOutcome {
    /// The engine returned a result: the data of the `result` event, and the error, if any.
    Result { data: Value, error: Option<RunError> },
    /// The execution was stopped, or the engine failed. `partial` is what there was until then, in
    /// the form of a result; readers get the `error` event alone.
    Error { error: RunError, partial: Option<Value> },
}
