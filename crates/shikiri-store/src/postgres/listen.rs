//! Hears the other nodes. A wake-up that is missed while the connection is down cannot be had
//! again, so after every reconnect everybody looks in the store.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};

use super::address::within;
use super::fault::jitter;
use super::notify::{self, CHANNEL};
use crate::hub::Hub;

/// A silent connection is asked whether it still lives: a cut cable says nothing.
const SILENCE: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Listener {
    pub(super) options: PgConnectOptions,
    pub(super) hub: Arc<Hub>,
    pub(super) tag: String,
}

impl Listener {
    pub(super) async fn connect(&self) -> Result<PgListener, sqlx::Error> {
        // A fresh pool each time: the driver's own reconnecting gives up on some errors.
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

    /// Until the task is aborted.
    pub(super) async fn run(self, mut ears: PgListener) {
        loop {
            let cause = self.hear(&mut ears).await;
            tracing::warn!("lost the wake-ups of other nodes ({cause}): connecting again");
            drop(ears);
            ears = self.reconnect().await;
            self.hub.publish_all();
            tracing::info!("hears the wake-ups of other nodes again");
        }
    }

    /// Returns why it ended.
    async fn hear(&self, ears: &mut PgListener) -> sqlx::Error {
        loop {
            match tokio::time::timeout(SILENCE, ears.try_recv()).await {
                Ok(Ok(Some(news))) => notify::hear(&self.hub, &self.tag, news.payload()),
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
