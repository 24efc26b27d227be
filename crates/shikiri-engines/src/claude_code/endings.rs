//! Ends of subagents, held until their transcripts are complete.
//!
//! The CLI says that a subagent has ended a moment before it has written the last lines of the
//! transcript (up to a tenth of a second was measured). Told at once, the end would come with a
//! bill that is not yet whole.

use std::collections::HashMap;
use std::time::Duration;

use shikiri_model::execution::EngineMessage;
use tokio::time::Instant;

/// How long a transcript may take: that of a subagent that was killed has no last line.
const LONGEST: Duration = Duration::from_secs(1);
/// Between two looks at the transcripts.
const PAUSE: Duration = Duration::from_millis(25);

#[derive(Debug, Default)]
pub(super) struct Endings {
    /// Calls whose subagent has written its last line, and whether that tells of a failure.
    complete: HashMap<String, bool>,
    held: Vec<Held>,
    /// When to look again, while anything is held.
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct Held {
    tool_use_id: String,
    is_error: bool,
    until: Instant,
}

impl Endings {
    /// Holds back what is an end; everything else is given back.
    pub(super) fn hold(&mut self, message: EngineMessage) -> Option<EngineMessage> {
        match message {
            EngineMessage::SubagentEnded { tool_use_id, is_error } => {
                let until = Instant::now() + LONGEST;
                self.held.push(Held { tool_use_id, is_error, until });
                self.next_look.get_or_insert_with(|| Instant::now() + PAUSE);
                None
            }
            EngineMessage::SubagentStarted(start) => {
                // It may have been woken again.
                self.complete.remove(&start.tool_use_id);
                Some(EngineMessage::SubagentStarted(start))
            }
            other => Some(other),
        }
    }

    /// A subagent has written its last line.
    pub(super) fn complete(&mut self, tool_use_id: &str, has_failed: bool) {
        self.complete.insert(tool_use_id.to_owned(), has_failed);
    }

    /// The ends that can be told now, after a look at the transcripts.
    pub(super) fn release(&mut self) -> Vec<EngineMessage> {
        let now = Instant::now();
        let complete = &self.complete;
        let is_due =
            |held: &mut Held| held.until <= now || complete.contains_key(&held.tool_use_id);
        let due = self.held.extract_if(.., is_due).map(|held| held.told(complete)).collect();
        self.next_look = (!self.held.is_empty()).then(|| now + PAUSE);
        due
    }

    /// Nothing more will be written.
    pub(super) fn release_all(&mut self) -> Vec<EngineMessage> {
        self.next_look = None;
        self.held.drain(..).map(|held| held.told(&self.complete)).collect()
    }

    /// A fixed time: however much the CLI writes meanwhile, it comes.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }
}

impl Held {
    fn told(self, complete: &HashMap<String, bool>) -> EngineMessage {
        let is_error = self.is_error || complete.get(&self.tool_use_id) == Some(&true);
        EngineMessage::SubagentEnded { tool_use_id: self.tool_use_id, is_error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(id: &str) -> EngineMessage {
        EngineMessage::SubagentEnded { tool_use_id: id.into(), is_error: false }
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_waits_for_the_last_line_but_not_for_ever() {
        let mut endings = Endings::default();
        assert_eq!(endings.next_look(), None);
        for id in ["a", "b"] {
            assert_eq!(endings.hold(end(id)), None);
        }
        assert!(endings.release().is_empty() && endings.next_look().is_some());
        endings.complete("b", true);
        let EngineMessage::SubagentEnded { tool_use_id, is_error } = endings.release().remove(0)
        else {
            panic!("no end")
        };
        assert_eq!((tool_use_id.as_str(), is_error), ("b", true));
        tokio::time::advance(LONGEST).await;
        assert_eq!(endings.release(), [end("a")]);
        endings.hold(end("c"));
        assert_eq!(endings.release_all(), [end("c")]);
        assert_eq!(endings.next_look(), None);
    }
}
