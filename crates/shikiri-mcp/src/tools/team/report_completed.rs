//! `report_completed`: a task is done, or blocked.

use serde_json::Value;
use shikiri_model::team::{SessionRequirement, TaskStatus};
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::{ArgumentType, tool_arguments};
use super::tool_schema::ToolFieldKind::{Object, Text};
use super::tool_schema::{ToolFieldKind, required};
use super::views;

tool_arguments! {
    pub(super) struct ReportCompleted {
        task_id: String = "From get_next_action",
        result: Option<Value> = "What came of it, as a text or an object",
        status: Option<ReportedStatus> = "done, unless said otherwise",
    }
}

impl SessionTool for ReportCompleted {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "report_completed",
        title: "Report a task",
        description: "\
            For task sessions. Says that a task of yours is done, or blocked, with its result. If \
            others were to be told or asked for it, let the delegation end first.",
        requires: SessionRequirement::TaskSession,
        answer: &[
            required("task", Object, ""),
            required("task_id", Text, ""),
            required("status", Text, ""),
        ],
        effect: ToolEffect::WritesOnce,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let status = self.status.map_or(TaskStatus::Done, |ReportedStatus(status)| status);
        let task = session.report_completed(&self.task_id, status, self.result).await?;
        Ok(views::reported_task(&task).into())
    }
}

/// A status that a task can be reported with.
pub(super) struct ReportedStatus(TaskStatus);

impl ArgumentType for ReportedStatus {
    const KIND: ToolFieldKind = ToolFieldKind::Choice(&["done", "blocked"]);

    fn from_value(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "done" => Some(Self(TaskStatus::Done)),
            "blocked" => Some(Self(TaskStatus::Blocked)),
            _ => None,
        }
    }
}
