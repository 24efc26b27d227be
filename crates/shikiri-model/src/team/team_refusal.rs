//! Refusals of team tools, with the codes that callers rely on.

use std::fmt;

use crate::macros::text_enum;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamRefusal {
    pub code: RefusalCode,
    pub message: String,
}

text_enum! {
    pub enum RefusalCode {
        ChatSessionRequired = "chatSessionRequired",
        TaskSessionRequired = "taskSessionRequired",
        NotAuthenticated = "notAuthenticated",
        SessionExpired = "sessionExpired",
        AgentNotFound = "agent_not_found",
        NotInProject = "target_agent_not_in_project",
        WithSelf = "cannot_conversation_with_self",
        WithHuman = "cannot_start_conversation_with_human",
        AlreadyActive = "conversation_already_active",
        NoDialogue = "conversation_not_found",
        NotParticipant = "not_conversation_participant",
        NotYourTurn = "not_your_turn",
        DialogueEnded = "conversation_ended",
        NoDelegation = "delegation_not_found",
        NotDelegationOwner = "not_delegation_owner",
        DelegationProcessed = "delegation_already_processed",
        DelegationTooDeep = "delegation_too_deep",
        TooManyDelegations = "too_many_delegations",
        ContentTooLong = "content_too_long",
        NoProject = "project_not_found",
        NoTask = "task_not_found",
        InvalidArgument = "invalid_argument",
        ToolNotAllowed = "tool_not_allowed",
    }
}

impl RefusalCode {
    pub fn because(self, message: impl Into<String>) -> TeamRefusal {
        TeamRefusal { code: self, message: message.into() }
    }
}

impl fmt::Display for TeamRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TeamRefusal {}
