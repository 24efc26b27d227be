//! Opens the chat and waits until a question can be typed. Nothing is sent here, so every step may
//! be repeated.

use std::time::Duration;

use shikiri_lanes::AskErrorCause;
use tokio::time::Instant;
use url::Url;

use super::AskContext;
use crate::page::PageSnapshot;

/// A login button counts after this time: some pages show one until the session is loaded.
const LOGIN: Duration = Duration::from_millis(800);
/// A new input box counts after this time: some pages replace the first one when they start.
const INPUT: Duration = Duration::from_millis(250);
/// The number of messages in an old chat counts after it was stable for this time.
const HISTORY: Duration = Duration::from_millis(400);

impl AskContext<'_> {
    /// Loads the chat, unless a clean tab shows it already. Returns whether the chat was loaded.
    pub(super) async fn open_chat(&self, is_clean: bool) -> Result<bool, AskErrorCause> {
        if is_clean && self.thread.is_some() && self.shows_thread().await? {
            return Ok(false);
        }
        let address = match self.thread {
            Some(thread) => Url::parse(thread).map_err(|_| AskErrorCause::ThreadGone)?,
            None => self.provider.new_chat.clone(),
        };
        self.page.go_to(&address).await.map_err(|error| self.cause(error))?;
        Ok(true)
    }

    /// Whether the tab shows the requested thread.
    async fn shows_thread(&self) -> Result<bool, AskErrorCause> {
        let snapshot = self.take_snapshot().await?;
        Ok(self.provider.conversation(&snapshot.url).as_deref() == self.thread)
    }

    /// Waits until the page accepts input. Returns its snapshot from before the question.
    pub(super) async fn wait_until_ready(
        &self,
        is_loaded_anew: bool,
    ) -> Result<PageSnapshot, AskErrorCause> {
        let mut readiness = ReadinessTracker::new(self.provider.times.input);
        let mut snapshot = self.take_snapshot().await?;
        loop {
            readiness.note(&snapshot);
            match self.assess_readiness(&snapshot, &readiness, is_loaded_anew) {
                PageReadiness::Ready => return Ok(snapshot),
                PageReadiness::Never(cause) => return Err(cause),
                PageReadiness::Wait => {}
            }
            if snapshot.dialog && snapshot.input {
                self.page.dismiss(&self.probe).await.map_err(|error| self.cause(error))?;
            }
            let Some(left) = readiness.left() else { return Err(self.timeout_cause(&snapshot)) };
            snapshot = self.next_snapshot(&snapshot, left.min(INPUT)).await?;
        }
    }

    fn assess_readiness(
        &self,
        snapshot: &PageSnapshot,
        readiness: &ReadinessTracker,
        is_loaded_anew: bool,
    ) -> PageReadiness {
        if self.provider.is_login(&snapshot.url) || readiness.wants_login() {
            return PageReadiness::Never(self.login_required());
        }
        if !self.provider.is_home(&snapshot.url) {
            return PageReadiness::Wait;
        }
        if let Some(thread) = self.thread {
            let shown = self.provider.conversation(&snapshot.url);
            let is_gone = matches!(snapshot.status, 404 | 410) || snapshot.gone;
            if is_gone || shown.as_deref() != Some(thread) {
                return PageReadiness::Never(AskErrorCause::ThreadGone);
            }
        }
        let is_usable = snapshot.input && !snapshot.busy && !snapshot.dialog && !snapshot.login;
        let has_history = self.thread.is_none() || readiness.is_history_complete(snapshot);
        match is_usable && (!is_loaded_anew || (has_history && readiness.is_input_settled())) {
            true => PageReadiness::Ready,
            false => PageReadiness::Wait,
        }
    }

    fn timeout_cause(&self, snapshot: &PageSnapshot) -> AskErrorCause {
        let provider = &self.provider.name;
        if snapshot.login {
            return self.login_required();
        }
        if !self.provider.is_home(&snapshot.url) {
            // The query of an address may carry secrets.
            let place = snapshot.url.split(['?', '#']).next().unwrap_or_default();
            return AskErrorCause::Broken(format!("{provider} led to {place} instead of a chat"));
        }
        if snapshot.status >= 400 {
            return AskErrorCause::Broken(format!(
                "{provider}'s page answers {}: snapshot at it with `shikiri browser login`",
                snapshot.status
            ));
        }
        if !snapshot.input {
            return self.selector_mismatch("input", &self.provider.selectors.input);
        }
        if snapshot.busy {
            return AskErrorCause::Broken(format!(
                "{provider} is still writing an earlier answer: ask again later"
            ));
        }
        if snapshot.dialog {
            return AskErrorCause::Broken(format!(
                "a dialog of {provider} is in the way and stays: snapshot at it with `shikiri browser \
                 login`"
            ));
        }
        // The chat has messages, but no selector matches them.
        self.selector_mismatch("answer", &self.provider.selectors.answer)
    }
}

enum PageReadiness {
    Ready,
    Wait,
    Never(AskErrorCause),
}

/// What the snapshots showed while waiting.
struct ReadinessTracker {
    deadline: Instant,
    login_since: Option<Instant>,
    input_since: Option<Instant>,
    messages: (usize, usize),
    messages_since: Instant,
}

impl ReadinessTracker {
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

    fn note(&mut self, snapshot: &PageSnapshot) {
        let now = Instant::now();
        self.login_since = snapshot.login.then(|| self.login_since.unwrap_or(now));
        self.input_since = snapshot.input.then(|| self.input_since.unwrap_or(now));
        let messages = (snapshot.questions, snapshot.answers);
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

    /// An old chat has messages, which may appear long after the input box.
    fn is_history_complete(&self, snapshot: &PageSnapshot) -> bool {
        snapshot.answers > 0 && self.messages_since.elapsed() >= HISTORY
    }

    fn left(&self) -> Option<Duration> {
        self.deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}
