//! The API's own count of the reported tokens.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::reply::Usage;
use super::request::ModelRequest;

/// The cost of one message, as reported to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Claude Code's subagent; None on the main thread.
    pub agent_id: Option<String>,
    pub model: String,
    pub usage: Usage,
    /// Whether its last event was sent, which has the total output.
    pub is_whole: bool,
}

#[derive(Debug, Default)]
pub(super) struct Book(Mutex<Vec<Spent>>);

impl Book {
    /// A message starts: one output token is reported at the start. Returns its index.
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

    pub(super) fn end(&self, index: usize, output_tokens: u64) {
        if let Some(spent) = self.lock().get_mut(index) {
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
