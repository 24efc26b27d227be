//! `run_status`: where a run stands, what it asks, what came out.

use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_app::{App, AppError};

use super::{arguments, refused, run_tool};
use crate::catalogue::ShortTool;
use crate::client::Caller;
use crate::fault::Fault;
use crate::run_view::status_result;

pub(super) struct RunStatusTool(pub(super) App);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    run_id: String,
}

#[async_trait]
impl ShortTool for RunStatusTool {
    fn definition(&self) -> Tool {
        let input = json!({
            "type": "object",
            "properties": { "run_id": { "type": "string" } },
            "required": ["run_id"],
            "additionalProperties": false,
        });
        run_tool(
            "run_status",
            "Look at a run",
            "Tells a run's status, progress, open questions and, once it has ended, its result",
            input,
            ToolAnnotations::new().read_only(true),
        )
    }

    async fn call(&self, caller: &Caller, arguments: &JsonObject) -> Result<Value, Fault> {
        match self.look(caller, arguments).await {
            Ok(answer) => Ok(answer),
            Err(error) => refused(error),
        }
    }
}

impl RunStatusTool {
    async fn look(&self, caller: &Caller, arguments: &JsonObject) -> Result<Value, AppError> {
        let Arguments { run_id } = arguments::read(arguments)?;
        let run = arguments::run_id(&run_id)?;
        Ok(status_result(&self.0.run(&caller.connection.tenant, &run).await?))
    }
}
