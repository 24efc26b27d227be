//! Waits for the whole answer. The question was sent, so the page is only read.

use std::time::Duration;

use shikiri_lanes::{AskError, AskErrorCause, AskStage, SendStatus};
use tokio::time::Instant;

use super::{AskContext, WATCH};
use crate::page::PageSnapshot;

/// How long an answer that is marked as complete must stay the same.
const MARKED: Duration = Duration::from_millis(40);
/// An answer must be readable this long after the page stopped writing or marked it.
const FINISHED: Duration = Duration::from_secs(5);
/// How long to wait for the address of a new chat, which may follow its first answer.
const ADDRESS: Duration = Duration::from_secs(3);

impl AskContext<'_> {
    /// The answer and the chat's address. `before` is the snapshot without the question, `taken`
    /// the one that shows that the page took it.
    pub(super) async fn wait_for_answer(
        &self,
        before: &PageSnapshot,
        taken: PageSnapshot,
    ) -> Result<(String, Option<String>), AskError> {
        let mut last = taken;
        let waited = self.wait_until_complete(before, &mut last).await;
        let snapshot = match waited {
            Ok(snapshot) => snapshot,
            Err(cause) => return Err(self.ask_error(cause, SendStatus::Yes, Some(&last))),
        };
        let answer = self.page.answer(&self.probe).await;
        let answer = answer
            .map_err(|error| self.ask_error(self.cause(error), SendStatus::Yes, Some(&snapshot)))?;
        // A missing address does not make the answer invalid.
        Ok((answer, self.address(snapshot).await.unwrap_or_default()))
    }

    async fn wait_until_complete(
        &self,
        before: &PageSnapshot,
        last: &mut PageSnapshot,
    ) -> Result<PageSnapshot, AskErrorCause> {
        let began = Instant::now();
        let mut last_activity = began;
        let mut was_busy = last.busy;
        let mut snapshot = last.clone();
        loop {
            last.clone_from(&snapshot);
            if self.provider.is_login(&snapshot.url) {
                return Err(self.login_required());
            }
            let is_answer =
                snapshot.length > 0 && snapshot.mine && snapshot.questions > before.questions;
            if is_answer {
                self.gate.report_stage(AskStage::Answering { characters: snapshot.length });
            }
            if is_answer && !snapshot.busy {
                match self.settled(&snapshot).await? {
                    None => return Ok(snapshot),
                    Some(later) => snapshot = later,
                }
                last_activity = Instant::now();
            } else {
                snapshot = self.next_snapshot(&snapshot, WATCH).await?;
            }
            if snapshot.busy {
                was_busy = true;
                last_activity = Instant::now();
            }
            let is_over = was_busy || snapshot.done;
            let limit = if is_over { FINISHED } else { self.provider.times.begin };
            if last_activity.elapsed() >= limit && is_over {
                return Err(self.selector_mismatch("answer", &self.provider.selectors.answer));
            }
            if last_activity.elapsed() >= limit || began.elapsed() >= self.provider.times.answer {
                return Err(AskErrorCause::AnswerTimeout);
            }
        }
    }

    /// `None` once the answer has stayed the same for long enough, else the changed snapshot.
    async fn settled(
        &self,
        snapshot: &PageSnapshot,
    ) -> Result<Option<PageSnapshot>, AskErrorCause> {
        let time = if snapshot.done { MARKED } else { self.provider.times.settle };
        let deadline = Instant::now() + time;
        let mut later = snapshot.clone();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let watched = self.page.watch(&self.probe, &later, left).await;
            later = watched.map_err(|error| self.cause(error))?;
            if later.answer() != snapshot.answer() {
                return Ok(Some(later));
            }
        }
    }

    async fn address(&self, mut snapshot: PageSnapshot) -> Result<Option<String>, AskErrorCause> {
        let deadline = Instant::now() + ADDRESS;
        loop {
            let url = self.provider.conversation(&snapshot.url);
            let left = deadline.saturating_duration_since(Instant::now());
            if url.is_some() || left.is_zero() {
                return Ok(url);
            }
            snapshot = self.next_snapshot(&snapshot, left.min(WATCH)).await?;
        }
    }
}
