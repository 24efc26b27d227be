//! `run_list`: the newest runs, for a caller that lost the answer with its run_id.

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::run::RunStatus;
use shikiri_runtime::AppError;

use super::{answer_or_refuse, arguments, run_tool};
use crate::catalogue::{BuiltinTool, object};
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;
use crate::run_view::structured_answer;
use crate::tool_groups::ToolGroup;

pub(super) struct RunListTool(pub(super) App);

const MOST: u32 = 100;
const USUAL: u32 = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunListArguments {
    status: Option<RunStatus>,
    limit: Option<u32>,
}

#[async_trait]
impl BuiltinTool for RunListTool {
    fn definition(&self) -> Tool {
        let status = ["queued", "running", "waiting", "completed", "failed", "cancelled"];
        let input = json!({
            "type": "object",
            "properties": {
                "status": { "type": "string", "enum": status },
                "limit": { "type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL },
            },
            "additionalProperties": false,
        });
        let mut tool = run_tool(
            "run_list",
            "List runs",
            "Lists the newest runs, also those whose call was lost before it was answered",
            input,
            ToolAnnotations::new().read_only(true),
        );
        let output = json!({
            "type": "object",
            "properties": { "runs": { "type": "array", "items": { "type": "object" } } },
            "required": ["runs"],
        });
        tool.output_schema = Some(Arc::new(object(output)));
        tool
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Runs)
    }

    async fn call(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        answer_or_refuse(self.list(caller, arguments).await)
    }
}

impl RunListTool {
    async fn list(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, AppError> {
        let wanted: RunListArguments = arguments::read(arguments)?;
        let limit = wanted.limit.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(AppError::invalid("limit", format!("must be from 1 to {MOST}")));
        }
        let tenant = &caller.connection.tenant;
        let (runs, _) = self.0.runtime.list_runs(tenant, wanted.status, None, limit).await?;
        let runs = runs.into_iter().map(|stored| {
            json!({
                "run_id": stored.value.id,
                "agent": stored.value.agent,
                "status": stored.value.status,
                "input": stored.value.input,
                "created_at": stored.created_at,
            })
        });
        let listed = json!({ "runs": runs.collect::<Vec<_>>() });
        Ok(structured_answer(listed))
    }
}
