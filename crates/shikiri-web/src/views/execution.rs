use serde::Serialize;
use serde_json::Value;
use shikiri_model::confinement::ConfinementLevel;
use shikiri_model::execution::{Cost, Executor, SpenderKind, ToolCall, Usage, UsageRow};
use shikiri_model::ids::{ConversationId, ModelId, RunId};
use shikiri_model::record::Stored;
use shikiri_model::run::{Run, RunStatus};
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

use super::run::{ErrorJson, Status};

/// One turn of a conversation.
#[derive(Serialize, ToSchema)]
#[schema(as = Execution)]
pub struct ExecutionJson {
    /// Also the id of a run.
    #[schema(value_type = String)]
    id: RunId,
    #[schema(value_type = String)]
    conversation_id: Option<ConversationId>,
    status: Status,
    /// 1 for the conversation's first.
    turn: u64,
    #[schema(value_type = String)]
    model_id: Option<ModelId>,
    engine: String,
    /// How far the programs of the turn were kept from the machine: `namespaces`, `landlock` or
    /// `none`. Missing for an engine that starts none.
    #[serde(skip_serializing_if = "Option::is_none")]
    confinement: Option<&'static str>,
    executor: Option<ExecutorJson>,
    user_input: Value,
    preferred_skills: Value,
    /// The answer; of one that was stopped, what there was of it.
    result: Option<Value>,
    partial: bool,
    session_id: Option<Value>,
    num_turns: Option<Value>,
    duration_ms: Option<Value>,
    error: Option<ErrorJson>,
    /// The whole run's, subagents included; while it runs, nothing.
    usage: UsageJson,
    #[schema(value_type = f64)]
    total_cost_usd: Cost,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Executor)]
pub(crate) struct ExecutorJson {
    user_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
}

/// Tokens.
#[derive(Serialize, ToSchema)]
#[schema(as = Usage)]
pub struct UsageJson {
    input_tokens: u64,
    output_tokens: u64,
    cache_write_5m_tokens: u64,
    cache_write_1h_tokens: u64,
    cache_read_tokens: u64,
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
    usage: UsageJson,
    #[schema(value_type = f64)]
    cost_usd: Cost,
    status: Status,
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
pub(crate) struct Whole<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next_cursor: Option<String>,
}

impl<T> Whole<T> {
    pub(crate) fn new(items: impl IntoIterator<Item = T>) -> Self {
        Self { items: items.into_iter().collect(), next_cursor: None }
    }
}

impl From<Stored<Run>> for ExecutionJson {
    fn from(stored: Stored<Run>) -> Self {
        let Stored { created_at, updated_at, value: run, .. } = stored;
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
            usage: execution.as_ref().map(|e| e.usage).unwrap_or_default().into(),
            total_cost_usd: execution.as_ref().map(|e| e.total_cost_usd).unwrap_or_default(),
            executor: execution.map(|execution| execution.executor.into()),
            status: run.status.into(),
            error: run.error.map(ErrorJson::from),
            id: run.id,
            created_at,
            updated_at,
            ended_at: run.ended_at,
        }
    }
}

impl From<Executor> for ExecutorJson {
    fn from(Executor { user_id, name, email }: Executor) -> Self {
        Self { user_id, name, email }
    }
}

impl From<Usage> for UsageJson {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_write_5m_tokens: usage.cache_write_5m_tokens,
            cache_write_1h_tokens: usage.cache_write_1h_tokens,
            cache_read_tokens: usage.cache_read_tokens,
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
            usage: row.usage.into(),
            cost_usd: row.cost_usd,
            status: status.into(),
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
