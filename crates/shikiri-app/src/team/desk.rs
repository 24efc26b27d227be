//! Where a session works: what it may do was checked, who it is stands in every write.

use serde_json::Value;
use shikiri_model::ids::{AgentId, TenantId};
use shikiri_model::record::Stored;
use shikiri_model::team::{
    AgentSession, Caller, Membership, Place, Refusal, RefusalCode, TOOLS, TeamAgent, TeamLimits,
    allows,
};
use shikiri_model::time::Timestamp;
use shikiri_store::StoreExt;
use tokio_util::sync::CancellationToken;

use super::{Receipt, TeamError, parse_id};
use crate::app::App;
use crate::error::AppError;

pub struct Desk {
    pub(super) app: App,
    pub session: AgentSession,
    /// Cancelled when nobody waits for what is waited for.
    pub(super) given_up: CancellationToken,
    /// For what it was shown last.
    pub(super) receipt: Option<Receipt>,
}

impl Desk {
    pub(super) fn new(app: App, session: AgentSession) -> Self {
        Self { app, session, given_up: CancellationToken::new(), receipt: None }
    }

    /// Waits no longer than this: then it answers with what there is.
    #[must_use]
    pub fn until(self, given_up: CancellationToken) -> Self {
        Self { given_up, ..self }
    }

    /// To be confirmed once the answer is written.
    pub fn take_receipt(&mut self) -> Option<Receipt> {
        self.receipt.take()
    }

    /// Whoever asks again at the same desk has got what it was shown there.
    pub(super) async fn confirm(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            receipt.confirm().await;
        }
    }

    pub(super) fn tenant(&self) -> &TenantId {
        &self.session.tenant
    }

    pub(super) fn place(&self) -> &Place {
        &self.session.place
    }

    pub(super) fn agent(&self) -> &AgentId {
        &self.session.place.agent
    }

    pub(super) fn limits(&self) -> &TeamLimits {
        &self.app.options.team
    }

    /// What this session may use.
    pub fn tools(&self) -> impl Iterator<Item = &'static str> {
        let caller = Caller::Session(self.session.purpose);
        TOOLS.iter().map(|(name, _)| *name).filter(move |name| allows(name, caller))
    }

    /// Writes down that the session is in use, if that was not done a moment ago.
    pub(super) async fn give_sign_of_life(&mut self, now: Timestamp) -> Result<(), TeamError> {
        if !self.session.is_stale(self.limits(), now) {
            return Ok(());
        }
        let id = self.session.id.as_str();
        let touched = self
            .app
            .update::<AgentSession>(&self.session.tenant, id, |session| {
                if session.is_over {
                    return Err(AppError::not_found("session", &session.id));
                }
                session.seen_at = session.seen_at.max(now);
                Ok(())
            })
            .await;
        match touched {
            Ok(stored) => {
                self.session = stored.value;
                Ok(())
            }
            Err(AppError::NotFound { .. }) => Err(session_over().into()),
            Err(other) => Err(other.into()),
        }
    }

    /// Another agent of the same project.
    pub(super) async fn partner(
        &self,
        id: &str,
    ) -> Result<(TeamAgent, Stored<Membership>), TeamError> {
        let id: AgentId = parse_id(id, RefusalCode::AgentNotFound)?;
        if id == *self.agent() {
            let message = "that is yourself: choose another agent";
            return Err(RefusalCode::WithSelf.because(message).into());
        }
        let agent = self.app.store.load::<TeamAgent>(self.tenant(), id.as_str()).await?;
        let Some(agent) = agent else {
            let message = format!("there is no agent {id}");
            return Err(RefusalCode::AgentNotFound.because(message).into());
        };
        let place = Place::new(&self.place().project, &id);
        let membership = Membership::id_of(&place);
        let membership = self.app.store.load::<Membership>(self.tenant(), &membership).await?;
        let Some(membership) = membership else {
            let message = format!("agent {id} is not in project {}", place.project);
            return Err(RefusalCode::NotInProject.because(message).into());
        };
        Ok((agent.value, membership))
    }
}

pub(super) fn session_over() -> Refusal {
    RefusalCode::SessionExpired.because("the session has ended: call authenticate for another")
}

/// A text that need not be there; an empty one is as good as none.
pub(super) fn optional(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

/// JSON of something that always has a form in JSON.
pub(super) fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
