//! `run_list`: the newest runs, for whoever lost the answer that named theirs.

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_app::{App, AppError};
use shikiri_model::run::RunStatus;

use super::{arguments, refused, run_tool};
use crate::catalogue::{ShortTool, object};
use crate::client::Caller;
use crate::fault::Fault;
use crate::run_view::text;

pub(super) struct RunList(pub(super) App);

const MOST: u32 = 100;
const USUAL: u32 = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    status: Option<RunStatus>,
    limit: Option<u32>,
}

#[async_trait]
impl ShortTool for RunList {
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

    async fn call(&self, caller: &Caller, arguments: &JsonObject) -> Result<Value, Fault> {
        match self.list(caller, arguments).await {
            Ok(answer) => Ok(answer),
            Err(error) => refused(error),
        }
    }
}

impl RunList {
    async fn list(&self, caller: &Caller, arguments: &JsonObject) -> Result<Value, AppError> {
        let wanted: Arguments = arguments::read(arguments)?;
        let limit = wanted.limit.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(AppError::invalid("limit", format!("must be from 1 to {MOST}")));
        }
        let tenant = &caller.connection.tenant;
        let (runs, _) = self.0.list_runs(tenant, wanted.status, None, limit).await?;
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
        Ok(json!({
            "content": [text(&listed.to_string())],
            "structuredContent": listed,
            "isError": false,
        }))
    }
}
