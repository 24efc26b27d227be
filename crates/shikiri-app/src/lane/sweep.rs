//! Ends lanes that nobody used for their time, and forgets those that ended long ago. Every living
//! node does this for all: a lane that is due is claimed, so that one does it.

use std::time::Duration;

use shikiri_model::lane::Lane;
use shikiri_model::record::{Claim, Document, Expect, Record, RecordChange, Stored};
use shikiri_store::{Commit, CommitError, StoreExt, Topic};
use tokio_util::sync::CancellationToken;

use super::open::{Ended, with_end};
use super::refusal::LaneError;
use crate::app::{App, busy, max_tries};

/// How long the others leave alone what one has claimed.
const HOLD: Duration = Duration::from_secs(5);
const AT_ONCE: u32 = 50;
/// It is looked at least so often: the clock of the store may go differently from ours.
const LONGEST: Duration = Duration::from_secs(30);
/// Lanes are used often and end rarely: news of them are not worth haste.
const BREATH: Duration = Duration::from_millis(100);

/// Sweeps until told to stop.
pub(crate) async fn keep_lanes(app: App, stop: CancellationToken) {
    let mut news = app.store.hub().subscribe(Topic::Due(Lane::KIND));
    while !stop.is_cancelled() {
        let pause = match app.sweep_lanes().await {
            Ok((_, pause)) => pause,
            Err(error) => {
                tracing::warn!(%error, "lanes cannot be swept; trying again");
                Duration::from_secs(1)
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause.clamp(BREATH, LONGEST)) => continue,
            _ = news.next() => {}
        }
        tokio::time::sleep(BREATH).await;
    }
}

impl App {
    /// Ends what is due. Returns how many lanes ended, and how long there is nothing to do.
    pub(super) async fn sweep_lanes(&self) -> Result<(usize, Duration), LaneError> {
        let mut ended = 0;
        loop {
            let now = self.store.now().await?;
            match self.store.next_due(Lane::KIND).await? {
                None => return Ok((ended, LONGEST)),
                Some(due) if due > now => return Ok((ended, due.since(now))),
                Some(_) => {}
            }
            let claim = Claim {
                kind: Lane::KIND,
                tenant: None,
                parent: None,
                owner: None,
                hold: HOLD,
                limit: AT_ONCE,
            };
            let claimed = self.store.commit(Commit::new().claim(claim)).await?.claimed;
            if claimed.is_empty() {
                return Ok((ended, BREATH));
            }
            for record in claimed {
                // One that cannot be ended is not in the way of the others.
                match self.settle_lane(&record).await {
                    Ok(is_over) => ended += usize::from(is_over),
                    Err(error) => {
                        tracing::warn!(%error, lane = record.key.id, "cannot be ended yet");
                    }
                }
            }
        }
    }

    /// Whether it is over now.
    async fn settle_lane(&self, Record { key, .. }: &Record) -> Result<bool, LaneError> {
        for _ in 0..max_tries() {
            let Some(stored) = self.store.load::<Lane>(&key.tenant, &key.id).await? else {
                return Ok(false);
            };
            let now = self.store.now().await?;
            if stored.value.is_forgotten(now) {
                self.remove_lane(&stored).await?;
                return Ok(false);
            }
            let is_due = !stored.value.is_ended && stored.value.is_stale(now);
            let ends = is_due && !self.is_at_work(&stored.value).await?;
            let mut tabs = Ended::new();
            let commit = if ends {
                with_end(Commit::new(), &stored, &mut tabs)?
            } else {
                Commit::new().record(later(stored, is_due, now)?)
            };
            match self.store.commit(commit).await {
                Ok(_) => {
                    self.close_tabs(tabs).await;
                    return Ok(ends);
                }
                Err(CommitError::Conflict(_)) => {}
                // A question has begun after all.
                Err(CommitError::Lease(_)) => return Ok(false),
                Err(other) => return Err(other.into()),
            }
        }
        Err(busy(Lane::KIND, &key.id).into())
    }
}

/// Claiming has moved its time. A lane with a question under way is in use.
fn later(
    stored: Stored<Lane>,
    is_at_work: bool,
    now: shikiri_model::time::Timestamp,
) -> Result<RecordChange, LaneError> {
    let mut lane = stored.value;
    if is_at_work {
        lane.last_access = lane.last_access.max(now);
    }
    Ok(RecordChange::put(&lane, Expect::Version(stored.version))?)
}
