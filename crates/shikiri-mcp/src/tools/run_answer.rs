//! `run_answer`: answers a run's question, for clients that cannot be asked directly.
//!
//! A model calls it, so it answers what a person is asked only where the agent's author allows that.

use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::ids::{QuestionId, TenantId};
use shikiri_model::run::{AnswerAction, QuestionAnswer, QuestionKind, Run};
use shikiri_runtime::AppError;

use super::{RunToolErrorCode, answer_or_refuse, arguments, run_tool};
use crate::catalogue::BuiltinTool;
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;
use crate::run_view::{status_result, tool_error};
use crate::tool_groups::ToolGroup;

pub(super) struct RunAnswerTool(pub(super) App);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunAnswerArguments {
    run_id: String,
    question_id: String,
    answer: Value,
}

#[async_trait]
impl BuiltinTool for RunAnswerTool {
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
            "Answers an open question of a run, which then goes on. A question for a person (kind \
             human) is refused unless its agent allows that: then a person answers",
            input,
            ToolAnnotations::new().read_only(false).destructive(false).idempotent(false),
        )
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Runs)
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
        let asking = self.0.runtime.load_run(tenant, &run).await?.value;
        if self.needs_person(&asking, &question) {
            let message = person_required(&asking, tenant);
            return Ok(tool_error(RunToolErrorCode::PersonRequired.as_str(), &message));
        }
        Ok(status_result(&self.0.runtime.answer_run(tenant, &run, &question, answer).await?))
    }

    /// An agent that is not known here has not allowed it.
    fn needs_person(&self, run: &Run, question: &QuestionId) -> bool {
        let asked = run.questions.iter().find(|asked| asked.id == *question);
        asked.is_some_and(|asked| asked.kind == QuestionKind::Human)
            && !self.0.runtime.agent(&run.agent).is_some_and(|agent| agent.allows_tool_answers())
    }
}

fn person_required(run: &Run, tenant: &TenantId) -> String {
    let Run { id, agent, .. } = run;
    format!(
        "this question is for a person, and {agent} does not let a tool answer it. Ask a person to \
         answer: in a client that can be asked (elicitation), on the command line with `shikiri \
         runs answer {id}`, or over REST with a tenant or admin key (POST \
         /v1/tenants/{tenant}/runs/{id}/answers). Then go on with run_wait."
    )
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
