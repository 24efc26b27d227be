//! Group commit: one task takes everything that waits and writes it in one transaction. While
//! that commits, the next batch gathers, so producers run ahead and nobody waits for a commit of
//! their own.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::address::{connect, within};
use super::fault::{Fault, jitter, refusal, rolled_back};
use super::load::load;
use super::notify::{notify, publish};
use super::write::{WriteError, write};
use crate::clock::Clock;
use crate::commit::{Commit, Committed};
use crate::error::{CommitError, StoreError};
use crate::hub::Hub;
use crate::settle::{Writes, settle};

/// Bounds of a batch, so that its row locks are held for milliseconds.
const BATCH_COMMITS: usize = 512;
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// For a server that restarts, or rows that others hold. Then the callers are told.
const RECONNECT_FOR: Duration = Duration::from_secs(2);
const CONTEND_FOR: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Longer than the server's own limits: only a cut connection takes this long.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) type Outcome = Result<Committed, CommitError>;

pub(super) struct Job {
    pub(super) commit: Commit,
    pub(super) reply: oneshot::Sender<Outcome>,
}

pub(super) struct Writer {
    pub(super) options: PgConnectOptions,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) hub: Arc<Hub>,
    pub(super) tag: String,
    /// Its own, outside the pool: readers cannot starve it.
    pub(super) connection: Option<PgConnection>,
    /// The last batch found no server: the next one asks once instead of waiting again.
    pub(super) down: bool,
}

/// Why an attempt failed.
enum Failure {
    /// Nothing was written.
    Before(sqlx::Error),
    /// The server did not say how COMMIT ended.
    InCommit(sqlx::Error),
    /// Another node was faster with a row that this batch wanted to make.
    Overtaken,
}

impl From<sqlx::Error> for Failure {
    fn from(cause: sqlx::Error) -> Self {
        Self::Before(cause)
    }
}

impl From<WriteError> for Failure {
    fn from(cause: WriteError) -> Self {
        match cause {
            WriteError::Sql(cause) => Self::Before(cause),
            WriteError::Overtaken => Self::Overtaken,
        }
    }
}

impl Writer {
    /// Until all senders are gone and what they sent is written.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.recv().await {
            let (batch, replies) = gather(first, &mut jobs);
            let outcomes = self.write(&batch).await;
            for (reply, outcome) in replies.into_iter().zip(outcomes) {
                // A caller that went away has its commit all the same.
                let _ = reply.send(outcome);
            }
        }
        if let Some(connection) = self.connection.take() {
            let _ = connection.close().await;
        }
    }

    async fn write(&mut self, batch: &[Commit]) -> Vec<Outcome> {
        match self.commit(batch).await {
            Ok(outcomes) => outcomes,
            // Something in it is unacceptable to the server (a NUL in a name, say): the others
            // must not suffer for it.
            Err(StoreError::Broken(_)) if batch.len() > 1 => self.write_each(batch).await,
            Err(cause) => batch.iter().map(|_| Err(cause.clone().into())).collect(),
        }
    }

    async fn write_each(&mut self, batch: &[Commit]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(batch.len());
        for commit in batch.chunks(1) {
            match self.commit(commit).await {
                Ok(outcome) => outcomes.extend(outcome),
                Err(cause) => outcomes.push(Err(cause.into())),
            }
        }
        outcomes
    }

    /// Tries until it is known what became of the batch, or patience ends.
    async fn commit(&mut self, batch: &[Commit]) -> Result<Vec<Outcome>, StoreError> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            let (fault, cause) = match self.attempt(batch).await {
                Ok((outcomes, writes)) => {
                    self.down = false;
                    publish(&self.hub, &writes);
                    return Ok(outcomes);
                }
                Err(Failure::InCommit(cause)) => return Err(StoreError::unknown(cause)),
                Err(Failure::Before(cause)) => (Fault::of(&cause), refusal(&cause)),
                Err(Failure::Overtaken) => {
                    (Fault::Contention, StoreError::unavailable("too many writers on one row"))
                }
            };
            let patience = match fault {
                Fault::Contention => CONTEND_FOR,
                Fault::Connection if !self.down => RECONNECT_FOR,
                Fault::Connection | Fault::Shortage | Fault::Rejected => Duration::ZERO,
            };
            self.down |= fault == Fault::Connection && start.elapsed() >= patience;
            if start.elapsed() >= patience {
                return Err(cause);
            }
            tokio::time::sleep(pause + jitter(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&mut self, batch: &[Commit]) -> Result<(Vec<Outcome>, Writes), Failure> {
        // Taken out, so that whatever happens here a doubtful connection is not used again.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.options).await?,
        };
        let result = transact(&mut connection, batch, self.clock.as_ref(), &self.tag).await;
        let usable = match &result {
            Ok(_) | Err(Failure::Overtaken) => true,
            Err(Failure::Before(cause)) => Fault::of(cause) != Fault::Connection,
            Err(Failure::InCommit(_)) => false,
        };
        if usable {
            self.connection = Some(connection);
        }
        result
    }
}

/// Everything that waits, in the order in which it was handed in.
fn gather(
    first: Job,
    jobs: &mut mpsc::Receiver<Job>,
) -> (Vec<Commit>, Vec<oneshot::Sender<Outcome>>) {
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
) -> Result<(Vec<Outcome>, Writes), Failure> {
    let mut tx = within(ATTEMPT_TIMEOUT, connection.begin()).await?;
    match within(ATTEMPT_TIMEOUT, settle_in(&mut tx, batch, clock, tag)).await {
        // Every commit was refused: there is nothing to make durable.
        Ok((outcomes, writes)) if writes.is_empty() => {
            within(ROLLBACK_TIMEOUT, tx.rollback()).await?;
            Ok((outcomes, writes))
        }
        Ok(settled) => match within(ATTEMPT_TIMEOUT, tx.commit()).await {
            Ok(()) => Ok(settled),
            Err(cause) if rolled_back(&cause) => Err(Failure::Before(cause)),
            Err(cause) => Err(Failure::InCommit(cause)),
        },
        Err(failure) => {
            // At once, not with the next statement: others wait for these rows.
            let _ = within(ROLLBACK_TIMEOUT, tx.rollback()).await;
            Err(failure)
        }
    }
}

async fn settle_in(
    tx: &mut PgConnection,
    batch: &[Commit],
    clock: Option<&Arc<dyn Clock>>,
    tag: &str,
) -> Result<(Vec<Outcome>, Writes), Failure> {
    let (loaded, known) = load(tx, batch, clock).await?;
    let now = loaded.now;
    let (outcomes, writes) = settle(batch, loaded);
    if !writes.is_empty() {
        write(tx, &writes, &known, now).await?;
        notify(tx, tag, &writes).await?;
    }
    Ok((outcomes, writes))
}
