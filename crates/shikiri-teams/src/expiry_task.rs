//! Time limits: dialogues and delegations that time out, sessions that expire.
//!
//! Every live node does this for all. A node claims each due record before it works on it. If that
//! node dies, the record becomes due again.

use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::ids::{AgentSessionId, TenantId};
use shikiri_model::record::{Document, Record, RecordClaim};
use shikiri_model::team::{
    AgentSession, Delegation, DelegationSweep, Dialogue, DialogueEndReason, MessageBudget,
    ProjectMember, SessionPurpose,
};
use shikiri_model::time::Timestamp;
use shikiri_runtime::run::BackgroundTask;
use shikiri_runtime::transact;
use shikiri_store::{Commit, HubTopic, StoreExt};
use tokio_util::sync::CancellationToken;

use super::TeamError;
use super::team_transaction::TeamTransaction;
use crate::Teams;

/// How long a claim keeps other nodes away from a record.
const HOLD: Duration = Duration::from_secs(5);
const AT_ONCE: u32 = 50;
/// Pause between looks, so that a burst of changes is handled in one.
const BREATH: Duration = Duration::from_millis(20);
/// The longest pause between looks: the store's clock may differ from ours.
const LONGEST: Duration = Duration::from_secs(5);

const KINDS: [&str; 4] =
    [Dialogue::KIND, Delegation::KIND, AgentSession::KIND, MessageBudget::KIND];

/// Ends what has expired. Every node runs it.
pub struct ExpiryTask(pub Teams);

#[async_trait]
impl BackgroundTask for ExpiryTask {
    async fn run(&self, stop: CancellationToken) {
        run_expiry_task(&self.0, stop).await;
    }
}

async fn run_expiry_task(teams: &Teams, stop: CancellationToken) {
    let mut news = KINDS.map(|kind| teams.runtime.store().hub().subscribe(HubTopic::Due(kind)));
    while !stop.is_cancelled() {
        let pause = match teams.settle_due().await {
            Ok(pause) => pause,
            Err(error) => {
                tracing::warn!(%error, "cannot settle what is due; trying again");
                Duration::from_secs(1)
            }
        };
        let [dialogue, delegation, session, _] = &mut news;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause.clamp(BREATH, LONGEST)) => continue,
            _ = dialogue.next() => {}
            _ = delegation.next() => {}
            _ = session.next() => {}
        }
        tokio::time::sleep(BREATH).await;
    }
}

impl Teams {
    /// Settles what is due, and returns the time until there is more to do.
    async fn settle_due(&self) -> Result<Duration, TeamError> {
        let mut next: Option<Timestamp> = None;
        for kind in KINDS {
            let now = self.runtime.store().now().await?;
            let mut due = self.runtime.store().next_due(kind).await?;
            if due.is_some_and(|due| due <= now) {
                self.settle_kind(kind).await?;
                due = self.runtime.store().next_due(kind).await?;
            }
            next = [next, due].into_iter().flatten().min();
        }
        let now = self.runtime.store().now().await?;
        Ok(next.map_or(LONGEST, |next| next.since(now)))
    }

    async fn settle_kind(&self, kind: &'static str) -> Result<(), TeamError> {
        let claim = RecordClaim {
            kind,
            tenant: None,
            parent: None,
            owner: None,
            hold: HOLD,
            limit: AT_ONCE,
        };
        let claimed = self.runtime.store().commit(Commit::new().claim(claim)).await?.claimed;
        for Record { key, .. } in claimed {
            // A record that cannot be settled does not hold up the others.
            if let Err(error) = self.settle_until_done(kind, &key.tenant, &key.id).await {
                tracing::warn!(%error, kind, id = key.id, "cannot be settled; trying again");
            }
        }
        Ok(())
    }

    async fn settle_until_done(
        &self,
        kind: &'static str,
        tenant: &TenantId,
        id: &str,
    ) -> Result<(), TeamError> {
        match kind {
            Dialogue::KIND => transact("team", id, || self.settle_dialogue(tenant, id)).await,
            Delegation::KIND => self.settle_claim(tenant, id).await,
            MessageBudget::KIND => self.settle_budget(tenant, id).await,
            _ => self.settle_session(tenant, id).await,
        }
    }

    async fn settle_dialogue(&self, tenant: &TenantId, id: &str) -> Result<Option<()>, TeamError> {
        let Some(mut dialogue) = self.runtime.store().load::<Dialogue>(tenant, id).await? else {
            return Ok(Some(()));
        };
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        if dialogue.value.is_overdue(transaction.now) {
            dialogue.value.end_for(DialogueEndReason::Timeout, transaction.now);
            self.put_end(&mut transaction, &dialogue, None).await?;
        } else {
            // The claim has moved the due date.
            transaction.put(&dialogue)?;
        }
        transaction.try_commit(self, ()).await
    }

