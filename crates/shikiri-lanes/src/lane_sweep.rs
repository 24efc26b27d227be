//! Ends lanes that were idle for too long, and forgets lanes that ended long ago. Every live node
//! does this for all. A node claims a due lane first, so that only one node ends it.

use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::lane::Lane;
use shikiri_model::record::{
    Document, ExpectedVersion, Record, RecordChange, RecordClaim, StoredDocument,
};
use shikiri_runtime::run::BackgroundTask;
use shikiri_runtime::transact;
use shikiri_store::{Commit, CommitError, HubTopic, StoreExt};
use tokio_util::sync::CancellationToken;

use super::lane_error::LaneError;
use super::open_lane::{TabsToClose, with_end};
use crate::Lanes;

/// How long a claim keeps other nodes away from a lane.
const HOLD: Duration = Duration::from_secs(5);
const AT_ONCE: u32 = 50;
/// The longest pause between looks: the store's clock may differ from ours.
const LONGEST: Duration = Duration::from_secs(30);
/// Pause between looks. Lanes change often and expire rarely, so there is no hurry.
const BREATH: Duration = Duration::from_millis(100);

/// Ends lanes that were idle for too long. Every node runs it.
pub struct LaneSweep(pub Lanes);

#[async_trait]
impl BackgroundTask for LaneSweep {
    async fn run(&self, stop: CancellationToken) {
        run_lane_sweep(&self.0, stop).await;
    }
}

async fn run_lane_sweep(lanes: &Lanes, stop: CancellationToken) {
    let mut news = lanes.runtime.store().hub().subscribe(HubTopic::Due(Lane::KIND));
    while !stop.is_cancelled() {
        let pause = match lanes.sweep_lanes().await {
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

impl Lanes {
    /// Ends what is due. Returns how many lanes ended, and the time until there is more to do.
    pub(super) async fn sweep_lanes(&self) -> Result<(usize, Duration), LaneError> {
        let mut ended = 0;
        loop {
            let now = self.runtime.store().now().await?;
            match self.runtime.store().next_due(Lane::KIND).await? {
                None => return Ok((ended, LONGEST)),
                Some(due) if due > now => return Ok((ended, due.since(now))),
                Some(_) => {}
            }
            let claim = RecordClaim {
                kind: Lane::KIND,
                tenant: None,
                parent: None,
                owner: None,
                hold: HOLD,
                limit: AT_ONCE,
            };
            let claimed = self.runtime.store().commit(Commit::new().claim(claim)).await?.claimed;
            if claimed.is_empty() {
                return Ok((ended, BREATH));
            }
            for record in claimed {
                // A lane that cannot be ended does not hold up the others.
                match self.settle_lane(&record).await {
                    Ok(is_over) => ended += usize::from(is_over),
                    Err(error) => {
                        tracing::warn!(%error, lane = record.key.id, "cannot be ended yet");
                    }
                }
            }
        }
    }

    /// Ends one lane that is due. Returns whether it has ended.
    async fn settle_lane(&self, Record { key, .. }: &Record) -> Result<bool, LaneError> {
        transact(Lane::KIND, &key.id, || async {
            let Some(stored) = self.runtime.store().load::<Lane>(&key.tenant, &key.id).await?
            else {
                return Ok(Some(false));
            };
            let now = self.runtime.store().now().await?;
            if stored.value.is_purgeable(now) {
                self.remove_lane(&stored).await?;
                return Ok(Some(false));
            }
            let is_due = !stored.value.is_ended && stored.value.is_expired(now);
            let ends = is_due && !self.has_question_in_flight(&stored.value).await?;
            let mut tabs = TabsToClose::new();
            let commit = if ends {
                with_end(Commit::new(), &stored, &mut tabs)?
            } else {
                Commit::new().record(later(stored, is_due, now)?)
            };
            match self.runtime.store().commit(commit).await {
                Ok(_) => {
                    self.close_tabs(tabs).await;
                    Ok(Some(ends))
                }
                Err(CommitError::Conflict(_)) => Ok(None),
                // A question has started meanwhile.
                Err(CommitError::Lease(_)) => Ok(Some(false)),
                Err(other) => Err(other.into()),
            }
        })
        .await
    }
}

/// Corrects the due date, which the claim has moved. A lane with a question in flight is in use.
fn later(
    stored: StoredDocument<Lane>,
    is_at_work: bool,
    now: shikiri_model::time::Timestamp,
) -> Result<RecordChange, LaneError> {
    let mut lane = stored.value;
    if is_at_work {
        lane.last_access = lane.last_access.max(now);
    }
    Ok(RecordChange::put(&lane, ExpectedVersion::Version(stored.version))?)
}
