//! Whether what a session was shown has come to it.
//!
//! An answer may be lost: the server dies before it is written, the connection breaks, the caller
//! has gone. So a look leaves on the list what it shows, and gives a receipt. Whoever writes the
//! answer confirms it; if it is dropped instead, the session's next look shows the same again. What
//! is on its way is known to this process only: after its death everything counts as lost, which is
//! the side to err on.
//!
//! That an answer was written does not say that it was read. Of what is told once, such as an end,
//! the session's next call is the proof; without one the next session is told.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use shikiri_model::ids::{AgentSessionId, TenantId};
use shikiri_model::team::{AgentSession, Arrival, Waiting, What};
use shikiri_store::StoreExt;

use super::desk::{Desk, session_over};
use super::draft::Draft;
use super::{TeamError, until_settled};
use crate::app::App;

/// What this process knows of answers to each session.
#[derive(Default)]
pub(crate) struct Arrivals(Mutex<HashMap<AgentSessionId, HashMap<String, Arrival>>>);

/// More sessions than this are forgotten all at once: then some are shown something twice.
const MAX_SESSIONS: usize = 10_000;

impl Arrivals {
    fn all(&self) -> MutexGuard<'_, HashMap<AgentSessionId, HashMap<String, Arrival>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, session: &AgentSessionId, id: &str) -> Arrival {
        let all = self.all();
        let known = all.get(session).and_then(|known| known.get(id));
        known.copied().unwrap_or(Arrival::Unknown)
    }

    fn note(&self, session: &AgentSessionId, ids: &[String], arrival: Arrival) {
        let mut all = self.all();
        if all.len() >= MAX_SESSIONS && !all.contains_key(session) {
            all.clear();
        }
        let known = all.entry(session.clone()).or_default();
        known.extend(ids.iter().map(|id| (id.clone(), arrival)));
    }

    /// Forgets what is not on the list any more, or was lost.
    pub(super) fn retain(&self, session: &AgentSessionId, keep: impl Fn(&str) -> bool) {
        let mut all = self.all();
        let Some(known) = all.get_mut(session) else { return };
        known.retain(|id, _| keep(id));
        if known.is_empty() {
            all.remove(session);
        }
    }
}

/// For what one answer shows to a session. Dropped, the answer counts as lost.
#[must_use]
pub struct Receipt {
    app: App,
    tenant: TenantId,
    session: AgentSessionId,
    /// Of what is shown, on the agent's list.
    ids: Vec<String>,
}

impl Receipt {
    pub(super) fn new(
        app: &App,
        tenant: &TenantId,
        session: &AgentSessionId,
        ids: Vec<String>,
    ) -> Self {
        if !ids.is_empty() {
            app.arrivals.note(session, &ids, Arrival::OnItsWay);
        }
        Self { app: app.clone(), tenant: tenant.clone(), session: session.clone(), ids }
    }

    /// The answer has come, or is about to: the session may look again before this is written down.
    pub fn confirm(mut self) -> impl Future<Output = ()> + Send + 'static {
        let ids = std::mem::take(&mut self.ids);
        if !ids.is_empty() {
            self.app.arrivals.note(&self.session, &ids, Arrival::Came);
        }
        self.write_down(ids)
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    async fn write_down(self, ids: Vec<String>) {
        for id in ids {
            let written = self.app.has_come(&self.tenant, &self.session, &id).await;
            if let Err(error) = written {
                // It is shown once more, should this process end before the next look.
                tracing::debug!(%error, id, "not written that an answer has come");
            }
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            self.app.arrivals.retain(&self.session, |id| !self.ids.iter().any(|lost| lost == id));
        }
    }
}

impl Desk {
    /// By calling, the session proves that it has heard what it was told before: that goes off its
    /// agent's list. What it was told by an answer that was lost stays, and is told again.
    pub(super) async fn acknowledge(&mut self) -> Result<(), TeamError> {
        if self.session.handed.is_empty() {
            return Ok(());
        }
        until_settled!(self.agent().as_str(), self.try_acknowledge().await?)
    }

    async fn try_acknowledge(&mut self) -> Result<Option<()>, TeamError> {
        let id = self.session.id.as_str();
        let found = self.app.store.load::<AgentSession>(self.tenant(), id).await?;
        let Some(mut session) = found else { return Err(session_over().into()) };
        let mut draft = Draft::begin(&self.app, self.tenant()).await?;
        let mut unproven = Vec::new();
        for handed in &session.value.handed {
            let found = self.app.store.load::<Waiting>(self.tenant(), handed).await?;
            // What is gone, or was shown to another session since, is none of its business.
            let Some(one) = found.filter(|one| one.value.is_seen_by(&session.value.id)) else {
                continue;
            };
            let arrival = self.app.arrivals.of(&session.value.id, handed);
            if one.value.is_proven_heard(&session.value.id, arrival) {
                draft.remove(&one);
            } else {
                unproven.push(handed.clone());
            }
        }
        if unproven.len() == session.value.handed.len() {
            return Ok(Some(()));
        }
        session.value.handed = unproven;
        draft.put(&session)?;
        let settled = draft.settle(&self.app, ()).await?;
        if settled.is_some() {
            self.session = session.value;
        }
        Ok(settled)
    }
}

impl App {
    async fn has_come(
        &self,
        tenant: &TenantId,
        session: &AgentSessionId,
        id: &str,
    ) -> Result<(), TeamError> {
        until_settled!(id, self.try_has_come(tenant, session, id).await?)
    }

    async fn try_has_come(
        &self,
        tenant: &TenantId,
        session: &AgentSessionId,
        id: &str,
    ) -> Result<Option<()>, TeamError> {
        let Some(mut one) = self.store.load::<Waiting>(tenant, id).await? else {
            return Ok(Some(()));
        };
        let mut draft = Draft::begin(self, tenant).await?;
        match &one.value.what {
            What::Outcome(delegation) => {
                if self.is_outcome_kept(tenant, delegation).await? {
                    one.value.see(session, draft.now);
                    one.value.due_at = None;
                    draft.put(&one)?;
                } else {
                    draft.remove(&one);
                }
            }
            // Another one was shown it meanwhile.
            _ if !one.value.is_seen_by(session) => return Ok(Some(())),
            // These are dealt with in a moment, as a rule: not worth a write each time.
            What::Turn { .. } | What::Invitation { .. } => return Ok(Some(())),
            _ => {
                one.value.has_come = true;
                draft.put(&one)?;
            }
        }
        draft.settle(self, ()).await
    }
}
