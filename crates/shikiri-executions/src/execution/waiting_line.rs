//! The requests of this process that wait for the same conversation, in the order of their arrival.
//! Requests at other nodes wait on their own: the conversation's lease decides between nodes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shikiri_model::ids::ConversationId;

#[derive(Default)]
pub(crate) struct WaitingLines(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    last: u64,
    by_conversation: HashMap<ConversationId, VecDeque<u64>>,
}

/// A place in the line of a conversation. Left when dropped.
pub(super) struct LinePlace {
    lines: Arc<WaitingLines>,
    conversation: ConversationId,
    number: u64,
}

impl WaitingLines {
    /// A place at the end of the line.
    pub(super) fn join(self: &Arc<Self>, conversation: &ConversationId) -> LinePlace {
        let mut lines = self.lock();
        lines.last += 1;
        let number = lines.last;
        lines.by_conversation.entry(conversation.clone()).or_default().push_back(number);
        LinePlace { lines: Arc::clone(self), conversation: conversation.clone(), number }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinePlace {
    /// How many came before and still wait.
    pub(super) fn ahead(&self) -> usize {
        let lines = self.lines.lock();
        let line = lines.by_conversation.get(&self.conversation);
        line.and_then(|line| line.iter().position(|number| *number == self.number)).unwrap_or(0)
    }

    pub(super) fn is_first(&self) -> bool {
        self.ahead() == 0
    }
}

impl Drop for LinePlace {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.by_conversation.get_mut(&self.conversation) {
            line.retain(|number| *number != self.number);
            if line.is_empty() {
                lines.by_conversation.remove(&self.conversation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_is_served_first_and_who_leaves_is_not_waited_for() {
        let lines = Arc::<WaitingLines>::default();
        let (one, other) = ("cnv_1".parse().unwrap(), "cnv_2".parse().unwrap());
        let first = lines.join(&one);
        let (second, third) = (lines.join(&one), lines.join(&one));
        assert!(lines.join(&other).is_first());
        assert_eq!([first.ahead(), second.ahead(), third.ahead()], [0, 1, 2]);
        drop(second);
        assert_eq!((first.is_first(), third.ahead()), (true, 1));
        drop(first);
        assert!(third.is_first());
        drop(third);
        assert!(lines.lock().by_conversation.is_empty(), "nothing is kept");
    }
}
