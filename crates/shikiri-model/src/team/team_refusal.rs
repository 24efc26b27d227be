//! Refusals of team tools, with the codes that callers rely on.

use std::fmt;

use crate::documented_enum;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamRefusal {
    pub code: RefusalCode,
    pub message: String,
}

documented_enum! {
    /// Why a team tool was refused.
    pub enum RefusalCode {
        /// Only a chat session may do this.
        ///
        /// In a task session, hand it over with `delegate_to_chat_session`.
        ChatSessionRequired = "chatSessionRequired",
        /// Only a task session may do this.
        ///
        /// Log in with the purpose `task`.
        TaskSessionRequired = "taskSessionRequired",
        /// There is no session: none was given, it is not known, or the passkey is wrong.
        ///
        /// Log in with `authenticate`. Too many wrong passkeys make the agent wait.
        NotAuthenticated = "notAuthenticated",
        /// The session is over.
        ///
        /// Log in with `authenticate` again.
        SessionExpired = "sessionExpired",
        /// There is no such agent.
        ///
        /// Look at `shikiri agents list`.
        AgentNotFound = "agent_not_found",
        /// The other agent is not in this project.
        ///
        /// Address an agent of the project, or add that one to it.
        NotInProject = "target_agent_not_in_project",
        /// An agent cannot talk to itself.
        ///
        /// Name another agent.
        WithSelf = "cannot_conversation_with_self",
        /// Conversations are between AI agents.
        ///
        /// Send a person a message: `send_message`.
        WithHuman = "cannot_start_conversation_with_human",
        /// The two agents have a conversation already.
        ///
        /// Go on with it, or end it first.
        AlreadyActive = "conversation_already_active",
        /// There is no such conversation.
        ///
        /// Take the id from `start_conversation` or from an invitation.
        NoDialogue = "conversation_not_found",
        /// The agent does not take part in this conversation.
        ///
        /// Take the id of a conversation of its own.
        NotParticipant = "not_conversation_participant",
        /// The other side is to speak.
        ///
        /// Wait for its message: `get_conversation_messages` with `wait_seconds`.
        NotYourTurn = "not_your_turn",
        /// The conversation is over.
        ///
        /// Start another one if there is more to say.
        DialogueEnded = "conversation_ended",
        /// There is no such delegation.
        ///
        /// Take the id from `delegate_to_chat_session` or `get_pending_messages`.
        NoDelegation = "delegation_not_found",
        /// The delegation belongs to another agent.
        ///
        /// Take the id of a delegation of its own.
        NotDelegationOwner = "not_delegation_owner",
        /// The delegation has ended already.
        ///
        /// Nothing is left to do: `get_delegation` has its result.
        DelegationProcessed = "delegation_already_processed",
        /// Too many delegations followed from one another.
        ///
        /// Report what there is. Only a person starts afresh.
        DelegationTooDeep = "delegation_too_deep",
        /// The two agents have no message left of those that may follow from one cause: a person's
        /// message, a task or a delegation.
        ///
        /// Finish without another message. A new message or task of a person sets new ones off.
        MessageBudgetSpent = "message_budget_spent",
        /// Too many delegations of the agent are open.
        ///
        /// Wait for one of them to end.
        TooManyDelegations = "too_many_delegations",
        /// The text is too long.
        ///
        /// Shorten it. The message names the limit.
        ContentTooLong = "content_too_long",
        /// There is no such project.
        ///
        /// Look at `shikiri projects list`.
        NoProject = "project_not_found",
        /// There is no such task for this agent.
        ///
        /// Take the id from `get_next_action`.
        NoTask = "task_not_found",
        /// An argument is missing or wrong.
        ///
        /// Correct it. The message names it.
        InvalidArgument = "invalid_argument",
        /// This tool is not for this session.
        ///
        /// `help` lists the tools that are.
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