    /// Forgets a budget that was not used for long.
    async fn settle_budget(&self, tenant: &TenantId, id: &str) -> Result<(), TeamError> {
        let Some(budget) = self.runtime.store().load::<MessageBudget>(tenant, id).await? else {
            return Ok(());
        };
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        transaction.remove(&budget);
        // On a conflict it was used after all.
        transaction.try_commit(self, ()).await.map(drop)
    }

    async fn settle_claim(&self, tenant: &TenantId, id: &str) -> Result<(), TeamError> {
        transact("team", id, || self.settle_delegation(tenant, id)).await
    }

    async fn settle_delegation(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<Option<()>, TeamError> {
        let Some(mut delegation) = self.runtime.store().load::<Delegation>(tenant, id).await?
        else {
            return Ok(Some(()));
        };
        if !delegation.value.status.is_open() {
            return Ok(Some(()));
        }
        let last_call = match &delegation.value.claim {
            Some(claim) => self.last_call(tenant, &claim.session).await?,
            None => None,
        };
        let has_dialogue = self.has_living_dialogue(&delegation.value).await?;
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        let limits = &self.limits;
        match delegation.value.sweep(last_call, has_dialogue, limits, transaction.now) {
            DelegationSweep::Later => transaction.put(&delegation)?,
            DelegationSweep::GivenBack => {
                transaction.put(&delegation)?;
                self.requeue_delegation(&mut transaction, &delegation.value).await?;
            }
            DelegationSweep::Failed => self.put_outcome(&mut transaction, &delegation).await?,
        }
        transaction.try_commit(self, ()).await
    }

    /// When a session last made a call, if it is live.
    async fn last_call(
        &self,
        tenant: &TenantId,
        id: &AgentSessionId,
    ) -> Result<Option<Timestamp>, TeamError> {
        let session = self.runtime.store().load::<AgentSession>(tenant, id.as_str()).await?;
        let now = self.runtime.store().now().await?;
        Ok(session.filter(|one| one.value.is_live(now)).map(|one| one.value.seen_at))
    }

    async fn settle_session(&self, tenant: &TenantId, id: &str) -> Result<(), TeamError> {
        let Some(session) = self.runtime.store().load::<AgentSession>(tenant, id).await? else {
            return Ok(());
        };
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        if session.value.is_over {
            transaction.remove(&session);
        } else if session.value.is_live(transaction.now) {
            // The claim has moved the due date.
            transaction.put(&session)?;
        } else {
            return self.end_session(tenant, &session.value.id).await;
        }
        transaction.try_commit(self, ()).await.map(drop)
    }

    /// Ends a session. Its claimed work is given back at once. If it was the agent's last chat
    /// session and no other is started, the agent's dialogues end too: no session is left to
    /// continue them.
    pub async fn end_session(
        &self,
        tenant: &TenantId,
        id: &AgentSessionId,
    ) -> Result<(), TeamError> {
        let Some(mut session) =
            self.runtime.store().load::<AgentSession>(tenant, id.as_str()).await?
        else {
            return Ok(());
        };
        let (member, purpose) = (session.value.place.clone(), session.value.purpose);
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        session.value.is_over = true;
        session.value.expires_at = session.value.expires_at.min(transaction.now);
        transaction.put(&session)?;
        transaction.wake_agent(member.clone());
        if transaction.try_commit(self, ()).await?.is_none() {
            // The session was used meanwhile: it is not over, or becomes due again.
            return Ok(());
        }
        if purpose == SessionPurpose::Task {
            return Ok(());
        }
        for delegation in self.open_delegations(tenant, &member.project).await? {
            if delegation.claim.is_some_and(|claim| claim.session == *id) {
                self.settle_claim(tenant, delegation.id.as_str()).await?;
            }
        }
        let is_followed = self.can_be_started(tenant, &member).await?
            || !self.live_sessions(tenant, &member, purpose).await?.is_empty();
        if is_followed { Ok(()) } else { self.end_dialogues_of(tenant, &member).await }
    }

    async fn end_dialogues_of(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
    ) -> Result<(), TeamError> {
        for dialogue in self.living_dialogues(tenant, member).await? {
            // A partner that has not joined yet may still come. That has a limit of its own.
            if !dialogue.is_expecting(&member.agent) {
                self.end_for_expiry(&dialogue).await?;
            }
        }
        Ok(())
    }

    async fn end_for_expiry(&self, dialogue: &Dialogue) -> Result<(), TeamError> {
        let id = dialogue.id.as_str();
        transact("team", id, || self.try_end_for_expiry(&dialogue.tenant, id)).await
    }

    async fn try_end_for_expiry(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<Option<()>, TeamError> {
        let Some(mut dialogue) = self.runtime.store().load::<Dialogue>(tenant, id).await? else {
            return Ok(Some(()));
        };
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        if !dialogue.value.end_for(DialogueEndReason::SessionExpired, transaction.now) {
            return Ok(Some(()));
        }
        self.put_end(&mut transaction, &dialogue, None).await?;
        transaction.try_commit(self, ()).await
    }
}
