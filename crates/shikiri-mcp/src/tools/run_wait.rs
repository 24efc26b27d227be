//! `run_wait`: answers when the run has ended or asks something, or when the time is over. Progress
//! is reported meanwhile.

use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{arguments, run_tool};
use crate::catalogue::{BuiltinTool, RunWaitRequest};
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;
use crate::run_follower::parse_run;
use crate::tool_groups::ToolGroup;

pub(super) struct RunWaitTool;

/// Longer waits outlast what clients allow a call; asking again costs little.
const MAX_SECONDS: u64 = 45;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunWaitArguments {
    run_id: String,
    max_seconds: Option<u64>,
}

#[async_trait]
impl BuiltinTool for RunWaitTool {
    fn definition(&self) -> Tool {
        let input = json!({
            "type": "object",
            "properties": {
                "run_id": { "type": "string" },
                "max_seconds": {
                    "type": "integer",
                    "minimum": 0,
                    "default": MAX_SECONDS,
                    "description": "Answer after so long at the latest (at most 45)",
                },
            },
            "required": ["run_id"],
            "additionalProperties": false,
        });
        run_tool(
            "run_wait",
            "Wait for a run",
            "Waits until a run has ended or asks something, and tells its status",
            input,
            ToolAnnotations::new().read_only(true),
        )
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Runs)
    }

    async fn call(&self, _: &McpCaller, _: &JsonObject) -> Result<Value, RpcError> {
        Err(RpcError::internal("run_wait follows its run"))
    }

    fn follows(&self, arguments: &JsonObject) -> Option<Result<RunWaitRequest, RpcError>> {
        let read = arguments::read::<RunWaitArguments>(arguments).map_err(RpcError::from);
        Some(read.and_then(|wanted| {
            let max_seconds = wanted.max_seconds.unwrap_or(MAX_SECONDS).min(MAX_SECONDS);
            Ok(RunWaitRequest { run: parse_run(&wanted.run_id)?, max_seconds })
        }))
    }
}
