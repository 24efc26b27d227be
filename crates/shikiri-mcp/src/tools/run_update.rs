//! `run_update`: redirects a running agent.

use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_runtime::AppError;

use super::{answer_or_refuse, arguments, run_tool};
use crate::catalogue::BuiltinTool;
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;
use crate::run_view::status_result;
use crate::tool_groups::ToolGroup;

pub(super) struct RunUpdateTool(pub(super) App);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunUpdateArguments {
    run_id: String,
    input: Value,
}

#[async_trait]
impl BuiltinTool for RunUpdateTool {
    fn definition(&self) -> Tool {
        let input = json!({
            "type": "object",
            "properties": {
                "run_id": { "type": "string" },
                "input": {
                    "type": "object",
                    "description": "What the agent should take into account from now on, such as \
                        {\"destination\": \"Kyoto\"}",
                },
            },
            "required": ["run_id", "input"],
            "additionalProperties": false,
        });
        run_tool(
            "run_update",
            "Redirect a run",
            "Gives a running agent new input, which it takes up before its next step",
            input,
            ToolAnnotations::new().read_only(false).destructive(false).idempotent(false),
        )
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Runs)
    }

    async fn call(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        answer_or_refuse(self.update(caller, arguments).await)
    }
}

impl RunUpdateTool {
    async fn update(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, AppError> {
        let wanted: RunUpdateArguments = arguments::read(arguments)?;
        let run = arguments::run_id(&wanted.run_id)?;
        let tenant = &caller.connection.tenant;
        Ok(status_result(&self.0.runtime.update_run(tenant, &run, wanted.input).await?))
    }
}
