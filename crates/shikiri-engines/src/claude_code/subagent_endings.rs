//! Delays the end of a subagent until its transcript is complete.
//!
//! The CLI reports the end before it has written the last lines of the transcript (up to 0.1 s before,
//! as measured). Reported at once, the end would have incomplete usage.

use std::collections::HashMap;
use std::time::Duration;

use shikiri_model::execution::EngineMessage;
use tokio::time::Instant;

/// The longest delay: the transcript of a killed subagent has no last line.
const LONGEST: Duration = Duration::from_secs(1);
/// Pause between two reads of the transcripts.
const PAUSE: Duration = Duration::from_millis(25);

#[derive(Debug, Default)]
pub(super) struct SubagentEndings {
    /// Calls whose transcript is complete, and whether the subagent failed.
    complete: HashMap<String, bool>,
    held: Vec<HeldEnding>,
    /// When to read the transcripts again, while an end is held.
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct HeldEnding {
    tool_use_id: String,
    is_error: bool,
    until: Instant,
}

impl SubagentEndings {
    /// Holds an end; returns any other message.
    pub(super) fn hold(&mut self, message: EngineMessage) -> Option<EngineMessage> {
        match message {
            EngineMessage::SubagentEnded { tool_use_id, is_error } => {
                let until = Instant::now() + LONGEST;
                self.held.push(HeldEnding { tool_use_id, is_error, until });
                self.next_look.get_or_insert_with(|| Instant::now() + PAUSE);
                None
            }
            EngineMessage::SubagentStarted(start) => {
                // The subagent may have been started again.
                self.complete.remove(&start.tool_use_id);
                Some(EngineMessage::SubagentStarted(start))
            }
            other => Some(other),
        }
    }

    /// Marks the transcript of a subagent as complete.
    pub(super) fn complete(&mut self, tool_use_id: &str, has_failed: bool) {
        self.complete.insert(tool_use_id.to_owned(), has_failed);
    }

    /// The ends to report now, after the transcripts were read.
    pub(super) fn release(&mut self) -> Vec<EngineMessage> {
        let now = Instant::now();
        let complete = &self.complete;
        let is_due =
            |held: &mut HeldEnding| held.until <= now || complete.contains_key(&held.tool_use_id);
        let due =
            self.held.extract_if(.., is_due).map(|held| held.into_message(complete)).collect();
        self.next_look = (!self.held.is_empty()).then(|| now + PAUSE);
        due
    }

    /// All held ends: no transcript will grow any more.
    pub(super) fn release_all(&mut self) -> Vec<EngineMessage> {
        self.next_look = None;
        self.held.drain(..).map(|held| held.into_message(&self.complete)).collect()
    }

    /// A fixed time, so that output of the CLI does not postpone it.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }
}

impl HeldEnding {
    fn into_message(self, complete: &HashMap<String, bool>) -> EngineMessage {
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
        let mut endings = SubagentEndings::default();
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
