//! Comes to the chat and waits until a question can be typed. Nothing is sent here, so all of it may
//! be repeated.

use std::time::Duration;

use shikiri_app::lane::Cause;
use tokio::time::Instant;
use url::Url;

use super::Asking;
use crate::page::Look;

/// A login button has to be there for so long: some pages show it until they know who looks.
const LOGIN: Duration = Duration::from_millis(800);
/// So does an input box that was loaded anew: some pages show one that they replace when they start.
const INPUT: Duration = Duration::from_millis(250);
/// The messages of an old chat have to stay the same for so long before their number counts.
const HISTORY: Duration = Duration::from_millis(400);

impl Asking<'_> {
    /// Loads the chat, unless the tab has it and nothing was left unfinished there. Whether it was
    /// loaded.
    pub(super) async fn go(&self, is_clean: bool) -> Result<bool, Cause> {
        if is_clean && self.thread.is_some() && self.shown().await? == self.thread {
            return Ok(false);
        }
        let address = match self.thread {
            Some(thread) => Url::parse(thread).map_err(|_| Cause::ThreadGone)?,
            None => self.provider.new_chat.clone(),
        };
        self.page.go(&address).await.map_err(|error| self.cause(error))?;
        Ok(true)
    }

    /// Whether the tab shows the thread that is wanted.
    async fn shown(&self) -> Result<Option<&str>, Cause> {
        let look = self.look().await?;
        let shown = self.provider.conversation(&look.url);
        Ok(self.thread.filter(|thread| shown.as_deref() == Some(*thread)))
    }

    /// Until the page can be typed in. Gives what it looked like then: what is on it is not the
    /// answer.
    pub(super) async fn arrive(&self, is_loaded_anew: bool) -> Result<Look, Cause> {
        let mut arrival = Arrival::new(self.provider.times.input);
        let mut look = self.look().await?;
        loop {
            arrival.note(&look);
            match self.judge(&look, &arrival, is_loaded_anew) {
                Verdict::Ready => return Ok(look),
                Verdict::Never(cause) => return Err(cause),
                Verdict::Wait => {}
            }
            if look.dialog && look.input {
                self.page.dismiss(&self.asked).await.map_err(|error| self.cause(error))?;
            }
            let Some(left) = arrival.left() else { return Err(self.too_late(&look)) };
            look = self.next(&look, left.min(INPUT)).await?;
        }
    }

    fn judge(&self, look: &Look, arrival: &Arrival, is_loaded_anew: bool) -> Verdict {
        if self.provider.is_login(&look.url) || arrival.wants_login() {
            return Verdict::Never(self.login_required());
        }
        if !self.provider.is_home(&look.url) {
            return Verdict::Wait;
        }
        if let Some(thread) = self.thread {
            let shown = self.provider.conversation(&look.url);
            let is_gone = matches!(look.status, 404 | 410) || look.gone;
            if is_gone || shown.as_deref() != Some(thread) {
                return Verdict::Never(Cause::ThreadGone);
            }
        }
        let is_usable = look.input && !look.busy && !look.dialog && !look.login;
        let is_told = self.thread.is_none() || arrival.is_history_complete(look);
        match is_usable && (!is_loaded_anew || (is_told && arrival.is_input_settled())) {
            true => Verdict::Ready,
            false => Verdict::Wait,
        }
    }

    fn too_late(&self, look: &Look) -> Cause {
        let provider = &self.provider.name;
        if look.login {
            return self.login_required();
        }
        if !self.provider.is_home(&look.url) {
            // The address may carry secrets after its path.
            let place = look.url.split(['?', '#']).next().unwrap_or_default();
            return Cause::Broken(format!("{provider} led to {place} instead of a chat"));
        }
        if look.status >= 400 {
            return Cause::Broken(format!(
                "{provider}'s page answers {}: look at it with `shikiri browser login`",
                look.status
            ));
        }
        if !look.input {
            return self.unmatched("input", &self.provider.selectors.input);
        }
        if look.busy {
            return Cause::Broken(format!(
                "{provider} is still writing an earlier answer: ask again later"
            ));
        }
        if look.dialog {
            return Cause::Broken(format!(
                "a dialog of {provider} is in the way and stays: look at it with `shikiri browser \
                 login`"
            ));
        }
        // A chat without messages: they are there, but not as they are described.
        self.unmatched("answer", &self.provider.selectors.answer)
    }
}

enum Verdict {
    Ready,
    Wait,
    Never(Cause),
}

/// What was seen while waiting.
struct Arrival {
    deadline: Instant,
    login_since: Option<Instant>,
    input_since: Option<Instant>,
    messages: (usize, usize),
    messages_since: Instant,
}

impl Arrival {
    fn new(time: Duration) -> Self {
        let now = Instant::now();
        Self {
            deadline: now + time,
            login_since: None,
            input_since: None,
            messages: (0, 0),
            messages_since: now,
        }
    }

    fn note(&mut self, look: &Look) {
        let now = Instant::now();
        self.login_since = look.login.then(|| self.login_since.unwrap_or(now));
        self.input_since = look.input.then(|| self.input_since.unwrap_or(now));
        let messages = (look.questions, look.answers);
        if messages != self.messages {
            self.messages = messages;
            self.messages_since = now;
        }
    }

    fn wants_login(&self) -> bool {
        self.login_since.is_some_and(|since| since.elapsed() >= LOGIN)
    }

    fn is_input_settled(&self) -> bool {
        self.input_since.is_some_and(|since| since.elapsed() >= INPUT)
    }

    /// A chat that was asked in before has messages; they may come long after the input box.
    fn is_history_complete(&self, look: &Look) -> bool {
        look.answers > 0 && self.messages_since.elapsed() >= HISTORY
    }

    fn left(&self) -> Option<Duration> {
        self.deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}
