//! What is kept of an execution besides its events: messages, tool calls, usage.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Executor;
use super::processor::{Message, MessageKind};
use super::tally::UsageRow;
use super::tools::ToolCall;
use crate::ids::{ConversationId, RunId, TenantId};
use crate::record::{Columns, Document};
use crate::run::{Run, RunStatus};
use crate::time::Timestamp;

/// An id that sorts in the order of `number` within its execution, all written at one time.
fn nth(prefix: &str, execution: &RunId, number: usize) -> String {
    let own = execution.as_str().rsplit_once('_').map_or(execution.as_str(), |(_, own)| own);
    format!("{prefix}{own}_{number:06}")
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageLog {
    pub id: String,
    pub tenant: TenantId,
    pub conversation: ConversationId,
    pub execution: RunId,
    pub turn: u64,
    /// Position in its execution, from 1.
    pub seq: usize,
    #[serde(rename = "type")]
    pub kind: MessageKind,
    #[serde(default)]
    pub subtype: Option<String>,
    pub content: Value,
    #[serde(default)]
    pub parent_tool_use_id: Option<String>,
    pub at: Timestamp,
}

/// One call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolLog {
    pub id: String,
    pub tenant: TenantId,
    pub execution: RunId,
    #[serde(flatten)]
    pub call: ToolCall,
}

/// What one spender of an execution spent on one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageLog {
    pub id: String,
    pub tenant: TenantId,
    pub conversation: ConversationId,
    pub execution: RunId,
    pub executor: Executor,
    /// How the execution ended.
    pub status: RunStatus,
    pub at: Timestamp,
    #[serde(flatten)]
    pub row: UsageRow,
}

impl MessageLog {
    pub fn new(
        run: &Run,
        conversation: &ConversationId,
        turn: u64,
        seq: usize,
        m: &Message,
    ) -> Self {
        Self {
            id: nth("msg_", &run.id, seq),
            tenant: run.tenant.clone(),
            conversation: conversation.clone(),
            execution: run.id.clone(),
            turn,
            seq,
            kind: m.kind,
            subtype: m.subtype.clone(),
            content: m.content.clone(),
            parent_tool_use_id: m.parent_tool_use_id.clone(),
            at: m.at,
        }
    }
}

impl ToolLog {
    pub fn new(run: &Run, number: usize, call: &ToolCall) -> Self {
        Self {
            id: nth("tul_", &run.id, number),
            tenant: run.tenant.clone(),
            execution: run.id.clone(),
            call: call.clone(),
        }
    }
}

impl UsageLog {
    /// A row of the bill of an execution that has ended; None if the run is none.
    pub fn new(run: &Run, number: usize, row: UsageRow, at: Timestamp) -> Option<Self> {
        let execution = run.execution.as_ref()?;
        Some(Self {
            id: nth("usg_", &run.id, number),
            tenant: run.tenant.clone(),
            conversation: execution.conversation.clone(),
            execution: run.id.clone(),
            executor: execution.executor.clone(),
            status: run.status,
            at,
            row,
        })
    }
}

/// What an engine needs to take up a conversation, as it was after the last completed turn. What
/// a later turn wrote that was not completed is not in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFiles {
    pub conversation: ConversationId,
    pub tenant: TenantId,
    pub session_id: String,
    /// Texts by their path below the engine's home.
    pub files: BTreeMap<String, String>,
}

impl Document for SessionFiles {
    const KIND: &'static str = "session_files";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.conversation.as_str()
    }

    fn columns(&self) -> Columns {
        Columns::default()
    }
}

macro_rules! log_of {
    ($name:ident, $kind:literal, $parent:ident) => {
        impl Document for $name {
            const KIND: &'static str = $kind;

            fn tenant(&self) -> TenantId {
                self.tenant.clone()
            }

            fn id(&self) -> &str {
                &self.id
            }

            fn columns(&self) -> Columns {
                Columns { parent: Some(self.$parent.to_string()), ..Columns::default() }
            }
        }
    };
}

log_of!(MessageLog, "message", conversation);
log_of!(ToolLog, "tool", execution);
log_of!(UsageLog, "usage", execution);
