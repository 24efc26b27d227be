//! The interface between lanes and a browser.
//!
//! This side decides who asks, in which chat and in which order, and what is stored. A driver knows
//! pages: it opens a tab, types, sends, waits and reads.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use shikiri_model::ids::TenantId;
use shikiri_model::lane::{AskTimings, SendStatus};

/// The contract of a driver:
///
/// - **Nothing is shared between lanes.** Each (lane, provider) has a connection and a tab of its
///   own. The caller asks one question at a time there, and may ask in other lanes meanwhile.
/// - **A question is sent at most once**, whatever goes wrong, and only after
///   [`SendGate::before_send`] returned `Ok`. Reading and navigating may be retried; sending may
///   not.
/// - **The answer belongs to the question**: text that was on the page before is not part of it.
/// - Dropping the future of `ask` cancels the question. The next one in that lane works again.
/// - A driver never works around a person: a page that wants a login is reported, not bypassed.
#[async_trait]
pub trait PageDriver: Send + Sync + 'static {
    /// The providers in display order, including disabled ones. The list may change between calls,
    /// when a person corrects the file that describes the pages.
    fn providers(&self) -> Vec<ProviderInfo>;

    /// Asks a provider a question and waits for the whole answer.
    async fn ask(
        &self,
        question: &PageQuestion,
        gate: &dyn SendGate,
    ) -> Result<PageAnswer, AskError>;

    /// Closes the connections of a lane that has ended, and its tabs, as far as this browser has
    /// them. `tabs` are the lane's known tabs by provider, of this process and of earlier ones. An
    /// unknown or closed lane is no error.
    async fn close(&self, lane: &LaneKey, tabs: &BTreeMap<String, String>);
}

/// A lane's owner, and its id there (`claude-code-12345`).
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
pub struct ProviderInfo {
    /// The id in tools and records: `chatgpt`, `gemini`; `[a-z0-9_-]{1,40}`.
    pub id: String,
    /// The display name: `ChatGPT`.
    pub name: String,
    pub is_enabled: bool,
}

#[derive(Clone, Debug)]
pub struct PageQuestion {
    pub lane: LaneKey,
    /// One of `providers()`.
    pub provider: String,
    /// 1 to 100,000 characters.
    pub text: String,
    /// The chat in which to ask; without one a new chat is started. The address may come from an
    /// imported file. One that is not a conversation of this provider is not opened and counts as
    /// gone.
    pub url: Option<String>,
    /// The last tab of that chat (a CDP target id), which may be long closed.
    pub tab: Option<String>,
}

/// Follows a question while it is asked.
#[async_trait]
pub trait SendGate: Send + Sync {
    /// Must be awaited immediately before the question is sent: it records that. After `Err` the
    /// question must not be sent, and the driver returns [`AskErrorCause::GivenUp`].
    async fn before_send(&self) -> Result<(), SendRefusal>;

    /// Reports progress. Returns at once and may be called any number of times.
    fn report_stage(&self, stage: AskStage);
}

/// The question must not be sent any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRefusal;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskStage {
    /// A browser is found or started, the tab opened, the page loaded.
    Connecting,
    WaitingForInput,
    Typing,
    Sending,
    /// This many characters of the answer have arrived.
    Answering {
        characters: usize,
    },
}

/// The answer, as the page showed it. It is untrusted text: the caller cleans and marks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageAnswer {
    pub answer: String,
    /// The chat's address, if the page is at a conversation by now (never a start page).
    pub url: Option<String>,
    pub tab: Option<String>,
    pub timings: AskTimings,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct AskError {
    pub cause: AskErrorCause,
    pub sent: SendStatus,
    /// As in [`PageAnswer`]: a sent question may have opened a chat although nothing was read.
    pub url: Option<String>,
    pub tab: Option<String>,
}

/// Each message names the next step for its reader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskErrorCause {
    /// A person must log in once. The lane keeps the chat.
    #[error(
        "{provider} wants a login: run `shikiri browser login`, log in by hand, then ask again"
    )]
    LoginRequired { provider: String },
    /// There is no usable browser.
    #[error("no browser can be used: {0}")]
    BrowserUnavailable(String),
    /// The page does not match its description.
    #[error("{provider}'s page has changed: nothing matches {selector:?}; correct it in {file}")]
    PageChanged { provider: String, selector: String, file: String },
    #[error("there was no whole answer in time")]
    AnswerTimeout,
    /// The chat at `url` was deleted, or is no conversation of this provider. Nothing was sent;
    /// asking without a url starts a new chat.
    #[error("the chat is gone")]
    ThreadGone,
    #[error("there is no provider {0:?}")]
    UnknownProvider(String),
    /// The send gate refused.
    #[error("the question was given up before it was sent")]
    GivenUp,
    /// The tab was closed, the browser ended, or the page misbehaved.
    #[error("{0}")]
    Broken(String),
}

impl AskError {
    /// An error from before anything was sent.
    pub fn unsent(cause: AskErrorCause) -> Self {
        Self { cause, sent: SendStatus::No, url: None, tab: None }
    }

    pub fn after_send(cause: AskErrorCause, url: Option<String>, tab: Option<String>) -> Self {
        Self { cause, sent: SendStatus::Yes, url, tab }
    }
}
