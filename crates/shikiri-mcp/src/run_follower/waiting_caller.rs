//! What a run loses with its caller: in the newer era a client that disconnects or cancels has
//! given up the call that it waits for, and the run of that call is stopped.
//!
//! Runs that were started to last are not watched by this: those of `run_agent`, of tasks, and of
//! calls with a key, whose callers come back. Nor are calls of the older era, which are resumed.

use std::time::Duration;

use shikiri_app::App;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_runtime::AppError;
use tokio_util::sync::CancellationToken;

/// The wait of a caller. Dropping it before the call was answered stops the run.
pub(crate) struct WaitingCaller {
    app: App,
    tenant: TenantId,
    run: RunId,
    ticket: Option<TicketUse>,
    /// A server that drains leaves its runs to others.
    draining: CancellationToken,
    is_answered: bool,
}

/// The use of a ticket by which the call went on.
#[derive(Clone)]
pub(crate) struct TicketUse {
    pub(crate) id: String,
    /// The first use is 1.
    pub(crate) number: u32,
    /// How long the same request may come again after its connection broke.
    pub(crate) repeat_time: Duration,
}

impl WaitingCaller {
    pub(crate) fn of(
        app: &App,
        tenant: &TenantId,
        run: &RunId,
        draining: &CancellationToken,
    ) -> Self {
        Self {
            app: app.clone(),
            tenant: tenant.clone(),
            run: run.clone(),
            ticket: None,
            draining: draining.clone(),
            is_answered: false,
        }
    }

    /// The call went on by a ticket, so the same request may come once more and wait in its place.
    #[must_use]
    pub(crate) fn with_ticket(mut self, ticket: TicketUse) -> Self {
        self.ticket = Some(ticket);
        self
    }

    /// The run no longer depends on the caller.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }

    /// The caller has left for good.
    pub(crate) async fn left(mut self) {
        self.is_answered = true;
        stop(&self.app, &self.tenant, &self.run).await;
    }
}

impl Drop for WaitingCaller {
    fn drop(&mut self) {
        if self.is_answered || self.draining.is_cancelled() {
            return;
        }
        // None while the process ends, which is no fault of the caller.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (app, tenant, run) = (self.app.clone(), self.tenant.clone(), self.run.clone());
        let ticket = self.ticket.take();
        runtime.spawn(async move {
            if let Some(ticket) = ticket {
                tokio::time::sleep(ticket.repeat_time).await;
                match app.tenancy.ticket_uses(&tenant, &ticket.id).await {
                    Ok(uses) if uses > ticket.number => return,
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "a ticket cannot be read"),
                }
            }
            stop(&app, &tenant, &run).await;
        });
    }
}

async fn stop(app: &App, tenant: &TenantId, run: &RunId) {
    match app.runtime.cancel_run(tenant, run).await {
        // What has ended needs no stopping.
        Ok(_) | Err(AppError::NotNow(_) | AppError::NotFound { .. }) => {}
        Err(error) => tracing::warn!(run.id = %run, %error, "an abandoned run was not stopped"),
    }
}
