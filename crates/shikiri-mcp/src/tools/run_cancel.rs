//! `run_cancel`: stops a run and what it called.

use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::Value;
use shikiri_app::App;
use shikiri_runtime::AppError;

use super::{answer_or_refuse, arguments, run_tool};
use crate::catalogue::BuiltinTool;
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;
use crate::run_view::status_result;
use crate::tool_groups::ToolGroup;

pub(super) struct RunCancelTool(pub(super) App);

#[async_trait]
impl BuiltinTool for RunCancelTool {
    fn definition(&self) -> Tool {
        run_tool(
            "run_cancel",
            "Stop a run",
            "Stops a run; one that has ended is left as it is",
            arguments::run_id_schema(),
            ToolAnnotations::new().read_only(false).destructive(true).idempotent(true),
        )
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Runs)
    }

    async fn call(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        answer_or_refuse(self.cancel(caller, arguments).await)
    }
}

impl RunCancelTool {
    async fn cancel(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, AppError> {
        let run = arguments::read_run_id(arguments)?;
        let tenant = &caller.connection.tenant;
        match self.0.runtime.cancel_run(tenant, &run).await {
            Ok(view) => Ok(status_result(&view)),
            // It has ended already, and that is what the caller wants to know.
            Err(AppError::NotNow(_)) => Ok(status_result(&self.0.runtime.run(tenant, &run).await?)),
            Err(other) => Err(other),
        }
    }
}
