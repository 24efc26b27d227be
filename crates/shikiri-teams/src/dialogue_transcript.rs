//! The messages of a dialogue, for its readers.

use std::time::Duration;

use serde::Serialize;
use shikiri_model::ids::{DialogueId, TenantId};
use shikiri_model::team::{
    DialogueEndReason, DialogueMessage, DialogueState, RefusalCode, TeamRefusal, dialogue_stream,
};
use shikiri_store::StoreError;

use super::TeamError;
use super::session_handle::AgentSessionHandle;
use crate::Teams;

/// The messages of a dialogue from some point on.
#[derive(Clone, Debug, Serialize)]
pub struct DialogueTranscript {
    pub conversation_id: DialogueId,
    pub messages: Vec<DialogueLine>,
    pub state: DialogueState,
    pub your_turn: bool,
    pub turns_left: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<DialogueEndReason>,
}

/// One message of a dialogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DialogueLine {
    pub seq: u64,
    #[serde(flatten)]
    pub said: DialogueMessage,
}

/// The longest transcript has forty messages of four thousand characters.
const WHOLE: usize = 4 * 1024 * 1024;

impl AgentSessionHandle {
    /// The messages after a given one. Waits for more if there are none yet.
    pub async fn conversation_messages(
        &mut self,
        conversation: &str,
        after: Option<&str>,
        wait: Duration,
    ) -> Result<DialogueTranscript, TeamError> {
        let dialogue = self.dialogue(conversation).await?;
        let side = dialogue.value.side_of(self.agent())?;
        let mut waiter = self.waiter(dialogue.value.stream(), wait);
        loop {
            let dialogue = self.dialogue(conversation).await?.value;
            let mut messages = self.teams.transcript(self.tenant(), &dialogue.id).await?;
            if messages.len() > dialogue.messages as usize {
                // A message came between the two reads, and the turn changed with it.
                continue;
            }
            let known = after.map_or(Ok(0), |after| position_of(&messages, after))?;
            messages.retain(|line| line.seq > known);
            let has_news = !messages.is_empty() || !dialogue.is_living();
            if has_news || !waiter.wait_for_wake(self).await? {
                return Ok(DialogueTranscript {
                    messages,
                    state: dialogue.state,
                    your_turn: dialogue.is_turn_of(side),
                    turns_left: dialogue.turns_left(),
                    end_reason: dialogue.end.as_ref().map(|end| end.reason),
                    conversation_id: dialogue.id,
                });
            }
        }
    }
}

impl Teams {
    /// The messages of a dialogue from the first on.
    pub async fn transcript(
        &self,
        tenant: &TenantId,
        id: &DialogueId,
    ) -> Result<Vec<DialogueLine>, TeamError> {
        let page = match self.runtime.store().read(tenant, &dialogue_stream(id), 0, WHOLE).await {
            Ok(page) => page,
            // The dialogue is so old that its messages are no longer kept.
            Err(StoreError::Cursor(_) | StoreError::NoStream(_)) => return Ok(Vec::new()),
            Err(other) => return Err(other.into()),
        };
        let events = page.chunks.iter().flat_map(|chunk| chunk.events());
        events
            .filter(|event| event.kind == "message")
            .map(|event| {
                Ok(DialogueLine { seq: event.seq, said: serde_json::from_str(event.data)? })
            })
            .collect()
    }
}

/// The position of a message that is named by its id or its number.
fn position_of(messages: &[DialogueLine], named: &str) -> Result<u64, TeamRefusal> {
    let by_id = messages.iter().find(|line| line.said.message_id.as_str() == named);
    match (by_id, named.parse()) {
        (Some(line), _) => Ok(line.seq),
        (None, Ok(seq)) => Ok(seq),
        (None, Err(_)) => {
            let message = "after must be the message_id or seq of a message of this conversation";
            Err(RefusalCode::InvalidArgument.because(message))
        }
    }
}
