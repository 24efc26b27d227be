//! The API's own count of the tokens that it has told of.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::reply::Usage;
use super::request::ModelRequest;

/// What one message cost, as far as the client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Claude Code's subagent; None on the main thread.
    pub agent_id: Option<String>,
    pub model: String,
    pub usage: Usage,
    /// Whether its last event was sent, which tells the whole output.
    pub is_whole: bool,
}

#[derive(Debug, Default)]
pub(super) struct Book(Mutex<Vec<Spent>>);

impl Book {
    /// A message begins: one token of output is told with the start. Gives its place.
    pub(super) fn open(&self, request: &ModelRequest, usage: &Usage) -> usize {
        let mut all = self.lock();
        all.push(Spent {
            agent_id: request.agent_id().map(str::to_owned),
            model: request.model().to_owned(),
            usage: Usage { output_tokens: 1, ..*usage },
            is_whole: false,
        });
        all.len() - 1
    }

    pub(super) fn end(&self, place: usize, output_tokens: u64) {
        if let Some(spent) = self.lock().get_mut(place) {
            spent.usage.output_tokens = output_tokens;
            spent.is_whole = true;
        }
    }

    pub(super) fn all(&self) -> Vec<Spent> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Spent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
