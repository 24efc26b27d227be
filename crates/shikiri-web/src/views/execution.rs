use serde::Serialize;
use serde_json::Value;
use shikiri_model::confinement::ConfinementLevel;
use shikiri_model::execution::{Cost, ExecutionUser, SpenderKind, TokenUsage, ToolCall, UsageRow};
use shikiri_model::ids::{ConversationId, ModelId, RunId};
use shikiri_model::record::StoredDocument;
use shikiri_model::run::{Run, RunError, RunStatus};
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

use super::schemas::{ExecutorSchema, RunErrorSchema, UsageSchema};
use super::words::RunStatusSchema;

/// One turn of a conversation.
#[derive(Serialize, ToSchema)]
#[schema(as = Execution)]
pub struct ExecutionJson {
    /// Also the id of a run.
    #[schema(value_type = String)]
    id: RunId,
    #[schema(value_type = String)]
    conversation_id: Option<ConversationId>,
    #[schema(value_type = RunStatusSchema)]
    status: RunStatus,
    /// 1 for the conversation's first.
    turn: u64,
    #[schema(value_type = String)]
    model_id: Option<ModelId>,
    engine: String,
    /// How far the programs of the turn were kept from the machine: `namespaces`, `landlock` or
    /// `none`. Missing for an engine that starts none.
    #[serde(skip_serializing_if = "Option::is_none")]
    confinement: Option<&'static str>,
    #[schema(value_type = Option<ExecutorSchema>)]
    executor: Option<ExecutionUser>,
    user_input: Value,
    preferred_skills: Value,
    /// The answer; of one that was stopped, what there was of it.
    result: Option<Value>,
    partial: bool,
    session_id: Option<Value>,
    num_turns: Option<Value>,
    duration_ms: Option<Value>,
    #[schema(value_type = Option<RunErrorSchema>)]
    error: Option<RunError>,
    /// The whole run's, subagents included; while it runs, nothing.
    #[schema(value_type = UsageSchema)]
    usage: TokenUsage,
    #[schema(value_type = f64)]
    total_cost_usd: Cost,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
}

/// What one spender spent on one model. An execution's rows add up to its usage and cost.
#[derive(Serialize, ToSchema)]
#[schema(as = UsageRow)]
pub(crate) struct UsageRowJson {
    #[schema(value_type = String)]
    kind: SpenderKind,
    /// The call that spawned the subagent.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_use_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subagent_type: Option<String>,
    model: String,
    #[schema(value_type = UsageSchema)]
    usage: TokenUsage,
    #[schema(value_type = f64)]
    cost_usd: Cost,
    #[schema(value_type = RunStatusSchema)]
    status: RunStatus,
}

/// A call of a tool.
#[derive(Serialize, ToSchema)]
#[schema(as = ToolCall)]
pub(crate) struct ToolCallJson {
    tool_use_id: String,
    tool_name: String,
    tool_input: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_tool_use_id: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
    duration_ms: Option<u64>,
    is_error: Option<bool>,
}

/// All there is, on one page.
#[derive(Serialize, ToSchema)]
#[schema(as = Whole)]
pub(crate) struct UnpagedList<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next_cursor: Option<String>,
}

impl<T> UnpagedList<T> {
    pub(crate) fn new(items: impl IntoIterator<Item = T>) -> Self {
        Self { items: items.into_iter().collect(), next_cursor: None }
    }
}

impl From<StoredDocument<Run>> for ExecutionJson {
    fn from(stored: StoredDocument<Run>) -> Self {
        let StoredDocument { created_at, updated_at, value: run, .. } = stored;
        let execution = run.execution;
        let result = run.result.as_ref();
        let part = |name: &str| result.and_then(|data| data.get(name)).cloned();
        let of = |name: &str| run.input.get(name).cloned().unwrap_or_default();
        Self {
            user_input: of("user_input"),
            preferred_skills: of("preferred_skills"),
            result: part("result"),
            partial: part("partial") == Some(Value::Bool(true)),
            session_id: part("session_id"),
            num_turns: part("num_turns"),
            duration_ms: part("duration_ms"),
            turn: execution.as_ref().map_or(0, |execution| execution.turn),
            confinement: execution
                .as_ref()
                .and_then(|execution| execution.confinement)
                .map(ConfinementLevel::as_str),
            engine: execution.as_ref().map_or("", |e| e.engine.as_str()).to_owned(),
            model_id: execution.as_ref().map(|execution| execution.model_id.clone()),
            conversation_id: execution.as_ref().map(|execution| execution.conversation.clone()),
            usage: execution.as_ref().map(|e| e.usage).unwrap_or_default(),
            total_cost_usd: execution.as_ref().map(|e| e.total_cost_usd).unwrap_or_default(),
            executor: execution.map(|execution| execution.executor),
            status: run.status,
            error: run.error,
            id: run.id,
            created_at,
            updated_at,
            ended_at: run.ended_at,
        }
    }
}

impl UsageRowJson {
    pub(crate) fn new(row: UsageRow, status: RunStatus) -> Self {
        Self {
            kind: row.kind,
            tool_use_id: row.tool_use_id,
            agent_id: row.agent_id,
            subagent_type: row.subagent_type,
            model: row.model,
            usage: row.usage,
            cost_usd: row.cost_usd,
            status,
        }
    }
}

impl From<ToolCall> for ToolCallJson {
    fn from(call: ToolCall) -> Self {
        Self {
            tool_use_id: call.tool_use_id,
            tool_name: call.tool_name,
            tool_input: call.tool_input,
            parent_tool_use_id: call.parent_tool_use_id,
            started_at: call.started_at,
            ended_at: call.ended_at,
            duration_ms: call.duration_ms,
            is_error: call.is_error,
        }
    }
}
