//! The handle of a session. Its permission was checked, and every write names the session.

use serde_json::Value;
use shikiri_model::ids::{AgentId, TenantId};
use shikiri_model::record::StoredDocument;
use shikiri_model::team::{
    AgentSession, ProjectMember, ProjectMembership, RefusalCode, TeamAgent, TeamLimits, TeamRefusal,
};
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;
use shikiri_store::StoreExt;
use tokio_util::sync::CancellationToken;

use super::{DeliveryReceipt, TeamError, parse_id};
use crate::Teams;

pub struct AgentSessionHandle {
    pub(super) teams: Teams,
    pub session: AgentSession,
    /// Cancelled when the caller no longer waits for the answer.
    pub(super) given_up: CancellationToken,
    /// The receipt of the last answer.
    pub(super) receipt: Option<DeliveryReceipt>,
}

impl AgentSessionHandle {
    pub(super) fn new(teams: Teams, session: AgentSession) -> Self {
        Self { teams, session, given_up: CancellationToken::new(), receipt: None }
    }

    /// Limits the wait. After it the answer has what is there.
    #[must_use]
    pub fn until(self, given_up: CancellationToken) -> Self {
        Self { given_up, ..self }
    }

    /// The receipt to confirm once the answer is written.
    pub fn take_receipt(&mut self) -> Option<DeliveryReceipt> {
        self.receipt.take()
    }

    /// Confirms the last answer: another request through this handle proves that it arrived.
    pub(super) async fn confirm(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            receipt.confirm().await;
        }
    }

    pub(super) fn tenant(&self) -> &TenantId {
        &self.session.tenant
    }

    pub(super) fn place(&self) -> &ProjectMember {
        &self.session.place
    }

    pub(super) fn agent(&self) -> &AgentId {
        &self.session.place.agent
    }

    pub(super) fn limits(&self) -> &TeamLimits {
        &self.teams.limits
    }

    /// Records that the session is in use, unless that was recorded a moment ago.
    pub(super) async fn touch_session(&mut self, now: Timestamp) -> Result<(), TeamError> {
        if !self.session.is_touch_due(self.limits(), now) {
            return Ok(());
        }
        let id = self.session.id.as_str();
        let touched = self
            .teams
            .runtime
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
    ) -> Result<(TeamAgent, StoredDocument<ProjectMembership>), TeamError> {
        let id: AgentId = parse_id(id, RefusalCode::AgentNotFound)?;
        if id == *self.agent() {
            let message = "that is yourself: choose another agent";
            return Err(RefusalCode::WithSelf.because(message).into());
        }
        let agent =
            self.teams.runtime.store().load::<TeamAgent>(self.tenant(), id.as_str()).await?;
        let Some(agent) = agent else {
            let message = format!("there is no agent {id}");
            return Err(RefusalCode::AgentNotFound.because(message).into());
        };
        let member = ProjectMember::new(&self.place().project, &id);
        let membership = ProjectMembership::id_of(&member);
        let membership = self
            .teams
            .runtime
            .store()
            .load::<ProjectMembership>(self.tenant(), &membership)
            .await?;
        let Some(membership) = membership else {
            let message = format!("agent {id} is not in project {}", member.project);
            return Err(RefusalCode::NotInProject.because(message).into());
        };
        Ok((agent.value, membership))
    }
}

pub(super) fn session_over() -> TeamRefusal {
    RefusalCode::SessionExpired.because("the session has ended: call authenticate for another")
}

/// An optional text; an empty one counts as missing.
pub(super) fn optional(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

/// JSON of a value that can always be serialised.
pub(super) fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
