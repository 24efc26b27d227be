//! `run_answer`: answers a run's question, for clients that cannot be asked directly.

use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::ids::QuestionId;
use shikiri_model::run::{AnswerAction, QuestionAnswer};
use shikiri_runtime::AppError;

use super::{answer_or_refuse, arguments, run_tool};
use crate::catalogue::ServerTool;
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;
use crate::run_view::status_result;

pub(super) struct RunAnswerTool(pub(super) App);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunAnswerArguments {
    run_id: String,
    question_id: String,
    answer: Value,
}

#[async_trait]
impl ServerTool for RunAnswerTool {
    fn definition(&self) -> Tool {
        let input = json!({
            "type": "object",
            "properties": {
                "run_id": { "type": "string" },
                "question_id": { "type": "string", "description": "As run_status lists it" },
                "answer": {
                    "type": ["object", "string"],
                    "description": "{\"action\": \"accept\", \"content\": {…}} with content that \
                        fits the question's schema, {\"action\": \"decline\"}, {\"action\": \
                        \"cancel\"}, or the content alone, which accepts",
                },
            },
            "required": ["run_id", "question_id", "answer"],
            "additionalProperties": false,
        });
        run_tool(
            "run_answer",
            "Answer a run's question",
            "Answers an open question of a run, which then goes on",
            input,
            ToolAnnotations::new().read_only(false).destructive(false).idempotent(false),
        )
    }

    async fn call(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        answer_or_refuse(self.answer(caller, arguments).await)
    }
}

impl RunAnswerTool {
    async fn answer(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, AppError> {
        let wanted: RunAnswerArguments = arguments::read(arguments)?;
        let run = arguments::run_id(&wanted.run_id)?;
        let question: QuestionId = wanted
            .question_id
            .parse()
            .map_err(|_| AppError::not_found("open question", &wanted.question_id))?;
        let answer = read_answer(wanted.answer)?;
        let tenant = &caller.connection.tenant;
        Ok(status_result(&self.0.runtime.answer_run(tenant, &run, &question, answer).await?))
    }
}

fn read_answer(answer: Value) -> Result<QuestionAnswer, AppError> {
    let Some(action) = answer.get("action") else { return Ok(QuestionAnswer::accept(answer)) };
    let action = match action.as_str() {
        Some("accept") => AnswerAction::Accept,
        Some("decline") => AnswerAction::Decline,
        Some("cancel") => AnswerAction::Cancel,
        _ => return Err(AppError::invalid("answer", "action must be accept, decline or cancel")),
    };
    Ok(QuestionAnswer::new(action, answer.get("content").cloned().unwrap_or_default()))
}
