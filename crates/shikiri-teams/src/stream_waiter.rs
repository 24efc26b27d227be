//! Waits by event: look, and look again at each wake-up event.

use std::time::Duration;

use shikiri_model::event::StreamId;
use shikiri_store::{HubSubscription, HubTopic};
use tokio::time::Instant;

use super::TeamError;
use super::session_handle::AgentSessionHandle;

/// The longest wait of one call.
const MAX_WAIT: Duration = Duration::from_secs(30);

pub(super) struct StreamWaiter {
    news: HubSubscription,
    deadline: Instant,
}

impl AgentSessionHandle {
    /// Created before the first look, so that no event is missed in between.
    pub(super) fn waiter(&self, bell: StreamId, wait: Duration) -> StreamWaiter {
        let news = self.teams.runtime.store().hub().subscribe(HubTopic::Stream(bell));
        StreamWaiter { news, deadline: Instant::now() + wait.min(MAX_WAIT) }
    }
}

impl StreamWaiter {
    /// Waits for the next event or the next heartbeat. False if the time is over or the caller gave
    /// up. A waiting session counts as in use.
    pub(super) async fn wait_for_wake(
        &mut self,
        handle: &mut AgentSessionHandle,
    ) -> Result<bool, TeamError> {
        let now = Instant::now();
        if now >= self.deadline {
            return Ok(false);
        }
        let pause = handle.limits().heartbeat_interval().min(self.deadline - now);
        let bell = tokio::time::timeout(pause, self.news.next());
        if handle.given_up.run_until_cancelled(bell).await.is_none() {
            return Ok(false);
        }
        let now = handle.teams.runtime.store().now().await?;
        handle.touch_session(now).await?;
        Ok(true)
    }
}
