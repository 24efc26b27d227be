//! Tickets, with which calls that were asked something go on.

use std::collections::BTreeMap;
use std::time::Duration;

use shikiri_model::connection::CallContinuation;
use shikiri_model::event::Seq;
use shikiri_model::ids::{QuestionId, RunId, TenantId};
use shikiri_model::key::SecretToken;
use shikiri_model::record::{ExpectedVersion, RecordChange, StoredDocument};
use shikiri_runtime::{AppError, random};
use shikiri_store::{Commit, StoreExt};

use crate::Tenancy;

/// How long a question to the caller of a stateless request can be answered.
const TICKET_LIFE: Duration = Duration::from_secs(3_600);

impl Tenancy {
    /// A ticket with which the caller's next request continues the run.
    pub async fn issue_ticket(
        &self,
        tenant: &TenantId,
        principal: &str,
        run: &RunId,
        request_digest: &str,
        after: Seq,
        asked: BTreeMap<String, QuestionId>,
    ) -> Result<SecretToken, AppError> {
        let ticket = SecretToken::mint_ticket(random()?);
        let continuation = CallContinuation {
            id: ticket.hash().as_str().to_owned(),
            tenant: tenant.clone(),
            principal: principal.to_owned(),
            run: run.clone(),
            request_digest: request_digest.to_owned(),
            after,
            asked,
            expires_at: self.runtime.store().now().await? + TICKET_LIFE,
            uses: 0,
            responses_digest: None,
        };
        let put = RecordChange::put(&continuation, ExpectedVersion::New)?;
        self.runtime.store().commit(Commit::new().record(put)).await?;
        Ok(ticket)
    }

    /// Looks up a ticket. None if it is unknown, too old, another caller's or for another request.
    pub async fn ticket(
        &self,
        tenant: &TenantId,
        principal: &str,
        ticket: &SecretToken,
        request_digest: &str,
    ) -> Result<Option<StoredDocument<CallContinuation>>, AppError> {
        let hash = ticket.hash();
        let found = self.runtime.store().load::<CallContinuation>(tenant, hash.as_str()).await?;
        let now = self.runtime.store().now().await?;
        Ok(found.filter(|found| found.value.admits(principal, request_digest, now)))
    }

    /// How often a ticket was used; 0 if it is gone.
    pub async fn ticket_uses(&self, tenant: &TenantId, id: &str) -> Result<u32, AppError> {
        let found = self.runtime.store().load::<CallContinuation>(tenant, id).await?;
        Ok(found.map_or(0, |stored| stored.value.uses))
    }

    /// Stops the run that asked by a ticket which nobody used, if it still waits for that answer.
    pub(super) async fn stop_unanswered(&self, ticket: &CallContinuation) -> Result<(), AppError> {
        if ticket.uses > 0 {
            return Ok(());
        }
        let (tenant, id) = (&ticket.tenant, &ticket.run);
        let run = match self.runtime.load_run(tenant, id).await {
            Ok(stored) => stored.value,
            Err(AppError::NotFound { .. }) => return Ok(()),
            Err(other) => return Err(other),
        };
        let still_asks = |id: &QuestionId| run.questions.iter().any(|open| open.id == *id);
        if !ticket.asked.values().any(still_asks) {
            return Ok(());
        }
        match self.runtime.cancel_run(tenant, id).await {
            Ok(_) | Err(AppError::NotNow(_) | AppError::NotFound { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }
}
