//! A provider's page in a tab: takes snapshots, types, clicks and reads. Content of the page is
//! untrusted: it is never executed or followed.

mod page_snapshot;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use page_snapshot::SelectorMatch;
pub(crate) use page_snapshot::{PageSnapshot, SelectorSurvey, TypedText};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use crate::cdp::CdpConnection;
use crate::cdp::commands::{
    CreateIsolatedWorld, DispatchKeyEvent, EnableInspector, EnablePage, EvaluateScript,
    GetFrameTree, InsertText, NavigatePage, SetFocusEmulation,
};
use crate::error::BrowserError;
use crate::provider::{PageSelectors, ProviderSpec};

const SCRIPT: &str = include_str!("page.js");
/// Extra time per typed byte, and its limit: some editors need seconds for a long text, and a busy
/// machine many times that.
const TYPING: Duration = Duration::from_millis(1);
const LONGEST_TYPING: Duration = Duration::from_secs(60);
/// The name of the script's isolated world in a page.
const WORLD: &str = "shikiri";
/// Pauses between attempts to read and to navigate.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(250), Duration::from_millis(500)];
/// Characters by which the script recognizes the question in the page.
const HEAD: usize = 400;

pub(crate) struct BrowserPage {
    link: CdpConnection,
    tab: String,
    frame: String,
    /// The execution context of the script, until the page navigates.
    world: Mutex<Option<i64>>,
}

/// The script's answer to a request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PageSendResult {
    Sent,
    /// The input box no longer holds the question.
    Changed,
    Missing,
    Disabled,
}

impl BrowserPage {
    /// Prepares the page of a connected tab.
    pub(crate) async fn open(link: CdpConnection, tab: String) -> Result<Self, BrowserError> {
        link.run(&EnablePage {}).await?;
        link.run(&EnableInspector {}).await?;
        // Without it a background page delays its rendering.
        link.run(&SetFocusEmulation { enabled: true }).await?;
        let frame = link.run(&GetFrameTree {}).await?.frame_tree.frame.id;
        Ok(Self { frame, link, tab, world: Mutex::default() })
    }

    pub(crate) fn tab(&self) -> &str {
        &self.tab
    }

    pub(crate) fn is_open(&self) -> bool {
        self.link.is_open()
    }

    pub(crate) fn is_crashed(&self) -> bool {
        self.link.is_crashed()
    }

    /// Navigates to an address. Retried, because it changes nothing at the provider.
    pub(crate) async fn go_to(&self, address: &Url) -> Result<(), BrowserError> {
        let mut pauses = PAUSES.iter();
        loop {
            let navigated = self.link.run(&NavigatePage { url: address.as_str() }).await;
            *self.world.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let failure = match navigated {
                Ok(answer) => match answer.error_text.as_deref() {
                    None | Some("") => return Ok(()),
                    Some(why) => BrowserError::lost(format!("{address} cannot be loaded: {why}")),
                },
                Err(error @ BrowserError::Lost(_)) => return Err(error),
                Err(error) => error,
            };
            match pauses.next() {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return Err(failure),
            }
        }
    }

    pub(crate) async fn take_snapshot(
        &self,
        probe: &PageProbe<'_>,
    ) -> Result<PageSnapshot, BrowserError> {
        self.read("look", probe.arguments(json!({ "check": true }))).await
    }

    /// A snapshot as soon as the page differs from `known`, at the latest after `time`.
    pub(crate) async fn watch(
        &self,
        probe: &PageProbe<'_>,
        known: &PageSnapshot,
        time: Duration,
    ) -> Result<PageSnapshot, BrowserError> {
        let known = serde_json::to_string(known).unwrap_or_default();
        let ms = time.as_secs_f64() * 1_000.0;
        self.read("watch", probe.arguments(json!({ "known": known, "ms": ms }))).await
    }

    pub(crate) async fn survey(
        &self,
        probe: &PageProbe<'_>,
    ) -> Result<SelectorSurvey, BrowserError> {
        self.read("survey", probe.arguments(json!({}))).await
    }

    /// Closes a dialog; false if there is none.
    pub(crate) async fn dismiss(&self, probe: &PageProbe<'_>) -> Result<bool, BrowserError> {
        self.read("dismiss", probe.arguments(json!({}))).await
    }

    /// Focuses the input box; false if something prevents it.
    pub(crate) async fn focus(&self, probe: &PageProbe<'_>) -> Result<bool, BrowserError> {
        self.read("focus", probe.arguments(json!({}))).await
    }

