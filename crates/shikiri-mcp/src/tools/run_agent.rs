//! `run_agent`: starts a run, of an agent or of a conversation's next turn, and answers at once
//! with its id and the link to it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_executions::execution::NewExecution;
use shikiri_model::execution::ExecutionUser;
use shikiri_model::ids::ConversationId;
use shikiri_model::native::ExecutionLimits;
use shikiri_runtime::AppError;
use shikiri_runtime::run::NewRun;

use super::{answer_or_refuse, arguments, run_tool};
use crate::catalogue::BuiltinTool;
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;
use crate::run_view::handover_result;
use crate::tool_groups::ToolGroup;

pub(super) struct RunAgentTool(pub(super) App);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunAgentArguments {
    agent: Option<String>,
    conversation: Option<ConversationId>,
    #[serde(default)]
    input: Option<Value>,
    idempotency_key: Option<String>,
}

#[async_trait]
impl BuiltinTool for RunAgentTool {
    fn definition(&self) -> Tool {
        let input = json!({
            "type": "object",
            "properties": {
                "agent": { "type": "string", "enum": self.0.runtime.agent_names() },
                "conversation": {
                    "type": "string",
                    "description": "In place of an agent: a conversation whose next turn this is",
                },
                "input": {
                    "type": ["object", "string"],
                    "description": "The agent's arguments, or what is said in the conversation",
                },
                "idempotency_key": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 200,
                    "description": "The same key gives the same run, however often it is sent. With another input it is refused",
                },
            },
            "additionalProperties": false,
        });
        let hints = ToolAnnotations::new().read_only(false).destructive(false).idempotent(false);
        run_tool(
            "run_agent",
            "Start an agent",
            "Starts an agent, or the next turn of a conversation, in the background and answers at \
             once with its run_id",
            input,
            hints,
        )
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Runs)
    }

    async fn call(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        answer_or_refuse(self.start(caller, arguments).await)
    }
}

impl RunAgentTool {
    async fn start(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, AppError> {
        let wanted: RunAgentArguments = arguments::read(arguments)?;
        match (wanted.agent, wanted.conversation) {
            (Some(agent), None) => {
                self.start_agent(caller, agent, wanted.input, wanted.idempotency_key).await
            }
            (None, Some(conversation)) => {
                self.start_turn(caller, conversation, wanted.input, wanted.idempotency_key).await
            }
            _ => Err(AppError::invalid("agent", "name either an agent or a conversation")),
        }
    }

    async fn start_agent(
        &self,
        caller: &McpCaller,
        agent: String,
        input: Option<Value>,
        idempotency_key: Option<String>,
    ) -> Result<Value, AppError> {
        let connection = &caller.connection;
        let origin = json!({
            "door": "mcp",
            "principal": connection.principal,
            "connection": connection.id,
            "who": { "instance": caller.identity.instance },
            "lane": caller.identity,
        });
        let new = NewRun {
            agent,
            input: input.unwrap_or_else(|| json!({})),
            idempotency_key,
            origin: Some(origin),
        };
        Ok(handover_result(&self.0.runtime.start_run(&connection.tenant, new).await?))
    }

    async fn start_turn(
        &self,
        caller: &McpCaller,
        conversation: ConversationId,
        input: Option<Value>,
        idempotency_key: Option<String>,
    ) -> Result<Value, AppError> {
        let said = match &input {
            Some(Value::String(said)) => Some(said.as_str()),
            Some(Value::Object(fields)) => fields.get("user_input").and_then(Value::as_str),
            _ => None,
        };
        let Some(said) = said else {
            let reason = "must be a text, or an object with the text as `user_input`";
            return Err(AppError::invalid("input", reason));
        };
        let connection = &caller.connection;
        let user_id = caller.identity.instance.clone();
        let new = NewExecution {
            conversation,
            user_input: said.to_owned(),
            executor: ExecutionUser { user_id, name: None, email: None },
            tokens: BTreeMap::new(),
            preferred_skills: Vec::new(),
            model_id: None,
            idempotency_key,
            limits: ExecutionLimits::default(),
        };
        let run = self.0.executions.execute(&connection.tenant, new).await?;
        Ok(handover_result(&self.0.runtime.run(&connection.tenant, &run.value.id).await?))
    }
}
