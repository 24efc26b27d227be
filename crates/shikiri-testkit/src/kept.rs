//! A growing list whose next entries can be awaited.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// The entries so far, in order. It is closed when no more can come.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    entries: Mutex<Vec<T>>,
    closed: watch::Sender<bool>,
}

impl<T: Clone> Kept<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Mutex::default(), closed: watch::Sender::new(false) }
    }

    pub(crate) fn push(&self, entry: T) {
        self.lock().push(entry);
        // Wakes the waiting tasks: an entry counts as a change although the value stays the same.
        self.closed.send_modify(|_| {});
    }

    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.lock().clone()
    }

    /// Waits until `wanted` finds something in the list. None if the list is closed first or the
    /// time is over.
    pub(crate) async fn find<R>(
        &self,
        patience: Duration,
        mut wanted: impl FnMut(&[T]) -> Option<R>,
    ) -> Option<R> {
        let mut changes = self.closed.subscribe();
        let looking = async {
            loop {
                // Read before the list is examined, so that no entry before the end is missed.
                let closed = *changes.borrow_and_update();
                if let Some(found) = wanted(&self.lock()) {
                    return Some(found);
                }
                if closed || changes.changed().await.is_err() {
                    return None;
                }
            }
        };
        tokio::time::timeout(patience, looking).await.ok().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn an_entry_is_found_whether_it_came_before_or_comes_later() {
        let kept = Kept::new();
        kept.push(1);
        let second = |entries: &[i32]| entries.get(1).copied();
        let (found, ()) = tokio::join!(kept.find(LONG, second), async { kept.push(2) });
        assert_eq!(found, Some(2));
        assert_eq!(kept.find(Duration::ZERO, |entries| entries.first().copied()).await, Some(1));
    }

    #[tokio::test]
    async fn waiting_ends_with_the_list_and_with_the_patience() {
        let kept = Kept::<i32>::new();
        assert_eq!(kept.find(Duration::from_millis(1), |e| e.first().copied()).await, None);
        let (found, ()) =
            tokio::join!(kept.find(LONG, |e| e.first().copied()), async { kept.close() });
        assert_eq!(found, None);
    }
}
