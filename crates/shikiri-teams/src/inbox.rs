//! An agent's inbox, and which session has seen its items.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use shikiri_model::ids::{AgentSessionId, TenantId};
use shikiri_model::record::{RecordQuery, StoredDocument};
use shikiri_model::team::{
    AgentSession, DialogueEndReason, InboxAction, InboxItem, ProjectMember, SessionPurpose,
};
use shikiri_model::time::Timestamp;

use super::inbox_delivery::InboxDelivery;
use super::session_handle::AgentSessionHandle;
use super::team_transaction::TeamTransaction;
use super::{DeliveryReceipt, TeamError};
use crate::Teams;
use shikiri_runtime::transact;

/// The items that a chat session has to handle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PendingInbox {
    pub pending_messages: Vec<InboxMessage>,
    pub pending_delegations: Vec<InboxDelegation>,
    pub invitations: Vec<DialogueInvitation>,
    pub ended_conversations: Vec<EndedConversation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InboxMessage {
    pub message_id: String,
    pub from_agent_id: String,
    pub content: String,
    /// The dialogue of the message; it is this agent's turn there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    pub created_at: Timestamp,
    /// The server tells something. It is not to be answered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub notice: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InboxDelegation {
    pub delegation_id: String,
    pub target_agent_id: String,
    pub purpose: String,
    pub context: Option<String>,
    /// Set if an earlier session of this agent opened the dialogue, which is to be continued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DialogueInvitation {
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
    pub reason: DialogueEndReason,
    /// Set if an earlier answer showed this notice and may have been lost. A dialogue ends once, so
    /// its id identifies the notice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub told_before: bool,
}

/// Items of one answer. The next look returns the rest.
const AT_ONCE: usize = 20;
/// Items that one look examines.
const MOST: usize = 5_000;

impl PendingInbox {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl AgentSessionHandle {
    /// Items that came since the last look. Waits if there are none.
    pub async fn pending(&mut self, wait: Duration) -> Result<PendingInbox, TeamError> {
        self.confirm().await;
        let mut waiter = self.waiter(self.place().wake_stream(self.tenant()), wait);
        loop {
            let (pending, receipt) = self.collect_inbox().await?;
            if !pending.is_empty() || !waiter.wait_for_wake(self).await? {
                self.receipt = Some(receipt);
                return Ok(pending);
            }
        }
    }

    async fn collect_inbox(&self) -> Result<(PendingInbox, DeliveryReceipt), TeamError> {
        transact("team", self.agent().as_str(), || self.try_collect_inbox()).await
    }

    async fn try_collect_inbox(
        &self,
    ) -> Result<Option<(PendingInbox, DeliveryReceipt)>, TeamError> {
        let waiting =
            self.teams.inbox_items(self.tenant(), self.place(), SessionPurpose::Chat).await?;
        let (id, arrivals) = (self.session.id.clone(), Arc::clone(&self.teams.arrivals));
        arrivals.retain(&id, |known| waiting.iter().any(|one| one.value.id == known));
        let mut transaction = TeamTransaction::begin(&self.teams, self.tenant()).await?;
        let others = self.others_at_work(&waiting, transaction.now).await?;
        let mut shown = InboxDelivery::default();
        let mut is_changed = false;
        for one in waiting {
            let arrival = arrivals.of(&id, &one.value.id);
            let is_attended = one.value.seen_by.as_ref().is_some_and(|by| others.contains(by));
            match one.value.action_for(&id, arrival, is_attended, self.limits(), transaction.now) {
                InboxAction::Show if shown.ids.len() < AT_ONCE => {
                    self.deliver_inbox_item(&mut transaction, one, &mut shown).await?;
                }
                InboxAction::TakeOff => {
                    transaction.remove(&one);
                    is_changed = true;
                }
                InboxAction::Show | InboxAction::Leave => {}
            }
        }
        is_changed |= !shown.ids.is_empty();
        self.remember(&mut transaction, &shown).await?;
        let receipt = DeliveryReceipt::new(&self.teams, self.tenant(), &id, shown.ids);
        let answer = (shown.pending, receipt);
        if is_changed {
            transaction.try_commit(&self.teams, answer).await
        } else {
            Ok(Some(answer))
        }
    }

    /// Other sessions of this agent that were shown something and may be working on it.
    async fn others_at_work(
        &self,
        waiting: &[StoredDocument<InboxItem>],
        now: Timestamp,
    ) -> Result<HashSet<AgentSessionId>, TeamError> {
        let is_other = |by: &AgentSessionId| *by != self.session.id;
        if !waiting.iter().any(|one| one.value.seen_by.as_ref().is_some_and(is_other)) {
            return Ok(HashSet::new());
        }
        let living =
            self.teams.live_sessions(self.tenant(), self.place(), SessionPurpose::Chat).await?;
        let is_silent = |one: &AgentSession| now >= one.seen_at + self.limits().reminder();
        Ok(living.into_iter().filter(|one| !is_silent(one)).map(|one| one.id).collect())
    }
}

impl Teams {
    /// An agent's inbox items for sessions of one purpose, oldest first.
    pub(super) async fn inbox_items(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
        purpose: SessionPurpose,
    ) -> Result<Vec<StoredDocument<InboxItem>>, TeamError> {
        let mut query = RecordQuery {
            state: Some(purpose.as_str().to_owned()),
            owner: Some(member.key()),
            limit: 200,
            ..RecordQuery::of::<InboxItem>(tenant)
        };
        let mut all = Vec::new();
        loop {
            let (page, next) = self.runtime.list_records::<InboxItem>(query.clone()).await?;
            all.extend(page);
            query.after = next.filter(|_| all.len() < MOST);
            if query.after.is_none() {
                return Ok(all);
            }
        }
    }
}
