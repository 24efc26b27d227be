//! One question, put to one page: come to the chat, type, send once, wait, read.
//!
//! What has gone by is told by `Sent`: up to the moment of sending everything may be tried again,
//! after it nothing is done but reading.

mod answer;
mod arrive;
mod enter;

use std::time::Duration;

use shikiri_app::lane::{
    AskError, Asked as Answered, Cause, Question, Sent, Stage, Timings, Witness,
};
use tokio::time::Instant;

use crate::error::BrowserError;
use crate::page::{Asked, Look, Page};
use crate::provider::Provider;

/// Between two looks at a page that changes all the time.
const PAUSE: Duration = Duration::from_millis(30);
/// A look that waits for a change is repeated after this.
const WATCH: Duration = Duration::from_millis(500);

/// What everybody who works on the question knows.
struct Asking<'a> {
    page: &'a Page,
    provider: &'a Provider,
    question: &'a Question,
    /// By which the page is looked at.
    asked: Asked<'a>,
    /// The chat in which to ask; None: a new one.
    thread: Option<&'a str>,
    witness: &'a dyn Witness,
    /// The file to correct when a page has changed.
    book: &'a str,
}

/// What is asked, where, and who watches.
pub(crate) struct Order<'a> {
    pub(crate) provider: &'a Provider,
    pub(crate) question: &'a Question,
    /// The conversation, if the question names one.
    pub(crate) thread: Option<&'a str>,
    pub(crate) witness: &'a dyn Witness,
    pub(crate) book: &'a str,
    /// When all of it began.
    pub(crate) began: Instant,
}

/// How far a question got that was not answered.
pub(crate) enum Failed {
    /// Nothing has happened but looking and typing: it can be tried in another tab.
    Early(AskError),
    /// Its witness was asked whether to send it.
    Late(AskError),
}

/// Asks on a page of ours. `is_clean`: nothing was left unfinished there.
pub(crate) async fn ask(
    page: &Page,
    order: &Order<'_>,
    is_clean: bool,
) -> Result<Answered, Failed> {
    let asking = Asking {
        page,
        provider: order.provider,
        question: order.question,
        asked: Asked::new(order.provider, &order.question.text),
        thread: order.thread,
        witness: order.witness,
        book: order.book,
    };
    let mut timings = Timings::default();
    let mut clock = Clock { last: order.began };
    let early = |cause| Failed::Early(asking.unsent(cause));
    let is_new = asking.go(is_clean).await.map_err(early)?;
    timings.connect_ms = clock.lap();
    asking.witness.tell(Stage::WaitingForInput);
    let before = asking.arrive(is_new).await.map_err(early)?;
    timings.wait_input_ms = clock.lap();
    asking.witness.tell(Stage::Typing);
    asking.enter().await.map_err(early)?;
    timings.input_ms = clock.lap();
    asking.witness.tell(Stage::Sending);
    let taken = asking.send(&before).await.map_err(Failed::Late)?;
    timings.send_ms = clock.lap();
    let (answer, url) = asking.wait(&before, taken).await.map_err(Failed::Late)?;
    timings.wait_response_ms = clock.lap();
    timings.total_ms = millis(order.began.elapsed());
    Ok(Answered { answer, url, tab: Some(page.tab().to_owned()), timings })
}

struct Clock {
    last: Instant,
}

impl Clock {
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

impl Asking<'_> {
    async fn look(&self) -> Result<Look, Cause> {
        self.page.look(&self.asked).await.map_err(|error| self.cause(error))
    }

    /// The next look: when something changes, and not too often.
    async fn next(&self, known: &Look, time: Duration) -> Result<Look, Cause> {
        tokio::time::sleep(PAUSE.min(time)).await;
        let watched = self.page.watch(&self.asked, known, time.saturating_sub(PAUSE)).await;
        watched.map_err(|error| self.cause(error))
    }

    fn cause(&self, error: BrowserError) -> Cause {
        match error {
            BrowserError::BadSelector(selector) => self.changed(selector),
            BrowserError::Unavailable(why) => Cause::BrowserUnavailable(why),
            error => Cause::Broken(error.to_string()),
        }
    }

    /// Nothing in the page is as one field of its description says.
    fn unmatched(&self, field: &str, selectors: &[String]) -> Cause {
        self.changed(format!("{field}: {}", selectors.join(", ")))
    }

    fn changed(&self, selector: String) -> Cause {
        Cause::PageChanged {
            provider: self.provider.name.clone(),
            selector,
            file: self.book.to_owned(),
        }
    }

    fn login_required(&self) -> Cause {
        Cause::LoginRequired { provider: self.provider.name.clone() }
    }

    fn unsent(&self, cause: Cause) -> AskError {
        self.failed(cause, Sent::No, None)
    }

    fn failed(&self, cause: Cause, sent: Sent, look: Option<&Look>) -> AskError {
        let url = look.and_then(|look| self.provider.conversation(&look.url));
        AskError { cause, sent, url, tab: Some(self.page.tab().to_owned()) }
    }
}
