//! `run_update`: redirects a running agent.

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

pub(super) struct RunUpdate(pub(super) App);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    run_id: String,
    input: Value,
}

#[async_trait]
impl ShortTool for RunUpdate {
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

    async fn call(&self, caller: &Caller, arguments: &JsonObject) -> Result<Value, Fault> {
        match self.update(caller, arguments).await {
            Ok(answer) => Ok(answer),
            Err(error) => refused(error),
        }
    }
}

impl RunUpdate {
    async fn update(&self, caller: &Caller, arguments: &JsonObject) -> Result<Value, AppError> {
        let wanted: Arguments = arguments::read(arguments)?;
        let run = arguments::run_id(&wanted.run_id)?;
        let tenant = &caller.connection.tenant;
        Ok(status_result(&self.0.update_run(tenant, &run, wanted.input).await?))
    }
}
