//! Asks one question on one page: open the chat, type, send once, wait, read the answer.
//!
//! Every step before sending may be repeated. After sending, the page is only read.

mod open_chat;
mod send_question;
mod wait_answer;

use std::time::Duration;

use shikiri_lanes::{
    AskError, AskErrorCause, AskStage, AskTimings, PageAnswer, PageQuestion, SendGate, SendStatus,
};
use tokio::time::Instant;

use crate::error::BrowserError;
use crate::page::{BrowserPage, PageProbe, PageSnapshot};
use crate::provider::ProviderSpec;

/// Pause between two snapshots of a page that keeps changing.
const PAUSE: Duration = Duration::from_millis(30);
/// Longest wait for a change of the page before the next snapshot.
const WATCH: Duration = Duration::from_millis(500);

/// What every step of one question needs.
struct AskContext<'a> {
    page: &'a BrowserPage,
    provider: &'a ProviderSpec,
    question: &'a PageQuestion,
    probe: PageProbe<'a>,
    /// Address of the chat to ask in; `None` starts a new chat.
    thread: Option<&'a str>,
    gate: &'a dyn SendGate,
    /// The file that the user corrects when a page has changed.
    provider_file: &'a str,
}

/// A question, where to ask it, and the gate that permits sending.
pub(crate) struct PageAskRequest<'a> {
    pub(crate) provider: &'a ProviderSpec,
    pub(crate) question: &'a PageQuestion,
    /// Address of the conversation, if the question names one.
    pub(crate) thread: Option<&'a str>,
    pub(crate) gate: &'a dyn SendGate,
    pub(crate) provider_file: &'a str,
    /// Start of the total time.
    pub(crate) began: Instant,
}

/// Why a question got no answer, and whether another tab may be tried.
pub(crate) enum PageAskError {
    /// Nothing was sent, so another tab can be tried.
    Early(AskError),
    /// The send gate was asked already, so the question must not be repeated.
    Late(AskError),
}

/// Asks on an open page. `is_clean` says that the last question there was answered.
pub(crate) async fn ask(
    page: &BrowserPage,
    request: &PageAskRequest<'_>,
    is_clean: bool,
) -> Result<PageAnswer, PageAskError> {
    let context = AskContext {
        page,
        provider: request.provider,
        question: request.question,
        probe: PageProbe::new(request.provider, &request.question.text),
        thread: request.thread,
        gate: request.gate,
        provider_file: request.provider_file,
    };
    let mut timings = AskTimings::default();
    let mut clock = StageTimer { last: request.began };
    let early = |cause| PageAskError::Early(context.unsent_error(cause));
    let is_new = context.open_chat(is_clean).await.map_err(early)?;
    timings.connect_ms = clock.lap();
    context.gate.report_stage(AskStage::WaitingForInput);
    let before = context.wait_until_ready(is_new).await.map_err(early)?;
    timings.wait_input_ms = clock.lap();
    context.gate.report_stage(AskStage::Typing);
    context.type_question().await.map_err(early)?;
    timings.input_ms = clock.lap();
    context.gate.report_stage(AskStage::Sending);
    let taken = context.send(&before).await.map_err(PageAskError::Late)?;
    timings.send_ms = clock.lap();
    let (answer, url) =
        context.wait_for_answer(&before, taken).await.map_err(PageAskError::Late)?;
    timings.wait_response_ms = clock.lap();
    timings.total_ms = millis(request.began.elapsed());
    Ok(PageAnswer { answer, url, tab: Some(page.tab().to_owned()), timings })
}

struct StageTimer {
    last: Instant,
}

impl StageTimer {
    fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let lap = millis(now - self.last);
        self.last = now;
        lap
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl AskContext<'_> {
    async fn take_snapshot(&self) -> Result<PageSnapshot, AskErrorCause> {
        self.page.take_snapshot(&self.probe).await.map_err(|error| self.cause(error))
    }

    /// The next snapshot, taken when the page changes, but not too often.
    async fn next_snapshot(
        &self,
        known: &PageSnapshot,
        time: Duration,
    ) -> Result<PageSnapshot, AskErrorCause> {
        tokio::time::sleep(PAUSE.min(time)).await;
        let watched = self.page.watch(&self.probe, known, time.saturating_sub(PAUSE)).await;
        watched.map_err(|error| self.cause(error))
    }

    fn cause(&self, error: BrowserError) -> AskErrorCause {
        match error {
            BrowserError::BadSelector(selector) => self.page_changed(selector),
            BrowserError::Unavailable(why) => AskErrorCause::BrowserUnavailable(why),
            error => AskErrorCause::Broken(error.to_string()),
        }
    }

    /// No element of the page matches the selectors of this field.
    fn selector_mismatch(&self, field: &str, selectors: &[String]) -> AskErrorCause {
        self.page_changed(format!("{field}: {}", selectors.join(", ")))
    }

    fn page_changed(&self, selector: String) -> AskErrorCause {
        AskErrorCause::PageChanged {
            provider: self.provider.name.clone(),
            selector,
            file: self.provider_file.to_owned(),
        }
    }

    fn login_required(&self) -> AskErrorCause {
        AskErrorCause::LoginRequired { provider: self.provider.name.clone() }
    }

    fn unsent_error(&self, cause: AskErrorCause) -> AskError {
        self.ask_error(cause, SendStatus::No, None)
    }

    fn ask_error(
        &self,
        cause: AskErrorCause,
        sent: SendStatus,
        snapshot: Option<&PageSnapshot>,
    ) -> AskError {
        let url = snapshot.and_then(|snapshot| self.provider.conversation(&snapshot.url));
        AskError { cause, sent, url, tab: Some(self.page.tab().to_owned()) }
    }
}
