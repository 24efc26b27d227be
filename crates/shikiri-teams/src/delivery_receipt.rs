//! Delivery receipts: whether a session received what it was shown.
//!
//! An answer may be lost: the server dies before writing it, the connection breaks, or the caller
//! is gone. So a look leaves the items that it shows on the list and returns a receipt. The writer
//! of the answer confirms the receipt. If it is dropped instead, the session's next look shows the
//! same items again. Answers under way are known to this process only. After a crash they all count
//! as lost, which is the safe side.
//!
//! A written answer was not necessarily read. For items that are shown once, such as the end of a
//! dialogue, the session's next call is the proof. Without one the next session is told.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use shikiri_model::ids::{AgentSessionId, TenantId};
use shikiri_model::team::{AgentSession, DeliveryState, InboxItem, InboxItemKind};
use shikiri_runtime::transact;
use shikiri_store::StoreExt;

use super::TeamError;
use super::session_handle::{AgentSessionHandle, session_over};
use super::team_transaction::TeamTransaction;
use crate::Teams;

/// What this process knows of the answers to each session.
#[derive(Default)]
pub(crate) struct DeliveryTracker(Mutex<HashMap<AgentSessionId, HashMap<String, DeliveryState>>>);

/// Past this many sessions all are forgotten. Some items are then shown twice.
const MAX_SESSIONS: usize = 10_000;

impl DeliveryTracker {
    fn all(&self) -> MutexGuard<'_, HashMap<AgentSessionId, HashMap<String, DeliveryState>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, session: &AgentSessionId, id: &str) -> DeliveryState {
        let all = self.all();
        let known = all.get(session).and_then(|known| known.get(id));
        known.copied().unwrap_or(DeliveryState::Unknown)
    }

    fn note(&self, session: &AgentSessionId, ids: &[String], arrival: DeliveryState) {
        let mut all = self.all();
        if all.len() >= MAX_SESSIONS && !all.contains_key(session) {
            all.clear();
        }
        let known = all.entry(session.clone()).or_default();
        known.extend(ids.iter().map(|id| (id.clone(), arrival)));
    }

    /// Forgets items that are no longer on the list, or whose answer was lost.
    pub(super) fn retain(&self, session: &AgentSessionId, keep: impl Fn(&str) -> bool) {
        let mut all = self.all();
        let Some(known) = all.get_mut(session) else { return };
        known.retain(|id, _| keep(id));
        if known.is_empty() {
            all.remove(session);
        }
    }
}

/// The receipt for the items of one answer. If it is dropped, the answer counts as lost.
#[must_use]
pub struct DeliveryReceipt {
    teams: Teams,
    tenant: TenantId,
    session: AgentSessionId,
    /// Ids of the items that were shown.
    ids: Vec<String>,
}

impl DeliveryReceipt {
    pub(super) fn new(
        teams: &Teams,
        tenant: &TenantId,
        session: &AgentSessionId,
        ids: Vec<String>,
    ) -> Self {
        if !ids.is_empty() {
            teams.arrivals.note(session, &ids, DeliveryState::OnItsWay);
        }
        Self { teams: teams.clone(), tenant: tenant.clone(), session: session.clone(), ids }
    }

    /// Confirms the answer. The session may look again before this is committed.
    pub fn confirm(mut self) -> impl Future<Output = ()> + Send + 'static {
        let ids = std::mem::take(&mut self.ids);
        if !ids.is_empty() {
            self.teams.arrivals.note(&self.session, &ids, DeliveryState::Came);
        }
        self.write_down(ids)
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    async fn write_down(self, ids: Vec<String>) {
        for id in ids {
            let written = self.teams.mark_delivered(&self.tenant, &self.session, &id).await;
            if let Err(error) = written {
                // If this process ends before the next look, the item is shown once more.
                tracing::debug!(%error, id, "not written that an answer has come");
            }
        }
    }
}

impl Drop for DeliveryReceipt {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            self.teams.arrivals.retain(&self.session, |id| !self.ids.iter().any(|lost| lost == id));
        }
    }
}

impl AgentSessionHandle {
    /// Takes items off the list that an earlier answer showed: the session's call proves that it
    /// read that answer. Items of a lost answer stay, and are shown again.
    pub(super) async fn acknowledge(&mut self) -> Result<(), TeamError> {
        if self.session.handed.is_empty() {
            return Ok(());
        }
        let acknowledged =
            transact("team", self.agent().as_str(), || self.try_acknowledge()).await?;
        if let Some(session) = acknowledged {
            self.session = session;
        }
        Ok(())
    }

    /// The session without the acknowledged items; `None` inside if there are none of them.
    async fn try_acknowledge(&self) -> Result<Option<Option<AgentSession>>, TeamError> {
        let id = self.session.id.as_str();
        let found = self.teams.runtime.store().load::<AgentSession>(self.tenant(), id).await?;
        let Some(mut session) = found else { return Err(session_over().into()) };
        let mut transaction = TeamTransaction::begin(&self.teams, self.tenant()).await?;
        let mut unproven = Vec::new();
        for handed in &session.value.handed {
            let found = self.teams.runtime.store().load::<InboxItem>(self.tenant(), handed).await?;
            // Skips items that are gone or were shown to another session since.
            let Some(one) = found.filter(|one| one.value.is_seen_by(&session.value.id)) else {
                continue;
            };
            let arrival = self.teams.arrivals.of(&session.value.id, handed);
            if one.value.is_confirmed_by(&session.value.id, arrival) {
                transaction.remove(&one);
            } else {
                unproven.push(handed.clone());
            }
        }
        if unproven.len() == session.value.handed.len() {
            return Ok(Some(None));
        }
        session.value.handed = unproven;
        transaction.put(&session)?;
        transaction.try_commit(&self.teams, Some(session.value)).await
    }
}

impl Teams {
    async fn mark_delivered(
        &self,
        tenant: &TenantId,
        session: &AgentSessionId,
        id: &str,
    ) -> Result<(), TeamError> {
        transact("team", id, || self.try_mark_delivered(tenant, session, id)).await
    }

    async fn try_mark_delivered(
        &self,
        tenant: &TenantId,
        session: &AgentSessionId,
        id: &str,
    ) -> Result<Option<()>, TeamError> {
        let Some(mut one) = self.runtime.store().load::<InboxItem>(tenant, id).await? else {
            return Ok(Some(()));
        };
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        match &one.value.what {
            InboxItemKind::Outcome(delegation) => {
                if self.is_outcome_kept(tenant, delegation).await? {
                    one.value.mark_seen(session, transaction.now);
                    one.value.due_at = None;
                    transaction.put(&one)?;
                } else {
                    transaction.remove(&one);
                }
            }
            // Another session was shown the item meanwhile.
            _ if !one.value.is_seen_by(session) => return Ok(Some(())),
            // The session usually handles these soon, so a write for each is not worth it.
            InboxItemKind::Turn { .. } | InboxItemKind::Invitation { .. } => return Ok(Some(())),
            _ => {
                one.value.has_come = true;
                transaction.put(&one)?;
            }
        }
        transaction.try_commit(self, ()).await
    }
}
