//! What was said in a dialogue, for those who read it.

use std::time::Duration;

use serde::Serialize;
use shikiri_model::ids::{DialogueId, TenantId};
use shikiri_model::team::{
    DialogueState, EndReason, Refusal, RefusalCode, Utterance, dialogue_stream,
};
use shikiri_store::StoreError;

use super::TeamError;
use super::desk::Desk;
use crate::app::App;

/// What was said, from some point on.
#[derive(Clone, Debug, Serialize)]
pub struct Transcript {
    pub conversation_id: DialogueId,
    pub messages: Vec<Line>,
    pub state: DialogueState,
    pub your_turn: bool,
    pub turns_left: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
}

/// One message of a dialogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub seq: u64,
    #[serde(flatten)]
    pub said: Utterance,
}

/// The longest transcript has forty messages of four thousand characters.
const WHOLE: usize = 4 * 1024 * 1024;

impl Desk {
    /// What was said after a message; waits for more if there is nothing yet.
    pub async fn conversation_messages(
        &mut self,
        conversation: &str,
        after: Option<&str>,
        wait: Duration,
    ) -> Result<Transcript, TeamError> {
        let dialogue = self.dialogue(conversation).await?;
        let side = dialogue.value.side_of(self.agent())?;
        let mut waiter = self.waiter(dialogue.value.stream(), wait);
        loop {
            let dialogue = self.dialogue(conversation).await?.value;
            let mut messages = self.app.transcript(self.tenant(), &dialogue.id).await?;
            if messages.len() > dialogue.messages as usize {
                // Said between the two reads: whose turn it is has changed with it.
                continue;
            }
            let known = after.map_or(Ok(0), |after| place_of(&messages, after))?;
            messages.retain(|line| line.seq > known);
            let has_news = !messages.is_empty() || !dialogue.is_living();
            if has_news || !waiter.again(self).await? {
                return Ok(Transcript {
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

impl App {
    /// What was said in a dialogue, from its first message.
    pub async fn transcript(
        &self,
        tenant: &TenantId,
        id: &DialogueId,
    ) -> Result<Vec<Line>, TeamError> {
        let page = match self.store.read(tenant, &dialogue_stream(id), 0, WHOLE).await {
            Ok(page) => page,
            // It is so old that what was said is not kept any more.
            Err(StoreError::Cursor(_) | StoreError::NoStream(_)) => return Ok(Vec::new()),
            Err(other) => return Err(other.into()),
        };
        let events = page.chunks.iter().flat_map(|chunk| chunk.events());
        events
            .filter(|event| event.kind == "message")
            .map(|event| Ok(Line { seq: event.seq, said: serde_json::from_str(event.data)? }))
            .collect()
    }
}

/// Where a message stands that is named by its id or its number.
fn place_of(messages: &[Line], named: &str) -> Result<u64, Refusal> {
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
