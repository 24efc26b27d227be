//! What waits for an agent, and that a session has seen it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use shikiri_model::ids::{AgentSessionId, TenantId};
use shikiri_model::record::{RecordQuery, Stored};
use shikiri_model::team::{AgentSession, EndReason, Look, Place, Purpose, Waiting};
use shikiri_model::time::Timestamp;

use super::desk::Desk;
use super::draft::Draft;
use super::hand_out::Shown;
use super::{Receipt, TeamError, until_settled};
use crate::app::App;

/// What a chat session has to deal with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pending {
    pub pending_messages: Vec<NewMessage>,
    pub pending_delegations: Vec<NewDelegation>,
    pub invitations: Vec<Invitation>,
    pub ended_conversations: Vec<EndedConversation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewMessage {
    pub message_id: String,
    pub from_agent_id: String,
    pub content: String,
    /// The dialogue in which it was said: it is this agent's turn there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    pub created_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewDelegation {
    pub delegation_id: String,
    pub target_agent_id: String,
    pub purpose: String,
    pub context: Option<String>,
    /// A session before this one began it: go on there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Invitation {
    pub conversation_id: String,
    pub from_agent_id: String,
    pub initial_message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    pub turns_left: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndedConversation {
    pub conversation_id: String,
    pub reason: EndReason,
    /// An answer before this one told it, and nobody knows whether that was read. A conversation
    /// ends once, so its id tells the same notice from another.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub told_before: bool,
}

/// Things that one look hands out; the next look has the others.
const AT_ONCE: usize = 20;
/// Things that are looked through.
const MOST: usize = 5_000;

impl Pending {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Desk {
    /// What has come since the last look; waits for something if there is nothing.
    pub async fn pending(&mut self, wait: Duration) -> Result<Pending, TeamError> {
        self.confirm().await;
        let mut waiter = self.waiter(self.place().bell(self.tenant()), wait);
        loop {
            let (pending, receipt) = self.look_at_inbox().await?;
            if !pending.is_empty() || !waiter.again(self).await? {
                self.receipt = Some(receipt);
                return Ok(pending);
            }
        }
    }

    async fn look_at_inbox(&self) -> Result<(Pending, Receipt), TeamError> {
        until_settled!(self.agent().as_str(), self.try_look().await?)
    }

    async fn try_look(&self) -> Result<Option<(Pending, Receipt)>, TeamError> {
        let waiting = self.app.waiting_for(self.tenant(), self.place(), Purpose::Chat).await?;
        let (id, arrivals) = (self.session.id.clone(), Arc::clone(&self.app.arrivals));
        arrivals.retain(&id, |known| waiting.iter().any(|one| one.value.id == known));
        let mut draft = Draft::begin(&self.app, self.tenant()).await?;
        let others = self.others_at_work(&waiting, draft.now).await?;
        let mut shown = Shown::default();
        let mut is_changed = false;
        for one in waiting {
            let arrival = arrivals.of(&id, &one.value.id);
            let is_attended = one.value.seen_by.as_ref().is_some_and(|by| others.contains(by));
            match one.value.look(&id, arrival, is_attended, self.limits(), draft.now) {
                Look::Show if shown.ids.len() < AT_ONCE => {
                    self.hand_out(&mut draft, one, &mut shown).await?;
                }
                Look::TakeOff => {
                    draft.remove(&one);
                    is_changed = true;
                }
                Look::Show | Look::Leave => {}
            }
        }
        is_changed |= !shown.ids.is_empty();
        self.remember(&mut draft, &shown).await?;
        let receipt = Receipt::new(&self.app, self.tenant(), &id, shown.ids);
        let answer = (shown.pending, receipt);
        if is_changed { draft.settle(&self.app, answer).await } else { Ok(Some(answer)) }
    }

    /// Other sessions of this agent that were shown something and may be thinking about it.
    async fn others_at_work(
        &self,
        waiting: &[Stored<Waiting>],
        now: Timestamp,
    ) -> Result<HashSet<AgentSessionId>, TeamError> {
        let is_other = |by: &AgentSessionId| *by != self.session.id;
        if !waiting.iter().any(|one| one.value.seen_by.as_ref().is_some_and(is_other)) {
            return Ok(HashSet::new());
        }
        let living = self.app.live_sessions(self.tenant(), self.place(), Purpose::Chat).await?;
        let is_silent = |one: &AgentSession| now >= one.seen_at + self.limits().reminder();
        Ok(living.into_iter().filter(|one| !is_silent(one)).map(|one| one.id).collect())
    }
}

impl App {
    /// What waits for an agent's sessions of one purpose, oldest first.
    pub(super) async fn waiting_for(
        &self,
        tenant: &TenantId,
        place: &Place,
        purpose: Purpose,
    ) -> Result<Vec<Stored<Waiting>>, TeamError> {
        let mut query = RecordQuery {
            state: Some(purpose.as_str().to_owned()),
            owner: Some(place.key()),
            limit: 200,
            ..RecordQuery::of::<Waiting>(tenant)
        };
        let mut all = Vec::new();
        loop {
            let (page, next) = self.list_records::<Waiting>(query.clone()).await?;
            all.extend(page);
            query.after = next.filter(|_| all.len() < MOST);
            if query.after.is_none() {
                return Ok(all);
            }
        }
    }
}
