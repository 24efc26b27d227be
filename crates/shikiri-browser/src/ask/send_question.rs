//! Types the question and sends it, once.

use shikiri_lanes::{AskError, AskErrorCause, SendRefusal, SendStatus};
use tokio::time::Instant;

use super::{AskContext, WATCH};
use crate::error::BrowserError;
use crate::page::{PageSendResult, PageSnapshot};

impl AskContext<'_> {
    /// Types the question and checks that the input box holds it. May be repeated.
    pub(super) async fn type_question(&self) -> Result<(), AskErrorCause> {
        let text = &self.question.text;
        let cause = |error| self.cause(error);
        if !self.page.focus(&self.probe).await.map_err(cause)? {
            return Err(self.blocked_input());
        }
        self.page.type_text(text).await.map_err(cause)?;
        if self.page.typed(&self.probe, text).await.map_err(cause)?.is_right() {
            return Ok(());
        }
        let is_focused = self.page.focus(&self.probe).await.map_err(cause)?;
        self.page.insert(&self.probe, text).await.map_err(cause)?;
        if self.page.typed(&self.probe, text).await.map_err(cause)?.is_right() {
            return Ok(());
        }
        Err(if is_focused {
            self.selector_mismatch("input", &self.provider.selectors.input)
        } else {
            self.blocked_input()
        })
    }

    fn blocked_input(&self) -> AskErrorCause {
        AskErrorCause::Broken(format!(
            "something is in the way of {}'s input box: look at it with `shikiri browser login`, \
             or name the button that closes it under `dismiss` in {}",
            self.provider.name, self.provider_file
        ))
    }

    /// Sends the typed question and returns the snapshot that shows it was taken. `before` is the
    /// snapshot without the question.
    pub(super) async fn send(&self, before: &PageSnapshot) -> Result<PageSnapshot, AskError> {
        let ready = self.wait_until_sendable().await.map_err(|cause| self.unsent_error(cause))?;
        if let Err(SendRefusal) = self.gate.before_send().await {
            return Err(self.unsent_error(AskErrorCause::GivenUp));
        }
        let sending = if self.provider.selectors.send.is_empty() {
            self.page.press_enter().await.map(|()| PageSendResult::Sent)
        } else {
            self.page.send(&self.probe).await
        };
        match sending {
            Ok(PageSendResult::Sent) => {}
            Ok(PageSendResult::Changed) => {
                let why = "the page changed what was typed before it could be sent: ask again";
                return Err(self.unsent_error(AskErrorCause::Broken(why.to_owned())));
            }
            Ok(PageSendResult::Missing | PageSendResult::Disabled) => {
                return Err(self
                    .unsent_error(self.selector_mismatch("send", &self.provider.selectors.send)));
            }
            // The script did not run.
            Err(error) if error.is_context_missing() => {
                return Err(self.unsent_error(self.cause(error)));
            }
            // The script ran and the page navigated away: the next snapshot shows the result.
            Err(error) if error.is_context_destroyed() => {}
            Err(error) => {
                let sent = match error {
                    BrowserError::Refused { .. } | BrowserError::Unreadable(_) => SendStatus::No,
                    _ => SendStatus::Unknown,
                };
                return Err(self.ask_error(self.cause(error), sent, Some(&ready)));
            }
        }
        self.confirm(before, ready).await
    }

    async fn wait_until_sendable(&self) -> Result<PageSnapshot, AskErrorCause> {
        let deadline = Instant::now() + self.provider.times.send;
        let mut snapshot = self.take_snapshot().await?;
        let mut is_typed_again = false;
        while snapshot.empty || (!snapshot.send && !self.provider.selectors.send.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.selector_mismatch("send", &self.provider.selectors.send));
            }
            if snapshot.empty && !is_typed_again {
                // The page has replaced its input box.
                is_typed_again = true;
                self.type_question().await?;
            }
            snapshot = self.next_snapshot(&snapshot, left.min(WATCH)).await?;
        }
        Ok(snapshot)
    }

    /// Waits for a sign that the page took the question.
    async fn confirm(
        &self,
        before: &PageSnapshot,
        mut snapshot: PageSnapshot,
    ) -> Result<PageSnapshot, AskError> {
        let deadline = Instant::now() + self.provider.times.confirm;
        loop {
            let watched = self.page.watch(&self.probe, &snapshot, WATCH).await;
            snapshot = watched
                .map_err(|error| self.ask_error(self.cause(error), SendStatus::Unknown, None))?;
            let is_taken = snapshot.questions > before.questions || snapshot.empty || snapshot.busy;
            if is_taken {
                return Ok(snapshot);
            }
            if Instant::now() >= deadline {
                let why = format!(
                    "{} showed no sign that it took the question: look into the chat before you \
                     ask again",
                    self.provider.name
                );
                return Err(self.ask_error(
                    AskErrorCause::Broken(why),
                    SendStatus::Unknown,
                    Some(&snapshot),
                ));
            }
        }
    }
}
