//! Why a team tool said no, with the code that callers rely on.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: RefusalCode,
    pub message: String,
}

macro_rules! codes {
    ($($name:ident = $text:literal,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RefusalCode {
            $($name,)+
        }

        impl RefusalCode {
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

codes! {
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

impl RefusalCode {
    pub fn because(self, message: impl Into<String>) -> Refusal {
        Refusal { code: self, message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
