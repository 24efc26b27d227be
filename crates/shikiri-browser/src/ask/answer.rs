//! Waits for the whole answer. Whatever happens here, the question was sent: nothing is done but
//! looking.

use std::time::Duration;

use shikiri_app::lane::{AskError, Cause, Sent, Stage};
use tokio::time::Instant;

use super::{Asking, WATCH};
use crate::page::Look;

/// An answer that is marked as complete has to stay the same for so long.
const MARKED: Duration = Duration::from_millis(40);
/// After the page stopped writing, or marked the answer, something has to be readable within this.
const FINISHED: Duration = Duration::from_secs(5);
/// The address of a new chat may come after its first answer.
const ADDRESS: Duration = Duration::from_secs(3);

impl Asking<'_> {
    /// The answer and the chat's address. `before`: the page without the question.
    /// `taken`: as it was when the page had taken it.
    pub(super) async fn wait(
        &self,
        before: &Look,
        taken: Look,
    ) -> Result<(String, Option<String>), AskError> {
        let mut last = taken;
        let waited = self.until_complete(before, &mut last).await;
        let look = match waited {
            Ok(look) => look,
            Err(cause) => return Err(self.failed(cause, Sent::Yes, Some(&last))),
        };
        let answer = self.page.answer(&self.asked).await;
        let answer =
            answer.map_err(|error| self.failed(self.cause(error), Sent::Yes, Some(&look)))?;
        // The answer is there; an address that is not does not take it away.
        Ok((answer, self.address(look).await.unwrap_or_default()))
    }

    async fn until_complete(&self, before: &Look, last: &mut Look) -> Result<Look, Cause> {
        let began = Instant::now();
        let mut sign_of_life = began;
        let mut was_busy = last.busy;
        let mut look = last.clone();
        loop {
            last.clone_from(&look);
            if self.provider.is_login(&look.url) {
                return Err(self.login_required());
            }
            let is_answer = look.length > 0 && look.mine && look.questions > before.questions;
            if is_answer {
                self.witness.tell(Stage::Answering { characters: look.length });
            }
            if is_answer && !look.busy {
                match self.settled(&look).await? {
                    None => return Ok(look),
                    Some(later) => look = later,
                }
                sign_of_life = Instant::now();
            } else {
                look = self.next(&look, WATCH).await?;
            }
            if look.busy {
                was_busy = true;
                sign_of_life = Instant::now();
            }
            let is_over = was_busy || look.done;
            let patience = if is_over { FINISHED } else { self.provider.times.begin };
            if sign_of_life.elapsed() >= patience && is_over {
                return Err(self.unmatched("answer", &self.provider.selectors.answer));
            }
            if sign_of_life.elapsed() >= patience || began.elapsed() >= self.provider.times.answer {
                return Err(Cause::AnswerTimeout);
            }
        }
    }

    /// None if the answer stays the same for as long as it has to, else what it changed to.
    async fn settled(&self, look: &Look) -> Result<Option<Look>, Cause> {
        let time = if look.done { MARKED } else { self.provider.times.settle };
        let deadline = Instant::now() + time;
        let mut later = look.clone();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let watched = self.page.watch(&self.asked, &later, left).await;
            later = watched.map_err(|error| self.cause(error))?;
            if later.answer() != look.answer() {
                return Ok(Some(later));
            }
        }
    }

    async fn address(&self, mut look: Look) -> Result<Option<String>, Cause> {
        let deadline = Instant::now() + ADDRESS;
        loop {
            let url = self.provider.conversation(&look.url);
            let left = deadline.saturating_duration_since(Instant::now());
            if url.is_some() || left.is_zero() {
                return Ok(url);
            }
            look = self.next(&look, left.min(WATCH)).await?;
        }
    }
}
