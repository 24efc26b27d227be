//! Types the question and sends it, once.

use shikiri_app::lane::{AskError, Cause, NotNow, Sent};
use tokio::time::Instant;

use super::{Asking, WATCH};
use crate::error::BrowserError;
use crate::page::{Look, Sending};

impl Asking<'_> {
    /// Types the question, and sees that the box holds it. It may be done twice: nothing is sent.
    pub(super) async fn enter(&self) -> Result<(), Cause> {
        let text = &self.question.text;
        let told = |error| self.cause(error);
        if !self.page.focus(&self.asked).await.map_err(told)? {
            return Err(self.in_the_way());
        }
        self.page.type_text(text).await.map_err(told)?;
        if self.page.typed(&self.asked, text).await.map_err(told)?.is_right() {
            return Ok(());
        }
        let is_focused = self.page.focus(&self.asked).await.map_err(told)?;
        self.page.insert(&self.asked, text).await.map_err(told)?;
        if self.page.typed(&self.asked, text).await.map_err(told)?.is_right() {
            return Ok(());
        }
        Err(if is_focused {
            self.unmatched("input", &self.provider.selectors.input)
        } else {
            self.in_the_way()
        })
    }

    fn in_the_way(&self) -> Cause {
        Cause::Broken(format!(
            "something is in the way of {}'s input box: look at it with `shikiri browser login`, \
             or name the button that closes it under `dismiss` in {}",
            self.provider.name, self.book
        ))
    }

    /// Sends what was typed and sees that it was taken: gives what the page looked like then.
    /// `before`: the page without the question.
    pub(super) async fn send(&self, before: &Look) -> Result<Look, AskError> {
        let ready = self.until_sendable().await.map_err(|cause| self.unsent(cause))?;
        if let Err(NotNow) = self.witness.before_send().await {
            return Err(self.unsent(Cause::GivenUp));
        }
        let sending = if self.provider.selectors.send.is_empty() {
            self.page.press_enter().await.map(|()| Sending::Sent)
        } else {
            self.page.send(&self.asked).await
        };
        match sending {
            Ok(Sending::Sent) => {}
            Ok(Sending::Changed) => {
                let why = "the page changed what was typed before it could be sent: ask again";
                return Err(self.unsent(Cause::Broken(why.to_owned())));
            }
            Ok(Sending::Missing | Sending::Disabled) => {
                return Err(self.unsent(self.unmatched("send", &self.provider.selectors.send)));
            }
            // Our script was not run at all.
            Err(error) if error.is_moved() => return Err(self.unsent(self.cause(error))),
            // It was, and what it did led elsewhere: the look that follows tells.
            Err(error) if error.is_cut_off() => {}
            Err(error) => {
                let sent = match error {
                    BrowserError::Refused { .. } | BrowserError::Unreadable(_) => Sent::No,
                    _ => Sent::Unknown,
                };
                return Err(self.failed(self.cause(error), sent, Some(&ready)));
            }
        }
        self.confirm(before, ready).await
    }

    async fn until_sendable(&self) -> Result<Look, Cause> {
        let deadline = Instant::now() + self.provider.times.send;
        let mut look = self.look().await?;
        let mut is_typed_again = false;
        while look.empty || (!look.send && !self.provider.selectors.send.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.unmatched("send", &self.provider.selectors.send));
            }
            if look.empty && !is_typed_again {
                // The page has replaced its box since.
                is_typed_again = true;
                self.enter().await?;
            }
            look = self.next(&look, left.min(WATCH)).await?;
        }
        Ok(look)
    }

    /// Waits for a sign that the page took it.
    async fn confirm(&self, before: &Look, mut look: Look) -> Result<Look, AskError> {
        let deadline = Instant::now() + self.provider.times.confirm;
        loop {
            let told = |cause| self.failed(cause, Sent::Unknown, None);
            look = self
                .page
                .watch(&self.asked, &look, WATCH)
                .await
                .map_err(|e| told(self.cause(e)))?;
            let is_taken = look.questions > before.questions || look.empty || look.busy;
            if is_taken {
                return Ok(look);
            }
            if Instant::now() >= deadline {
                let why = format!(
                    "{} showed no sign that it took the question: look into the chat before you \
                     ask again",
                    self.provider.name
                );
                return Err(self.failed(Cause::Broken(why), Sent::Unknown, Some(&look)));
            }
        }
    }
}
