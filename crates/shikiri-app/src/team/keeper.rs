//! What the time decides: dialogues and delegations whose limit has come, sessions that ended.
//!
//! Every living node does this for all. A record that is due is claimed, so that one does it, and
//! comes up again if that one dies.

use std::time::Duration;

use shikiri_model::ids::{AgentSessionId, TenantId};
use shikiri_model::record::{Claim, Document, Record};
use shikiri_model::team::{AgentSession, Delegation, Dialogue, EndReason, Place, Purpose, Sweep};
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, StoreExt, Topic};
use tokio_util::sync::CancellationToken;

use super::draft::Draft;
use super::{TeamError, until_settled};
use crate::app::App;

/// How long the others leave alone what one has claimed.
const HOLD: Duration = Duration::from_secs(5);
const AT_ONCE: u32 = 50;
/// Time that is bought by looking less often than something changes.
const BREATH: Duration = Duration::from_millis(20);
/// It is looked at least so often: the clock of the store may go differently from ours.
const LONGEST: Duration = Duration::from_secs(5);

const KINDS: [&str; 3] = [Dialogue::KIND, Delegation::KIND, AgentSession::KIND];

/// Keeps time until told to stop.
pub(crate) async fn keep_time(app: App, stop: CancellationToken) {
    let mut news = KINDS.map(|kind| app.store.hub().subscribe(Topic::Due(kind)));
    while !stop.is_cancelled() {
        let pause = match app.settle_due().await {
            Ok(pause) => pause,
            Err(error) => {
                tracing::warn!(%error, "cannot settle what is due; trying again");
                Duration::from_secs(1)
            }
        };
        let [dialogue, delegation, session] = &mut news;
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

impl App {
    /// Settles what is due, and tells how long there is nothing to do.
    async fn settle_due(&self) -> Result<Duration, TeamError> {
        let mut next: Option<Timestamp> = None;
        for kind in KINDS {
            let now = self.store.now().await?;
            let mut due = self.store.next_due(kind).await?;
            if due.is_some_and(|due| due <= now) {
                self.settle_kind(kind).await?;
                due = self.store.next_due(kind).await?;
            }
            next = [next, due].into_iter().flatten().min();
        }
        let now = self.store.now().await?;
        Ok(next.map_or(LONGEST, |next| next.since(now)))
    }

    async fn settle_kind(&self, kind: &'static str) -> Result<(), TeamError> {
        let claim =
            Claim { kind, tenant: None, parent: None, owner: None, hold: HOLD, limit: AT_ONCE };
        let claimed = self.store.commit(Commit::new().claim(claim)).await?.claimed;
        for Record { key, .. } in claimed {
            // One that cannot be settled is not in the way of the others.
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
            Dialogue::KIND => until_settled!(id, self.settle_dialogue(tenant, id).await?),
            Delegation::KIND => self.settle_claim(tenant, id).await,
            _ => self.settle_session(tenant, id).await,
        }
    }

    async fn settle_dialogue(&self, tenant: &TenantId, id: &str) -> Result<Option<()>, TeamError> {
        let Some(mut dialogue) = self.store.load::<Dialogue>(tenant, id).await? else {
            return Ok(Some(()));
        };
        let mut draft = Draft::begin(self, tenant).await?;
        if dialogue.value.is_overdue(draft.now) {
            dialogue.value.end_for(EndReason::Timeout, draft.now);
            self.put_end(&mut draft, &dialogue, None).await?;
        } else {
            // Claiming has moved its time.
            draft.put(&dialogue)?;
        }
        draft.settle(self, ()).await
    }

    async fn settle_claim(&self, tenant: &TenantId, id: &str) -> Result<(), TeamError> {
        until_settled!(id, self.settle_delegation(tenant, id).await?)
    }

    async fn settle_delegation(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<Option<()>, TeamError> {
        let Some(mut delegation) = self.store.load::<Delegation>(tenant, id).await? else {
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
        let mut draft = Draft::begin(self, tenant).await?;
        let limits = &self.options.team;
        match delegation.value.sweep(last_call, has_dialogue, limits, draft.now) {
            Sweep::Later => draft.put(&delegation)?,
            Sweep::GivenBack => {
                draft.put(&delegation)?;
                self.offer_again(&mut draft, &delegation.value).await?;
            }
            Sweep::Failed => self.put_outcome(&mut draft, &delegation).await?,
        }
        draft.settle(self, ()).await
    }

    /// When a session last called, if it lives.
    async fn last_call(
        &self,
        tenant: &TenantId,
        id: &AgentSessionId,
    ) -> Result<Option<Timestamp>, TeamError> {
        let session = self.store.load::<AgentSession>(tenant, id.as_str()).await?;
        let now = self.store.now().await?;
        Ok(session.filter(|one| one.value.is_live(now)).map(|one| one.value.seen_at))
    }

    async fn settle_session(&self, tenant: &TenantId, id: &str) -> Result<(), TeamError> {
        let Some(session) = self.store.load::<AgentSession>(tenant, id).await? else {
            return Ok(());
        };
        let mut draft = Draft::begin(self, tenant).await?;
        if session.value.is_over {
            draft.remove(&session);
        } else if session.value.is_live(draft.now) {
            // Claiming has moved its time.
            draft.put(&session)?;
        } else {
            return self.end_session(tenant, &session.value.id).await;
        }
        draft.settle(self, ()).await.map(drop)
    }

    /// Ends a session. What it had taken on is given back at once. If it was the last of its agent
    /// for talk and nobody starts another, the agent's dialogues end with it: nobody is there to go
    /// on.
    pub async fn end_session(
        &self,
        tenant: &TenantId,
        id: &AgentSessionId,
    ) -> Result<(), TeamError> {
        let Some(mut session) = self.store.load::<AgentSession>(tenant, id.as_str()).await? else {
            return Ok(());
        };
        let (place, purpose) = (session.value.place.clone(), session.value.purpose);
        let mut draft = Draft::begin(self, tenant).await?;
        session.value.is_over = true;
        session.value.expires_at = session.value.expires_at.min(draft.now);
        draft.put(&session)?;
        draft.ring(place.clone());
        if draft.settle(self, ()).await?.is_none() {
            // Somebody used it meanwhile: it is not over, or comes up again.
            return Ok(());
        }
        if purpose == Purpose::Task {
            return Ok(());
        }
        for delegation in self.open_delegations(tenant, &place.project).await? {
            if delegation.claim.is_some_and(|claim| claim.session == *id) {
                self.settle_claim(tenant, delegation.id.as_str()).await?;
            }
        }
        let is_followed = self.team_agent(tenant, &place.agent).await?.value.can_be_started()
            || !self.live_sessions(tenant, &place, purpose).await?.is_empty();
        if is_followed { Ok(()) } else { self.end_dialogues_of(tenant, &place).await }
    }

    async fn end_dialogues_of(&self, tenant: &TenantId, place: &Place) -> Result<(), TeamError> {
        for dialogue in self.living_dialogues(tenant, place).await? {
            // Where it has not come yet it may come later: that has a limit of its own.
            if !dialogue.is_expecting(&place.agent) {
                self.end_for_expiry(&dialogue).await?;
            }
        }
        Ok(())
    }

    async fn end_for_expiry(&self, dialogue: &Dialogue) -> Result<(), TeamError> {
        let id = dialogue.id.as_str();
        until_settled!(id, self.try_end_for_expiry(&dialogue.tenant, id).await?)
    }

    async fn try_end_for_expiry(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<Option<()>, TeamError> {
        let Some(mut dialogue) = self.store.load::<Dialogue>(tenant, id).await? else {
            return Ok(Some(()));
        };
        let mut draft = Draft::begin(self, tenant).await?;
        if !dialogue.value.end_for(EndReason::SessionExpired, draft.now) {
            return Ok(Some(()));
        }
        self.put_end(&mut draft, &dialogue, None).await?;
        draft.settle(self, ()).await
    }
}
