//! OpenAPI schemas of records that go out as the model has them.
#![expect(dead_code, reason = "read by utoipa alone")]

use serde_json::Value;
use shikiri_model::execution::TokenPrice;
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

use super::words::AuditActionSchema;

#[derive(ToSchema)]
#[schema(as = Executor)]
pub(crate) struct ExecutorSchema {
    user_id: String,
    name: Option<String>,
    email: Option<String>,
}

/// Tokens.
#[derive(ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageSchema {
    input_tokens: u64,
    output_tokens: u64,
    cache_write_5m_tokens: u64,
    cache_write_1h_tokens: u64,
    cache_read_tokens: u64,
}

#[derive(ToSchema)]
#[schema(as = RunError)]
pub(crate) struct RunErrorSchema {
    code: String,
    message: String,
}

#[derive(ToSchema)]
#[schema(as = InquiryError)]
pub(crate) struct InquiryErrorSchema {
    code: String,
    message: String,
}

/// How long each part took, in milliseconds.
#[derive(ToSchema)]
#[schema(as = InquiryTimings)]
pub(crate) struct TimingsSchema {
    connect_ms: u64,
    wait_input_ms: u64,
    input_ms: u64,
    send_ms: u64,
    wait_response_ms: u64,
    total_ms: u64,
}

/// Dollars per million tokens.
#[derive(ToSchema)]
#[schema(as = Prices)]
pub(crate) struct PricesSchema {
    #[schema(value_type = f64)]
    input: TokenPrice,
    #[schema(value_type = f64)]
    output: TokenPrice,
    #[schema(value_type = f64)]
    cache_write_5m: TokenPrice,
    #[schema(value_type = f64)]
    cache_write_1h: TokenPrice,
    #[schema(value_type = f64)]
    cache_read: TokenPrice,
}

/// What one tenant may use at once; null: the server's own limit alone counts.
#[derive(ToSchema)]
#[schema(as = Limits)]
pub(crate) struct LimitsSchema {
    max_concurrent_executions: Option<u32>,
    max_streams: Option<u32>,
    requests_per_minute: Option<u32>,
    /// Bytes of events, records, workspaces and engine homes.
    stored_bytes: Option<u64>,
}

/// An event as the log has it.
#[derive(ToSchema)]
#[schema(as = HookLogLine)]
pub(crate) struct HookLogSchema {
    id: i64,
    session_id: String,
    hook_name: String,
    event_type: String,
    agent_id: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    timestamp: Timestamp,
    /// `ok`, `injected`, `asked`, `blocked` or `ignored`.
    result: Option<String>,
    #[schema(value_type = Option<Object>)]
    details: Option<Value>,
    duration_ms: Option<i64>,
    tool_use_id: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = HookStats)]
pub(crate) struct HookStatsSchema {
    /// Of each event and hook, the most frequent first.
    hooks: Vec<HookFiguresSchema>,
    /// Of the 50 sessions that were heard of last.
    sessions: Vec<SessionFiguresSchema>,
}

#[derive(ToSchema)]
#[schema(as = HookFigures)]
pub(crate) struct HookFiguresSchema {
    event_type: String,
    hook_name: String,
    count: u64,
    injected: u64,
    blocked: u64,
    average_ms: Option<f64>,
    max_ms: Option<i64>,
}

#[derive(ToSchema)]
#[schema(as = HookSessionFigures)]
pub(crate) struct SessionFiguresSchema {
    session_id: String,
    count: u64,
    injected: u64,
    blocked: u64,
    /// Subagents that have not ended.
    active: u64,
    /// Of those, the ones without their convention.
    unprocessed: u64,
    #[schema(value_type = String, format = DateTime)]
    last_at: Timestamp,
}

/// One change of who may do what.
#[derive(ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct AuditSchema {
    seq: u64,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    who: ActorSchema,
    /// The address that the request came from.
    from: Option<String>,
    action: AuditActionSchema,
    /// Of the record that was changed: tenant, key, model, mcp_server, tool_pins, agent,
    /// membership or trust.
    kind: String,
    id: String,
    /// Whose it is; null for what is the whole server's.
    tenant: Option<String>,
    /// Names of the fields that were set or changed, never their values.
    fields: Vec<String>,
}

/// The holder of a key, a person at the command line, or the server itself.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = Actor)]
enum ActorSchema {
    Key { id: String, name: String },
    Cli { user: String },
    System,
}
