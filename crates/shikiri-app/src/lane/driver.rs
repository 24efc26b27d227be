//! What puts questions to the providers' pages: the seam between lanes and a browser.
//!
//! Everything about who asks, in which chat, one at a time, and what is kept of it, is done on this
//! side. A driver knows pages: it opens a tab, types, sends, waits and reads.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use shikiri_model::ids::TenantId;
use shikiri_model::lane::{Sent, Timings};

/// What a driver promises:
///
/// - **Nothing is shared between lanes.** Each (lane, provider) has a connection and a tab of its
///   own; the caller asks there one question at a time, and in other places meanwhile.
/// - **A question is sent at most once**, whatever goes wrong, and only after
///   [`Witness::before_send`] said yes. Reading and going to a page may be tried again; sending not.
/// - **The answer belongs to the question**: what was on the page before it was sent is not it.
/// - Dropping the future of `ask` gives the question up. The next one in that place works again.
/// - A driver is never in the way of a person: a page that wants a login is reported, not passed.
#[async_trait]
pub trait PageDriver: Send + Sync + 'static {
    /// What can be asked, switched off or not, in the order in which it is shown. It may change
    /// from call to call, when a person corrects the file that describes the pages.
    fn providers(&self) -> Vec<Provider>;

    /// Puts a question to a provider and waits for the whole answer.
    async fn ask(&self, question: &Question, witness: &dyn Witness) -> Result<Asked, AskError>;

    /// The lane is over: its connections are closed, and its tabs, as far as this browser has them.
    /// `tabs` are those that the lane was known by, of this process and of earlier ones, by
    /// provider. A lane that was never here, or is closed already, is no error.
    async fn close(&self, lane: &LaneKey, tabs: &BTreeMap<String, String>);
}

/// Which lane: whose it is, and its id there (`claude-code-12345`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneKey {
    pub tenant: TenantId,
    pub lane: String,
}

impl fmt::Display for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.lane)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// As tools and records name it: `chatgpt`, `gemini`; `[a-z0-9_-]{1,40}`.
    pub id: String,
    /// For people: `ChatGPT`.
    pub name: String,
    pub is_enabled: bool,
}

#[derive(Clone, Debug)]
pub struct Question {
    pub lane: LaneKey,
    /// One of `providers()`.
    pub provider: String,
    /// 1 to 100,000 characters.
    pub text: String,
    /// The chat in which to ask, if the lane has one; a new one otherwise. It may come from a file
    /// that somebody imported: one that is not a conversation of this provider is not opened, it
    /// counts as gone.
    pub url: Option<String>,
    /// The tab in which that chat was last (a CDP target id), which may be long closed.
    pub tab: Option<String>,
}

/// Who follows a question while it is put.
#[async_trait]
pub trait Witness: Send + Sync {
    /// To be awaited as the very last thing before the question is sent: it is then written down
    /// that it is about to be. After `Err` it must not be sent, and the driver answers with
    /// [`Cause::GivenUp`].
    async fn before_send(&self) -> Result<(), NotNow>;

    /// What can be shown of the waiting. Returns at once and may be called as often as one likes.
    fn tell(&self, stage: Stage);
}

/// The question is not to be sent any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNow;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A browser is found or started, the tab opened, the page loaded.
    Connecting,
    WaitingForInput,
    Typing,
    Sending,
    /// So many characters of the answer are there.
    Answering {
        characters: usize,
    },
}

/// The answer, as the page showed it. It is untrusted text: the caller cleans and marks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub answer: String,
    /// Where the chat goes on, if the page is at a conversation by now (never a start page).
    pub url: Option<String>,
    pub tab: Option<String>,
    pub timings: Timings,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct AskError {
    pub cause: Cause,
    pub sent: Sent,
    /// As in [`Asked`]: a question that was sent may have opened a chat, though nothing was read.
    pub url: Option<String>,
    pub tab: Option<String>,
}

/// Each says the next step to whoever reads it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// A person must log in once. The chat stays the lane's.
    #[error(
        "{provider} wants a login: run `shikiri browser login`, log in by hand, then ask again"
    )]
    LoginRequired { provider: String },
    /// No browser, or none that lets itself be driven.
    #[error("no browser can be used: {0}")]
    BrowserUnavailable(String),
    /// The page does not look as its description says.
    #[error("{provider}'s page has changed: nothing matches {selector:?}; correct it in {file}")]
    PageChanged { provider: String, selector: String, file: String },
    #[error("there was no whole answer in time")]
    AnswerTimeout,
    /// The chat at `url` was deleted, or is no conversation of this provider. Not sent; asking
    /// without a url starts a new chat.
    #[error("the chat is gone")]
    ThreadGone,
    #[error("there is no provider {0:?}")]
    UnknownProvider(String),
    /// The witness said no.
    #[error("the question was given up before it was sent")]
    GivenUp,
    /// The tab was closed, the browser ended, the page lied.
    #[error("{0}")]
    Broken(String),
}

impl AskError {
    /// For what happened before anything was sent.
    pub fn unsent(cause: Cause) -> Self {
        Self { cause, sent: Sent::No, url: None, tab: None }
    }

    pub fn after_send(cause: Cause, url: Option<String>, tab: Option<String>) -> Self {
        Self { cause, sent: Sent::Yes, url, tab }
    }
}
