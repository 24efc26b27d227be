//! `report_delegation_completed`: what came of a delegation, in the words of the chat session.

use serde_json::Value;
use shikiri_model::team::{DelegationStatus, SessionRequirement};
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::common_fields::DELEGATION;
use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::{ArgumentType, tool_arguments};
use super::tool_schema::ToolFieldKind;
use super::views;

tool_arguments! {
    pub(super) struct ReportDelegationCompleted {
        delegation_id: String = "",
        status: ReportedStatus = "",
        result: Option<Value> = "What your task session should know",
    }
}

impl SessionTool for ReportDelegationCompleted {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "report_delegation_completed",
        title: "Report a delegation",
        description: "\
            For chat sessions. Adds, in your words, what came of a delegation that you carried \
            out, or says that you could not. The end of its conversation completes it without \
            this.",
        requires: SessionRequirement::ChatSession,
        answer: DELEGATION,
        effect: ToolEffect::WritesOnce,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let ReportedStatus(status) = self.status;
        let result = self.result.as_ref();
        let stored = session.report_delegation(&self.delegation_id, status, result).await?;
        Ok(views::delegation(&stored).into())
    }
}

/// A status that a delegation can be reported with.
pub(super) struct ReportedStatus(DelegationStatus);

impl ArgumentType for ReportedStatus {
    const KIND: ToolFieldKind = ToolFieldKind::Choice(&["completed", "failed"]);

    fn from_value(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "completed" => Some(Self(DelegationStatus::Completed)),
            "failed" => Some(Self(DelegationStatus::Failed)),
            _ => None,
        }
    }
}
