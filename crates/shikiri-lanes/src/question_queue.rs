//! The order of questions. In one lane and provider one question is in flight at a time, in the
//! order of asking. The total is limited by leases that every process sees.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use shikiri_runtime::random;
use tokio::sync::{Mutex as FairMutex, OwnedMutexGuard};

use super::lane_error::{LaneError, LaneErrorCode, LaneRefusal};
use crate::Lanes;

const SLOTS: &str = "question-slot/";
/// More than any browser can handle.
const MAX_SLOTS: u32 = 1_000;
/// How often to look for a free slot when no wake-up event came.
pub(super) const POLL: Duration = Duration::from_millis(40);

#[derive(Default)]
pub(super) struct QuestionQueue {
    waiting: AtomicUsize,
    /// The queues of this process, one for each lane and provider.
    lane_locks: Mutex<HashMap<LaneQueueKey, Weak<FairMutex<()>>>>,
    /// The first in line of this process looks for a slot; the others wait behind it.
    turnstile: Arc<FairMutex<()>>,
}

/// The lane's holder, and the provider.
type LaneQueueKey = (String, String);

/// A question that waits or has its turn. Dropping it makes room for another.
pub(super) struct QueueEntryGuard<'a>(&'a AtomicUsize);

impl Drop for QueueEntryGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl QuestionQueue {
    /// Joins the queue, if there is room.
    pub(super) fn enter(&self, max: usize) -> Result<QueueEntryGuard<'_>, LaneRefusal> {
        let waiting = QueueEntryGuard(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= max {
            drop(waiting);
            let message =
                format!("{max} questions wait already: ask again when some have been answered");
            return Err(LaneErrorCode::QueueFull.because(message));
        }
        Ok(waiting)
    }

    /// Waits for the turn of this lane at this provider, first come, first served.
    pub(super) async fn turn(&self, lane: &str, provider: &str) -> OwnedMutexGuard<()> {
        let lane_lock = {
            let mut lane_locks = self.lane_locks.lock().unwrap_or_else(PoisonError::into_inner);
            if lane_locks.len() > 1_000 {
                lane_locks.retain(|_, lane_lock| lane_lock.strong_count() > 0);
            }
            let key = (lane.to_owned(), provider.to_owned());
            let known = lane_locks.get(&key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let fresh = Arc::new(FairMutex::new(()));
                lane_locks.insert(key, Arc::downgrade(&fresh));
                fresh
            })
        };
        lane_lock.lock_owned().await
    }

    /// Waits until this question is the first to look for a slot.
    pub(super) async fn first_in_line(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turnstile).lock_owned().await
    }
}

impl Lanes {
    fn max_questions(&self) -> u32 {
        self.options().max_questions.clamp(1, MAX_SLOTS)
    }

    /// The names of all slots.
    pub(super) fn slots(&self) -> Vec<String> {
        (0..self.max_questions()).map(slot).collect()
    }

    /// A slot that is free at this moment. The first to commit gets it.
    pub(super) async fn free_slot(&self) -> Result<Option<String>, LaneError> {
        let max = self.max_questions();
        let mut free = Vec::new();
        for lease in self.runtime.store().lapsed_leases(SLOTS).await? {
            let number = lease.name.strip_prefix(SLOTS).and_then(|n| n.parse::<u32>().ok());
            free.extend(number.filter(|number| *number < max));
        }
        if free.is_empty() {
            for number in 0..max {
                if self.runtime.store().lease(&slot(number)).await?.is_none() {
                    free.push(number);
                    break;
                }
            }
        }
        if free.is_empty() {
            return Ok(None);
        }
        // Processes that look at the same time start at different slots.
        let dice = usize::from(u16::from_be_bytes(random::<2>()?));
        Ok(free.get(dice % free.len()).copied().map(slot))
    }
}

fn slot(number: u32) -> String {
    format!("{SLOTS}{number}")
}
