//! Group commit: one task takes all waiting commits and writes them in one transaction. During that
//! commit the next batch collects, so that callers do not wait for a transaction of their own.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::batch_load::load;
use super::batch_write::{PostgresWriteError, write};
use super::connection_url::{connect, within};
use super::error_class::{PostgresErrorClass, is_rolled_back, jitter, to_store_error};
use super::wake_notify::{notify, publish};
use crate::batch_decision::{BatchWrites, decide_batch};
use crate::clock::Clock;
use crate::commit::{Commit, CommitReceipt};
use crate::error::{CommitError, StoreError};
use crate::hub::Hub;

/// Limits of a batch, so that its row locks are held for milliseconds.
const BATCH_COMMITS: usize = 512;
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// How long to retry while a server restarts or rows are locked. Then the callers get an error.
const RECONNECT_FOR: Duration = Duration::from_secs(2);
const CONTEND_FOR: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Longer than the server's own limits. Only a cut connection takes this long.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) type CommitOutcome = Result<CommitReceipt, CommitError>;

pub(super) struct PostgresCommitJob {
    pub(super) commit: Commit,
    pub(super) reply: oneshot::Sender<CommitOutcome>,
}

pub(super) struct PostgresWriter {
    pub(super) options: PgConnectOptions,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) hub: Arc<Hub>,
    pub(super) tag: String,
    /// Where its totals are.
    pub(super) slot: i16,
    /// A connection outside the pool, so that readers cannot starve the writer.
    pub(super) connection: Option<PgConnection>,
    /// The last batch found no server. The next one tries once instead of waiting again.
    pub(super) down: bool,
}

/// Why an attempt failed.
enum PostgresAttemptError {
    /// Nothing was written.
    Before(sqlx::Error),
    /// The server did not report the result of COMMIT.
    InCommit(sqlx::Error),
    /// Another node inserted a row that this batch wanted to insert.
    Overtaken,
}

impl From<sqlx::Error> for PostgresAttemptError {
    fn from(cause: sqlx::Error) -> Self {
        Self::Before(cause)
    }
}

impl From<PostgresWriteError> for PostgresAttemptError {
    fn from(cause: PostgresWriteError) -> Self {
        match cause {
            PostgresWriteError::Sql(cause) => Self::Before(cause),
            PostgresWriteError::Overtaken => Self::Overtaken,
        }
    }
}

impl PostgresWriter {
    /// Runs until all senders are dropped and all commits are written.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<PostgresCommitJob>) {
        while let Some(first) = jobs.recv().await {
            let (batch, replies) = gather(first, &mut jobs);
            let outcomes = self.write(&batch).await;
            for (reply, outcome) in replies.into_iter().zip(outcomes) {
                // The commit of a caller that went away is still written.
                let _ = reply.send(outcome);
            }
        }
        if let Some(connection) = self.connection.take() {
            let _ = connection.close().await;
        }
    }

    async fn write(&mut self, batch: &[Commit]) -> Vec<CommitOutcome> {
        match self.commit(batch).await {
            Ok(outcomes) => outcomes,
            // The server refuses something in the batch, such as a NUL in a name. The other commits
            // must not fail because of it.
            Err(StoreError::Broken(_)) if batch.len() > 1 => self.write_each(batch).await,
            Err(cause) => batch.iter().map(|_| Err(cause.clone().into())).collect(),
        }
    }

    async fn write_each(&mut self, batch: &[Commit]) -> Vec<CommitOutcome> {
        let mut outcomes = Vec::with_capacity(batch.len());
        for commit in batch.chunks(1) {
            match self.commit(commit).await {
                Ok(outcome) => outcomes.extend(outcome),
                Err(cause) => outcomes.push(Err(cause.into())),
            }
        }
        outcomes
    }

    /// Retries until the result is known or the time is over.
    async fn commit(&mut self, batch: &[Commit]) -> Result<Vec<CommitOutcome>, StoreError> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            let (fault, cause) = match self.attempt(batch).await {
                Ok((outcomes, writes)) => {
                    self.down = false;
                    publish(&self.hub, &writes);
                    return Ok(outcomes);
                }
                Err(PostgresAttemptError::InCommit(cause)) => {
                    return Err(StoreError::unknown(cause));
                }
                Err(PostgresAttemptError::Before(cause)) => {
                    (PostgresErrorClass::classify(&cause), to_store_error(&cause))
                }
                Err(PostgresAttemptError::Overtaken) => (
                    PostgresErrorClass::Contention,
                    StoreError::unavailable("too many writers on one row"),
                ),
            };
            let patience = match fault {
                PostgresErrorClass::Contention => CONTEND_FOR,
                PostgresErrorClass::Connection if !self.down => RECONNECT_FOR,
                PostgresErrorClass::Connection
                | PostgresErrorClass::Shortage
                | PostgresErrorClass::Rejected => Duration::ZERO,
            };
            self.down |= fault == PostgresErrorClass::Connection && start.elapsed() >= patience;
            if start.elapsed() >= patience {
                return Err(cause);
            }
            tokio::time::sleep(pause + jitter(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(
        &mut self,
        batch: &[Commit],
    ) -> Result<(Vec<CommitOutcome>, BatchWrites), PostgresAttemptError> {
        // Taken out, so that a connection in an unknown state is not used again.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.options).await?,
        };
        let clock = self.clock.as_ref();
        let result = transact(&mut connection, batch, clock, &self.tag, self.slot).await;
        let usable = match &result {
            Ok(_) | Err(PostgresAttemptError::Overtaken) => true,
            Err(PostgresAttemptError::Before(cause)) => {
                PostgresErrorClass::classify(cause) != PostgresErrorClass::Connection
            }
            Err(PostgresAttemptError::InCommit(_)) => false,
        };
        if usable {
            self.connection = Some(connection);
        }
        result
    }
}

