//! `run_cancel`: stops a run and what it called.

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

pub(super) struct RunCancel(pub(super) App);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    run_id: String,
}

#[async_trait]
impl ShortTool for RunCancel {
    fn definition(&self) -> Tool {
        let input = json!({
            "type": "object",
            "properties": { "run_id": { "type": "string" } },
            "required": ["run_id"],
            "additionalProperties": false,
        });
        run_tool(
            "run_cancel",
            "Stop a run",
            "Stops a run; one that has ended is left as it is",
            input,
            ToolAnnotations::new().read_only(false).destructive(true).idempotent(true),
        )
    }

    async fn call(&self, caller: &Caller, arguments: &JsonObject) -> Result<Value, Fault> {
        match self.cancel(caller, arguments).await {
            Ok(answer) => Ok(answer),
            Err(error) => refused(error),
        }
    }
}

impl RunCancel {
    async fn cancel(&self, caller: &Caller, arguments: &JsonObject) -> Result<Value, AppError> {
        let Arguments { run_id } = arguments::read(arguments)?;
        let run = arguments::run_id(&run_id)?;
        let tenant = &caller.connection.tenant;
        match self.0.cancel_run(tenant, &run).await {
            Ok(view) => Ok(status_result(&view)),
            // It has ended already, and that is what the caller wants to know.
            Err(AppError::NotNow(_)) => Ok(status_result(&self.0.run(tenant, &run).await?)),
            Err(other) => Err(other),
        }
    }
}
