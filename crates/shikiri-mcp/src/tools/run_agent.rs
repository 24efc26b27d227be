//! `run_agent`: starts a run and answers at once with its id and the link to it.

use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_app::run::NewRun;
use shikiri_app::{App, AppError};

use super::{arguments, refused, run_tool};
use crate::catalogue::ShortTool;
use crate::client::Caller;
use crate::fault::Fault;
use crate::run_view::handle;

pub(super) struct RunAgent(pub(super) App);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    agent: String,
    #[serde(default)]
    input: Option<Value>,
    idempotency_key: Option<String>,
}

#[async_trait]
impl ShortTool for RunAgent {
    fn definition(&self) -> Tool {
        let input = json!({
            "type": "object",
            "properties": {
                "agent": { "type": "string", "enum": self.0.agent_names() },
                "input": { "type": "object", "description": "The agent's arguments" },
                "idempotency_key": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 200,
                    "description": "The same key gives the same run, however often it is sent",
                },
            },
            "required": ["agent"],
            "additionalProperties": false,
        });
        let hints = ToolAnnotations::new().read_only(false).destructive(false).idempotent(false);
        run_tool(
            "run_agent",
            "Start an agent",
            "Starts an agent in the background and answers at once with its run_id",
            input,
            hints,
        )
    }

    async fn call(&self, caller: &Caller, arguments: &JsonObject) -> Result<Value, Fault> {
        match self.start(caller, arguments).await {
            Ok(answer) => Ok(answer),
            Err(error) => refused(error),
        }
    }
}

impl RunAgent {
    async fn start(&self, caller: &Caller, arguments: &JsonObject) -> Result<Value, AppError> {
        let wanted: Arguments = arguments::read(arguments)?;
        let connection = &caller.connection;
        let origin = json!({
            "door": "mcp",
            "principal": connection.principal,
            "connection": connection.id,
            "who": { "instance": caller.instance },
        });
        let new = NewRun {
            agent: wanted.agent,
            input: wanted.input.unwrap_or_else(|| json!({})),
            idempotency_key: wanted.idempotency_key,
            origin: Some(origin),
        };
        Ok(handle(&self.0.start_run(&connection.tenant, new).await?))
    }
}