    /// Types as a keyboard does. Replaces the selected text.
    pub(crate) async fn type_text(&self, text: &str) -> Result<(), BrowserError> {
        let longer = TYPING * u32::try_from(text.len()).unwrap_or(u32::MAX);
        let longer = longer.min(LONGEST_TYPING);
        self.link.run_longer(&InsertText { text }, longer).await.map(|_| ())
    }

    /// Inserts the text by script, for boxes that ignore typed input.
    pub(crate) async fn insert(
        &self,
        probe: &PageProbe<'_>,
        text: &str,
    ) -> Result<bool, BrowserError> {
        self.read("insert", probe.arguments(json!({ "text": text }))).await
    }

    pub(crate) async fn typed(
        &self,
        probe: &PageProbe<'_>,
        text: &str,
    ) -> Result<TypedText, BrowserError> {
        self.read("typed", probe.arguments(json!({ "text": text }))).await
    }

    /// Clicks the send button. Not retried, because an error may follow the click.
    pub(crate) async fn send(&self, probe: &PageProbe<'_>) -> Result<PageSendResult, BrowserError> {
        self.evaluate("send", &probe.arguments(json!({}))).await
    }

    /// Sends with the Enter key, for pages without a button. Not retried.
    pub(crate) async fn press_enter(&self) -> Result<(), BrowserError> {
        for (kind, text) in [("keyDown", Some("\r")), ("keyUp", None)] {
            let event = DispatchKeyEvent {
                r#type: kind,
                key: "Enter",
                code: "Enter",
                windows_virtual_key_code: 13,
                text,
            };
            self.link.run(&event).await?;
        }
        Ok(())
    }

    pub(crate) async fn answer(&self, probe: &PageProbe<'_>) -> Result<String, BrowserError> {
        self.read("read", probe.arguments(json!({}))).await
    }

    /// Runs a repeatable function of the script; retried if the page navigates meanwhile.
    async fn read<T: DeserializeOwned>(
        &self,
        what: &str,
        arguments: Value,
    ) -> Result<T, BrowserError> {
        let mut pauses = PAUSES.iter();
        loop {
            match (self.evaluate(what, &arguments).await, pauses.next()) {
                (Err(error), Some(pause))
                    if error.is_context_missing() || error.is_context_destroyed() =>
                {
                    tokio::time::sleep(*pause).await;
                }
                (done, _) => return done,
            }
        }
    }

    async fn evaluate<T: DeserializeOwned>(
        &self,
        what: &str,
        arguments: &Value,
    ) -> Result<T, BrowserError> {
        let world = self.world().await?;
        let expression = format!("({SCRIPT})({}, {arguments})", json!(what));
        let command = EvaluateScript {
            expression: &expression,
            context_id: world,
            await_promise: true,
            return_by_value: true,
            user_gesture: true,
        };
        let answered = self.link.run(&command).await;
        if answered.as_ref().is_err_and(|e| e.is_context_missing() || e.is_context_destroyed()) {
            *self.world.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        let answer = answered?;
        if let Some(thrown) = answer.exception_details {
            let text = thrown.pointer("/exception/description").and_then(Value::as_str);
            let text = text.unwrap_or("an unknown error").lines().next().unwrap_or_default();
            return Err(BrowserError::Unreadable(text.to_owned()));
        }
        let value = answer.result.value;
        if let Some(bad) = value.get("bad").and_then(Value::as_str) {
            return Err(BrowserError::BadSelector(bad.to_owned()));
        }
        serde_json::from_value(value).map_err(|error| BrowserError::Unreadable(error.to_string()))
    }

    async fn world(&self) -> Result<i64, BrowserError> {
        if let Some(world) = *self.world.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(world);
        }
        let command = CreateIsolatedWorld { frame_id: &self.frame, world_name: WORLD };
        let made = self.link.run(&command).await?.execution_context_id;
        *self.world.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        Ok(made)
    }
}

/// What the script needs to read a page: the selectors, and the start of the question.
pub(crate) struct PageProbe<'a> {
    selectors: &'a PageSelectors,
    head: &'a str,
}

impl<'a> PageProbe<'a> {
    pub(crate) fn new(provider: &'a ProviderSpec, question: &'a str) -> Self {
        let end = question.char_indices().nth(HEAD).map_or(question.len(), |(at, _)| at);
        Self { selectors: &provider.selectors, head: &question[..end] }
    }

    fn arguments(&self, more: Value) -> Value {
        #[derive(Serialize)]
        struct ScriptArguments<'a> {
            s: &'a PageSelectors,
            head: &'a str,
            #[serde(flatten)]
            more: Value,
        }
        let arguments = ScriptArguments { s: self.selectors, head: self.head, more };
        serde_json::to_value(arguments).unwrap_or_default()
    }
}
