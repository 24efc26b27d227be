//! Delegations: created by a task session, handled by a chat session of the same agent.

use serde_json::Value;
use shikiri_model::ids::{DelegationId, ProjectId, TenantId};
use shikiri_model::record::{RecordQuery, StoredDocument};
use shikiri_model::team::{
    Delegation, DelegationStatus, Dialogue, InboxItem, InboxItemKind, MAX_CONTENT, RefusalCode,
    TeamCause, TeamCauseKind, check_content,
};
use shikiri_runtime::{entropy, transact};
use shikiri_store::StoreExt;

use super::TeamError;
use super::next_action::OutcomeRecipient;
use super::session_handle::{AgentSessionHandle, optional};
use super::team_transaction::TeamTransaction;
use crate::Teams;

/// The longest context for a chat session, in characters.
const MAX_CONTEXT: usize = 16_000;
/// Open delegations of one agent in a project.
const MAX_OPEN: usize = 100;

impl AgentSessionHandle {
    /// Asks this agent's chat session to talk to another agent. Returns at once.
    pub async fn delegate(
        &self,
        target: &str,
        purpose: &str,
        context: Option<String>,
    ) -> Result<Delegation, TeamError> {
        check_content("purpose", purpose, MAX_CONTENT)?;
        let context = optional(context);
        if let Some(context) = &context {
            check_content("context", context, MAX_CONTEXT)?;
        }
        transact("team", target, || self.try_delegate(target, purpose, context.clone())).await
    }

    async fn try_delegate(
        &self,
        target: &str,
        purpose: &str,
        context: Option<String>,
    ) -> Result<Option<Delegation>, TeamError> {
        let (partner, membership) = self.partner(target).await?;
        let mut own = self.own_membership().await?;
        let open = self.teams.open_delegations(self.tenant(), &self.place().project).await?;
        if open.iter().filter(|one| one.agent == *self.agent()).count() >= MAX_OPEN {
            let message = format!("you have {MAX_OPEN} open delegations: wait for one to end");
            return Err(RefusalCode::TooManyDelegations.because(message).into());
        }
        let mut transaction = TeamTransaction::begin(&self.teams, self.tenant()).await?;
        let living = self.teams.living_dialogues(self.tenant(), self.place()).await?;
        let id = DelegationId::mint(transaction.now, entropy()?);
        let cause = TeamCause::new(TeamCauseKind::Delegation, &id, transaction.now);
        let delegation = Delegation {
            id,
            tenant: self.tenant().clone(),
            project: self.place().project.clone(),
            agent: self.agent().clone(),
            target: partner.id,
            purpose: purpose.to_owned(),
            context,
            status: DelegationStatus::Pending,
            task: self.session.task.clone(),
            session: self.session.id.clone(),
            budget: self.budget(&living, transaction.now).await?,
            cause: Some(cause),
            attempts: 0,
            claim: None,
            dialogue: None,
            processed_at: None,
            result: None,
            reported: None,
        };
        transaction.require(&membership);
        transaction.set_off(&self.teams, &mut own, delegation.cause.as_ref())?;
        transaction.add(&delegation)?;
        let what = InboxItemKind::Delegation(delegation.id.clone());
        transaction.add_inbox_item(&self.teams, self.place().clone(), what).await?;
        transaction.try_commit(&self.teams, delegation).await
    }

    pub async fn delegation(&self, id: &str) -> Result<StoredDocument<Delegation>, TeamError> {
        self.own_delegation(id).await
    }

    /// The chat session reports the outcome of a delegation.
    pub async fn report_delegation(
        &self,
        id: &str,
        status: DelegationStatus,
        text: Option<&Value>,
    ) -> Result<StoredDocument<Delegation>, TeamError> {
        check_result(text)?;
        transact("team", id, || self.try_report(id, status, text)).await
    }

    async fn try_report(
        &self,
        id: &str,
        status: DelegationStatus,
        text: Option<&Value>,
    ) -> Result<Option<StoredDocument<Delegation>>, TeamError> {
        let mut delegation = self.own_delegation(id).await?;
        let mut transaction = TeamTransaction::begin(&self.teams, self.tenant()).await?;
        let was_open = delegation.value.status.is_open();
        // A delegation that was never listed goes through the same states.
        delegation.value.claim(&self.session.id, self.limits(), transaction.now);
        let has_dialogue = self.teams.has_living_dialogue(&delegation.value).await?;
        delegation.value.report(self.agent(), status, text, has_dialogue, transaction.now)?;
        if was_open && !delegation.value.status.is_open() {
            self.teams.put_outcome(&mut transaction, &delegation).await?;
        } else {
            transaction.put(&delegation)?;
        }
        transaction.try_change(&self.teams, delegation).await
    }
}

/// An agent's result is sent to another agent, so it is bounded like every message.
pub(super) fn check_result(result: Option<&Value>) -> Result<(), TeamError> {
    let length = result.map_or(0, |result| result.to_string().chars().count());
    if length > MAX_CONTEXT {
        let message = format!("result has {length} characters: {MAX_CONTEXT} are the most");
        return Err(RefusalCode::ContentTooLong.because(message).into());
    }
    Ok(())
}

impl Teams {
    pub(super) async fn has_living_dialogue(
        &self,
        delegation: &Delegation,
    ) -> Result<bool, TeamError> {
        let Some(id) = &delegation.dialogue else { return Ok(false) };
        let found = self.runtime.store().load::<Dialogue>(&delegation.tenant, id.as_str()).await?;
        Ok(found.is_some_and(|found| found.value.is_living()))
    }

    /// Records the outcome of a delegation. No chat session may take it on any more, and its task
    /// session is to be notified.
    pub(super) async fn put_outcome(
        &self,
        transaction: &mut TeamTransaction,
        delegation: &StoredDocument<Delegation>,
    ) -> Result<(), TeamError> {
        transaction.put(delegation)?;
        let delegation = &delegation.value;
        transaction.remove_inbox_item(self, delegation.id.as_str()).await?;
        let (member, outcome) = (delegation.place(), InboxItemKind::Outcome(delegation.id.clone()));
        let mut item = transaction.item(self, member.clone(), outcome).await?;
        if self.outcome_recipient(delegation).await? == OutcomeRecipient::Later {
            // No agent is started for a blocked task.
            item.due_at = None;
        }
        transaction.add(&item)?;
        transaction.wake_agent(member);
        Ok(())
    }

    /// Offers a delegation that was given back to every session again.
    pub(super) async fn requeue_delegation(
        &self,
        transaction: &mut TeamTransaction,
        delegation: &Delegation,
    ) -> Result<(), TeamError> {
        let id = delegation.id.as_str();
        if let Some(mut waiting) =
            self.runtime.store().load::<InboxItem>(&delegation.tenant, id).await?
        {
            waiting.value.reset_seen();
            waiting.value.due_at = waiting.value.due_at.map(|_| transaction.now);
            transaction.put(&waiting)?;
        }
        transaction.wake_agent(delegation.place());
        Ok(())
    }

    pub(super) async fn open_delegations(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
    ) -> Result<Vec<Delegation>, TeamError> {
        let query = RecordQuery {
            owner: Some(project.to_string()),
            ..RecordQuery::of::<Delegation>(tenant)
        };
        Ok(self.runtime.list_all(query).await?)
    }
}
