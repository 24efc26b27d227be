//! Listens for other nodes' notifications. Notifications are lost while the connection is down, so
//! every waiter is woken after a reconnect.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};

use super::connection_url::within;
use super::error_class::jitter;
use super::wake_notify::{self, CHANNEL};
use crate::hub::Hub;

/// A connection without notifications for this long is tested: a cut cable is silent.
const SILENCE: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct NotifyListener {
    pub(super) options: PgConnectOptions,
    pub(super) hub: Arc<Hub>,
    pub(super) tag: String,
}

impl NotifyListener {
    pub(super) async fn connect(&self) -> Result<PgListener, sqlx::Error> {
        // A new pool for each attempt, because the driver's own reconnect gives up on some errors.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ANSWER_TIMEOUT)
            .max_lifetime(None)
            .idle_timeout(None)
            .connect_with(self.options.clone())
            .await?;
        let mut ears = PgListener::connect_with(&pool).await?;
        ears.eager_reconnect(false);
        ears.listen(CHANNEL).await?;
        Ok(ears)
    }

    /// Runs until the task is aborted.
    pub(super) async fn run(self, mut ears: PgListener) {
        loop {
            let cause = self.receive_until_error(&mut ears).await;
            tracing::warn!("lost the wake-ups of other nodes ({cause}): connecting again");
            drop(ears);
            ears = self.reconnect().await;
            self.hub.publish_all();
            tracing::info!("hears the wake-ups of other nodes again");
        }
    }

    /// Returns the error that ended it.
    async fn receive_until_error(&self, ears: &mut PgListener) -> sqlx::Error {
        loop {
            match tokio::time::timeout(SILENCE, ears.try_recv()).await {
                Ok(Ok(Some(news))) => {
                    wake_notify::publish_payload(&self.hub, &self.tag, news.payload())
                }
                Ok(Ok(None)) => return sqlx::Error::PoolClosed,
                Ok(Err(cause)) => return cause,
                Err(_silence) => {
                    let question = sqlx::query("SELECT 1").execute(&mut *ears);
                    if let Err(cause) = within(ANSWER_TIMEOUT, question).await {
                        return cause;
                    }
                }
            }
        }
    }

    async fn reconnect(&self) -> PgListener {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect().await {
                Ok(ears) => return ears,
                Err(cause) => tracing::debug!("still no wake-ups of other nodes: {cause}"),
            }
            tokio::time::sleep(pause + jitter(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
