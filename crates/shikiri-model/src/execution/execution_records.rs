//! The records of an execution besides its events: messages, tool calls, usage.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ExecutionUser;
use super::message_processor::{ConversationMessage, MessageKind};
use super::tool_tracker::ToolCall;
use super::usage_ledger::UsageRow;
use crate::ids::{ConversationId, RunId, TenantId};
use crate::macros::document;
use crate::record::{Document, RecordColumns};
use crate::run::{Run, RunStatus};
use crate::time::Timestamp;

/// An id that sorts by `number` within its execution, where all rows are written at one time.
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
    /// The position in its execution, from 1.
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

/// The usage of one spender of an execution on one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageLog {
    pub id: String,
    pub tenant: TenantId,
    pub conversation: ConversationId,
    pub execution: RunId,
    pub executor: ExecutionUser,
    /// The final status of the execution.
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
        m: &ConversationMessage,
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
    /// The usage rows of a run that is an execution and has ended; None for any other run.
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

/// The files that an engine needs to resume a conversation, as they were after the last completed
/// turn. Files of a later, incomplete turn are not included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFiles {
    pub conversation: ConversationId,
    pub tenant: TenantId,
    pub session_id: String,
    /// File contents by their path in the engine's home.
    pub files: BTreeMap<String, String>,
}

document!(SessionFiles, "session_files", tenant, conversation);

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

            fn columns(&self) -> RecordColumns {
                RecordColumns { parent: Some(self.$parent.to_string()), ..RecordColumns::default() }
            }
        }
    };
}

log_of!(MessageLog, "message", conversation);
log_of!(ToolLog, "tool", execution);
log_of!(UsageLog, "usage", execution);
