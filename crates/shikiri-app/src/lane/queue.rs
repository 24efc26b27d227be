//! When a question may go out. In one lane and provider one goes at a time, in the order of asking;
//! over all, as many as are allowed, counted by leases that every process sees.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as FairMutex, OwnedMutexGuard};

use super::refusal::{LaneCode, LaneError, LaneRefusal};
use crate::app::{App, random};

const SLOTS: &str = "question-slot/";
/// More than any browser bears.
const MAX_SLOTS: u32 = 1_000;
/// How often a free place is looked for, where no wake-up told of it.
pub(super) const POLL: Duration = Duration::from_millis(40);

#[derive(Default)]
pub(super) struct Queue {
    waiting: AtomicUsize,
    /// Who waits in one place of this process.
    places: Mutex<HashMap<Place, Weak<FairMutex<()>>>>,
    /// The first in line of this process looks for a slot; the others wait behind it.
    turnstile: Arc<FairMutex<()>>,
}

/// What makes the lane, and the provider.
type Place = (String, String);

/// Somebody who waits or has its turn; there is room for another when dropped.
pub(super) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Queue {
    /// Takes a place at the end, if there is one.
    pub(super) fn enter(&self, max: usize) -> Result<Waiting<'_>, LaneRefusal> {
        let waiting = Waiting(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= max {
            drop(waiting);
            let message =
                format!("{max} questions wait already: ask again when some have been answered");
            return Err(LaneCode::QueueFull.because(message));
        }
        Ok(waiting)
    }

    /// Waits for this lane's turn at this provider, in the order of coming.
    pub(super) async fn turn(&self, lane: &str, provider: &str) -> OwnedMutexGuard<()> {
        let place = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            if places.len() > 1_000 {
                places.retain(|_, place| place.strong_count() > 0);
            }
            let key = (lane.to_owned(), provider.to_owned());
            let known = places.get(&key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let fresh = Arc::new(FairMutex::new(()));
                places.insert(key, Arc::downgrade(&fresh));
                fresh
            })
        };
        place.lock_owned().await
    }

    /// Waits until it is this one's turn to look for a slot.
    pub(super) async fn first_in_line(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turnstile).lock_owned().await
    }
}

impl App {
    fn max_questions(&self) -> u32 {
        self.options.lanes.max_questions.clamp(1, MAX_SLOTS)
    }

    /// The names of all slots.
    pub(super) fn slots(&self) -> Vec<String> {
        (0..self.max_questions()).map(slot).collect()
    }

    /// A slot that is free at this moment; whoever commits first has it.
    pub(super) async fn free_slot(&self) -> Result<Option<String>, LaneError> {
        let max = self.max_questions();
        let mut free = Vec::new();
        for lease in self.store.lapsed_leases(SLOTS).await? {
            let number = lease.name.strip_prefix(SLOTS).and_then(|n| n.parse::<u32>().ok());
            free.extend(number.filter(|number| *number < max));
        }
        if free.is_empty() {
            for number in 0..max {
                if self.store.lease(&slot(number)).await?.is_none() {
                    free.push(number);
                    break;
                }
            }
        }
        if free.is_empty() {
            return Ok(None);
        }
        // Not the same for all who look at once.
        let dice = usize::from(u16::from_be_bytes(random::<2>()?));
        Ok(free.get(dice % free.len()).copied().map(slot))
    }
}

fn slot(number: u32) -> String {
    format!("{SLOTS}{number}")
}
