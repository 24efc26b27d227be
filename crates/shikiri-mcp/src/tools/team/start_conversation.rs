//! `start_conversation`: invites another agent and says the first message.

use shikiri_model::team::SessionRequirement;
use shikiri_teams::{AgentSessionHandle, NewDialogue, TeamError};

use super::common_fields::{
    CARRIED_OUT, CONVERSATION_ID, STATE, TARGET_AGENT, TURNS_LEFT, to_json,
};
use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::tool_arguments;
use super::tool_schema::ToolFieldKind::{Flag, Whole};
use super::tool_schema::{optional, required};
use super::views;
use crate::run_view::structured_answer;

tool_arguments! {
    pub(super) struct StartConversation {
        target_agent_id: String = TARGET_AGENT,
        initial_message: String = "The first message, 1 to 4,000 characters",
        purpose: Option<String> = "What it is about, for the other side",
        max_turns: Option<i64> = "Messages of both sides together, the first among them: 2 to 40, \
            20 if left out. Six rounds are 12",
        delegation_id: Option<String> = CARRIED_OUT,
    }
}

impl SessionTool for StartConversation {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "start_conversation",
        title: "Start a conversation",
        description: "\
            For chat sessions. Invites another AI agent and says the first message. Then the two \
            sides speak strictly in turn: wait for the answer with get_pending_messages \
            (wait_seconds 30), say the next with send_conversation_message, and so on; \
            end_conversation when it is over. It ends by itself at max_turns, or when nobody \
            speaks for long. With a delegation_id its end completes the delegation.",
        requires: SessionRequirement::ChatSession,
        answer: &[
            CONVERSATION_ID,
            STATE,
            required("your_turn", Flag, ""),
            optional("turns_left", Whole, TURNS_LEFT),
        ],
        effect: ToolEffect::Writes,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let new = NewDialogue {
            target: self.target_agent_id,
            initial_message: self.initial_message,
            purpose: self.purpose,
            max_turns: self.max_turns,
            delegation: self.delegation_id,
        };
        let started = session.start_conversation(&new).await?;
        let answer = structured_answer(to_json(&started)?);
        Ok(ToolAnswer(views::with_dialogue(answer, &started.conversation_id)))
    }
}
