use serde::Serialize;
use serde_json::Value;
use shikiri_model::ids::{AgentId, DelegationId, DialogueId, MessageId, ProjectId, TaskId};
use shikiri_model::record::StoredDocument;
use shikiri_model::team::{
    Delegation, DelegationStatus, Dialogue, DialogueEndReason, DialogueState, TeamMessage,
};
use shikiri_model::time::Timestamp;
use shikiri_teams::DialogueLine;
use utoipa::ToSchema;

use super::words::{DelegationStatusSchema, DialogueStateSchema, EndReasonSchema};

/// What one agent said to another outside a dialogue.
#[derive(Serialize, ToSchema)]
#[schema(as = TeamMessage)]
pub struct TeamMessageJson {
    #[schema(value_type = String)]
    pub(crate) id: MessageId,
    /// The same as `id`.
    #[schema(value_type = String)]
    message_id: MessageId,
    #[schema(value_type = String)]
    from_agent_id: AgentId,
    #[schema(value_type = String)]
    to_agent_id: AgentId,
    content: String,
    /// Only of what the server tells, from `shikiri`: it is not to be answered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    notice: bool,
    read: bool,
    #[schema(value_type = Option<String>, format = DateTime)]
    read_at: Option<Timestamp>,
    /// The message that it answers.
    #[schema(value_type = Option<String>)]
    in_reply_to: Option<MessageId>,
    #[schema(value_type = Option<String>)]
    delegation_id: Option<DelegationId>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// A task session's request that its agent's chat session talk to someone.
#[derive(Serialize, ToSchema)]
#[schema(as = Delegation)]
pub struct DelegationJson {
    #[schema(value_type = String)]
    id: DelegationId,
    /// The same as `id`.
    #[schema(value_type = String)]
    delegation_id: DelegationId,
    #[schema(value_type = String)]
    project_id: ProjectId,
    /// Who delegates, and whose chat session talks.
    #[schema(value_type = String)]
    agent_id: AgentId,
    #[schema(value_type = String)]
    target_agent_id: AgentId,
    purpose: String,
    context: Option<String>,
    #[schema(value_type = DelegationStatusSchema)]
    status: DelegationStatus,
    /// Chat sessions that have taken it on.
    attempts: u32,
    #[schema(value_type = Option<String>)]
    task_id: Option<TaskId>,
    /// The dialogue that it led to.
    #[schema(value_type = Option<String>)]
    conversation_id: Option<DialogueId>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    processed_at: Option<Timestamp>,
    result: Option<Value>,
}

/// A bounded talk between two agents.
#[derive(Serialize, ToSchema)]
#[schema(as = Dialogue)]
pub struct DialogueJson {
    #[schema(value_type = String)]
    id: DialogueId,
    /// The same as `id`.
    #[schema(value_type = String)]
    conversation_id: DialogueId,
    #[schema(value_type = String)]
    project_id: ProjectId,
    #[schema(value_type = String)]
    initiator_agent_id: AgentId,
    #[schema(value_type = String)]
    participant_agent_id: AgentId,
    purpose: Option<String>,
    #[schema(value_type = DialogueStateSchema)]
    state: DialogueState,
    #[schema(value_type = Option<EndReasonSchema>)]
    end_reason: Option<DialogueEndReason>,
    /// How many there are.
    messages: u32,
    max_turns: u32,
    turns_left: u32,
    /// Who speaks next; nobody, once it has ended.
    #[schema(value_type = Option<String>)]
    turn_agent_id: Option<AgentId>,
    #[schema(value_type = Option<String>)]
    delegation_id: Option<DelegationId>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
}

/// One message of a dialogue.
#[derive(Serialize, ToSchema)]
#[schema(as = DialogueMessage)]
pub struct DialogueLineJson {
    #[schema(value_type = String)]
    id: MessageId,
    /// The same as `id`.
    #[schema(value_type = String)]
    message_id: MessageId,
    /// Its number in the dialogue's events.
    seq: u64,
    #[schema(value_type = String)]
    from_agent_id: AgentId,
    content: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<StoredDocument<TeamMessage>> for TeamMessageJson {
    fn from(stored: StoredDocument<TeamMessage>) -> Self {
        let message = stored.value;
        Self {
            id: message.id.clone(),
            message_id: message.id,
            from_agent_id: message.from,
            to_agent_id: message.to,
            content: message.content,
            notice: message.is_notice,
            read: message.read_at.is_some(),
            read_at: message.read_at,
            in_reply_to: message.in_reply_to,
            delegation_id: message.delegation,
            created_at: stored.created_at,
        }
    }
}

impl From<StoredDocument<Delegation>> for DelegationJson {
    fn from(stored: StoredDocument<Delegation>) -> Self {
        let delegation = stored.value;
        Self {
            id: delegation.id.clone(),
            delegation_id: delegation.id,
            project_id: delegation.project,
            agent_id: delegation.agent,
            target_agent_id: delegation.target,
            purpose: delegation.purpose,
            context: delegation.context,
            status: delegation.status,
            attempts: delegation.attempts,
            task_id: delegation.task,
            conversation_id: delegation.dialogue,
            created_at: stored.created_at,
            processed_at: delegation.processed_at,
            result: delegation.result,
        }
    }
}

impl From<StoredDocument<Dialogue>> for DialogueJson {
    fn from(stored: StoredDocument<Dialogue>) -> Self {
        let dialogue = stored.value;
        let turn = dialogue.is_living().then(|| dialogue.agent(dialogue.turn).clone());
        Self {
            id: dialogue.id.clone(),
            turns_left: dialogue.turns_left(),
            conversation_id: dialogue.id,
            project_id: dialogue.project,
            initiator_agent_id: dialogue.initiator,
            participant_agent_id: dialogue.participant,
            purpose: dialogue.purpose,
            state: dialogue.state,
            end_reason: dialogue.end.as_ref().map(|end| end.reason),
            messages: dialogue.messages,
            max_turns: dialogue.max_turns,
            turn_agent_id: turn,
            delegation_id: dialogue.delegation,
            created_at: stored.created_at,
            ended_at: dialogue.end.map(|end| end.at),
        }
    }
}

impl From<DialogueLine> for DialogueLineJson {
    fn from(DialogueLine { seq, said }: DialogueLine) -> Self {
        Self {
            id: said.message_id.clone(),
            message_id: said.message_id,
            seq,
            from_agent_id: said.from_agent_id,
            content: said.content,
            created_at: said.created_at,
        }
    }
}