/// All waiting commits, in order.
fn gather(
    first: PostgresCommitJob,
    jobs: &mut mpsc::Receiver<PostgresCommitJob>,
) -> (Vec<Commit>, Vec<oneshot::Sender<CommitOutcome>>) {
    let mut bytes = first.commit.size();
    let (mut batch, mut replies) = (vec![first.commit], vec![first.reply]);
    while batch.len() < BATCH_COMMITS
        && bytes < BATCH_BYTES
        && let Ok(job) = jobs.try_recv()
    {
        bytes += job.commit.size();
        batch.push(job.commit);
        replies.push(job.reply);
    }
    (batch, replies)
}

async fn transact(
    connection: &mut PgConnection,
    batch: &[Commit],
    clock: Option<&Arc<dyn Clock>>,
    tag: &str,
    slot: i16,
) -> Result<(Vec<CommitOutcome>, BatchWrites), PostgresAttemptError> {
    let mut tx = within(ATTEMPT_TIMEOUT, connection.begin()).await?;
    match within(ATTEMPT_TIMEOUT, decide_and_write(&mut tx, batch, clock, tag, slot)).await {
        // Every commit was refused, so there is nothing to write.
        Ok((outcomes, writes)) if writes.is_empty() => {
            within(ROLLBACK_TIMEOUT, tx.rollback()).await?;
            Ok((outcomes, writes))
        }
        Ok(settled) => match within(ATTEMPT_TIMEOUT, tx.commit()).await {
            Ok(()) => Ok(settled),
            Err(cause) if is_rolled_back(&cause) => Err(PostgresAttemptError::Before(cause)),
            Err(cause) => Err(PostgresAttemptError::InCommit(cause)),
        },
        Err(failure) => {
            // Rolled back at once and not with the next statement, because others wait for these
            // rows.
            let _ = within(ROLLBACK_TIMEOUT, tx.rollback()).await;
            Err(failure)
        }
    }
}

async fn decide_and_write(
    tx: &mut PgConnection,
    batch: &[Commit],
    clock: Option<&Arc<dyn Clock>>,
    tag: &str,
    slot: i16,
) -> Result<(Vec<CommitOutcome>, BatchWrites), PostgresAttemptError> {
    let (loaded, known) = load(tx, batch, clock, slot).await?;
    let now = loaded.now;
    let (outcomes, writes) = decide_batch(batch, loaded);
    if !writes.is_empty() {
        write(tx, &writes, &known, now).await?;
        notify(tx, tag, &writes).await?;
    }
    Ok((outcomes, writes))
}
