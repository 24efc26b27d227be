//! `run_status`: where a run stands, what it asks, what came out.

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

pub(super) struct RunStatusTool(pub(super) App);

#[async_trait]
impl BuiltinTool for RunStatusTool {
    fn definition(&self) -> Tool {
        run_tool(
            "run_status",
            "Look at a run",
            "Tells a run's status, progress, open questions and, once it has ended, its result",
            arguments::run_id_schema(),
            ToolAnnotations::new().read_only(true),
        )
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Runs)
    }

    async fn call(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        answer_or_refuse(self.read_status(caller, arguments).await)
    }
}

impl RunStatusTool {
    async fn read_status(
        &self,
        caller: &McpCaller,
        arguments: &JsonObject,
    ) -> Result<Value, AppError> {
        let run = arguments::read_run_id(arguments)?;
        Ok(status_result(&self.0.runtime.run(&caller.connection.tenant, &run).await?))
    }
}
