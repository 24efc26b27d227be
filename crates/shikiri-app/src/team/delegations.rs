//! Delegations: made by a task session, dealt with by a chat session of the same agent.

use serde_json::Value;
use shikiri_model::ids::{DelegationId, ProjectId, TenantId};
use shikiri_model::record::{RecordQuery, Stored};
use shikiri_model::team::{
    Delegation, DelegationStatus, Dialogue, MAX_CONTENT, RefusalCode, Waiting, What, check_content,
};
use shikiri_store::StoreExt;

use super::desk::{Desk, optional};
use super::draft::Draft;
use super::work::Audience;
use super::{TeamError, until_settled};
use crate::app::{App, entropy};

/// Characters of what a chat session should know besides.
const MAX_CONTEXT: usize = 16_000;
/// Delegations of one agent that may be open at once in a project.
const MAX_OPEN: usize = 100;

impl Desk {
    /// Asks this agent's chat session to talk to somebody. Nobody is waited for.
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
        until_settled!(target, self.try_delegate(target, purpose, context.clone()).await?)
    }

    async fn try_delegate(
        &self,
        target: &str,
        purpose: &str,
        context: Option<String>,
    ) -> Result<Option<Delegation>, TeamError> {
        let (partner, membership) = self.partner(target).await?;
        let open = self.app.open_delegations(self.tenant(), &self.place().project).await?;
        if open.iter().filter(|one| one.agent == *self.agent()).count() >= MAX_OPEN {
            let message = format!("you have {MAX_OPEN} open delegations: wait for one to end");
            return Err(RefusalCode::TooManyDelegations.because(message).into());
        }
        let mut draft = Draft::begin(&self.app, self.tenant()).await?;
        let living = self.app.living_dialogues(self.tenant(), self.place()).await?;
        let delegation = Delegation {
            id: DelegationId::mint(draft.now, entropy()?),
            tenant: self.tenant().clone(),
            project: self.place().project.clone(),
            agent: self.agent().clone(),
            target: partner.id,
            purpose: purpose.to_owned(),
            context,
            status: DelegationStatus::Pending,
            task: self.session.task.clone(),
            session: self.session.id.clone(),
            budget: self.budget(&living, draft.now).await?,
            attempts: 0,
            claim: None,
            dialogue: None,
            processed_at: None,
            result: None,
            reported: None,
        };
        draft.require(&membership);
        draft.add(&delegation)?;
        let what = What::Delegation(delegation.id.clone());
        draft.await_agent(&self.app, self.place().clone(), what).await?;
        draft.settle(&self.app, delegation).await
    }

    pub async fn delegation(&self, id: &str) -> Result<Stored<Delegation>, TeamError> {
        self.own_delegation(id).await
    }

    /// The chat session says what became of a delegation.
    pub async fn report_delegation(
        &self,
        id: &str,
        status: DelegationStatus,
        text: Option<&Value>,
    ) -> Result<Stored<Delegation>, TeamError> {
        check_result(text)?;
        until_settled!(id, self.try_report(id, status, text).await?)
    }

    async fn try_report(
        &self,
        id: &str,
        status: DelegationStatus,
        text: Option<&Value>,
    ) -> Result<Option<Stored<Delegation>>, TeamError> {
        let mut delegation = self.own_delegation(id).await?;
        let mut draft = Draft::begin(&self.app, self.tenant()).await?;
        let was_open = delegation.value.status.is_open();
        // What was never listed goes through the same states.
        delegation.value.claim(&self.session.id, self.limits(), draft.now);
        let has_dialogue = self.app.has_living_dialogue(&delegation.value).await?;
        delegation.value.report(self.agent(), status, text, has_dialogue, draft.now)?;
        if was_open && !delegation.value.status.is_open() {
            self.app.put_outcome(&mut draft, &delegation).await?;
        } else {
            draft.put(&delegation)?;
        }
        draft.settle(&self.app, delegation).await
    }
}

/// What an agent says of its work goes to another one, so it is bounded like all that is said.
pub(super) fn check_result(result: Option<&Value>) -> Result<(), TeamError> {
    let length = result.map_or(0, |result| result.to_string().chars().count());
    if length > MAX_CONTEXT {
        let message = format!("result has {length} characters: {MAX_CONTEXT} are the most");
        return Err(RefusalCode::ContentTooLong.because(message).into());
    }
    Ok(())
}

impl App {
    pub(super) async fn has_living_dialogue(
        &self,
        delegation: &Delegation,
    ) -> Result<bool, TeamError> {
        let Some(id) = &delegation.dialogue else { return Ok(false) };
        let found = self.store.load::<Dialogue>(&delegation.tenant, id.as_str()).await?;
        Ok(found.is_some_and(|found| found.value.is_living()))
    }

    /// Writes that a delegation is over: no chat session is to take it on any more, and its task
    /// session is to be told.
    pub(super) async fn put_outcome(
        &self,
        draft: &mut Draft,
        delegation: &Stored<Delegation>,
    ) -> Result<(), TeamError> {
        draft.put(delegation)?;
        let delegation = &delegation.value;
        draft.stop_waiting(self, delegation.id.as_str()).await?;
        let (place, outcome) = (delegation.place(), What::Outcome(delegation.id.clone()));
        let mut item = draft.item(self, place.clone(), outcome).await?;
        if self.audience(delegation).await? == Audience::Later {
            // Nobody is started for a task that is blocked.
            item.due_at = None;
        }
        draft.add(&item)?;
        draft.ring(place);
        Ok(())
    }

    /// Makes a delegation that was given back news to every session again.
    pub(super) async fn offer_again(
        &self,
        draft: &mut Draft,
        delegation: &Delegation,
    ) -> Result<(), TeamError> {
        let id = delegation.id.as_str();
        if let Some(mut waiting) = self.store.load::<Waiting>(&delegation.tenant, id).await? {
            waiting.value.forget();
            waiting.value.due_at = waiting.value.due_at.map(|_| draft.now);
            draft.put(&waiting)?;
        }
        draft.ring(delegation.place());
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
        Ok(self.list_all(query).await?)
    }
}
