//! Waiting by event: look, and look again when the bell rings.

use std::time::Duration;

use shikiri_model::event::StreamId;
use shikiri_store::{Subscription, Topic};
use tokio::time::Instant;

use super::TeamError;
use super::desk::Desk;

/// The longest that a call waits.
const MAX_WAIT: Duration = Duration::from_secs(30);

pub(super) struct Waiter {
    news: Subscription,
    deadline: Instant,
}

impl Desk {
    /// Made before the first look, so that nothing falls between the two.
    pub(super) fn waiter(&self, bell: StreamId, wait: Duration) -> Waiter {
        let news = self.app.store.hub().subscribe(Topic::Stream(bell));
        Waiter { news, deadline: Instant::now() + wait.min(MAX_WAIT) }
    }
}

impl Waiter {
    /// Waits for the bell, or until it is time to be reminded. False if the time is over, or it was
    /// given up. Meanwhile the session counts as used: it is not idle, it waits.
    pub(super) async fn again(&mut self, desk: &mut Desk) -> Result<bool, TeamError> {
        let now = Instant::now();
        if now >= self.deadline {
            return Ok(false);
        }
        let pause = desk.limits().pulse().min(self.deadline - now);
        let bell = tokio::time::timeout(pause, self.news.next());
        if desk.given_up.run_until_cancelled(bell).await.is_none() {
            return Ok(false);
        }
        let now = desk.app.store.now().await?;
        desk.give_sign_of_life(now).await?;
        Ok(true)
    }
}
