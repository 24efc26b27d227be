//! A provider's page in a tab of ours: looks, types, clicks, reads. What a page says is believed
//! about itself only; nothing of it is ever run or followed.

mod look;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use look::Match;
pub(crate) use look::{Look, Survey, Typed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use crate::cdp::Link;
use crate::cdp::commands::{
    CreateIsolatedWorld, DispatchKeyEvent, EnableInspector, EnablePage, EvaluateScript,
    GetFrameTree, InsertText, NavigatePage, SetFocusEmulation,
};
use crate::error::BrowserError;
use crate::provider::{Provider, Selectors};

const SCRIPT: &str = include_str!("page.js");
/// What a byte more may take to type, and a long question at most: editors that look at every change
/// need seconds for one, and a busy machine many times that.
const TYPING: Duration = Duration::from_millis(1);
const LONGEST_TYPING: Duration = Duration::from_secs(60);
/// The name of our world in a page.
const WORLD: &str = "shikiri";
/// Tries at reading and at going somewhere, and the pauses between.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(250), Duration::from_millis(500)];
/// By so much of it a question is known again.
const HEAD: usize = 400;

pub(crate) struct Page {
    link: Link,
    tab: String,
    frame: String,
    /// Where our script runs, until the page goes elsewhere.
    world: Mutex<Option<i64>>,
}

/// What our script answers when it is told to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sending {
    Sent,
    /// The box no longer holds the question.
    Changed,
    Missing,
    Disabled,
}

impl Page {
    /// Over a connection to a tab.
    pub(crate) async fn open(link: Link, tab: String) -> Result<Self, BrowserError> {
        link.run(&EnablePage {}).await?;
        link.run(&EnableInspector {}).await?;
        // Without it a page that is not in front holds back what it shows.
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

    /// Goes to an address; tried again, since nothing is changed by it.
    pub(crate) async fn go(&self, address: &Url) -> Result<(), BrowserError> {
        let mut pauses = PAUSES.iter();
        loop {
            let gone = self.link.run(&NavigatePage { url: address.as_str() }).await;
            *self.world.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let failure = match gone {
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

    pub(crate) async fn look(&self, asked: &Asked<'_>) -> Result<Look, BrowserError> {
        self.read("look", asked.arguments(json!({ "check": true }))).await
    }

    /// Looks as soon as something differs from `known`, at the latest after `time`.
    pub(crate) async fn watch(
        &self,
        asked: &Asked<'_>,
        known: &Look,
        time: Duration,
    ) -> Result<Look, BrowserError> {
        let known = serde_json::to_string(known).unwrap_or_default();
        let ms = time.as_secs_f64() * 1_000.0;
        self.read("watch", asked.arguments(json!({ "known": known, "ms": ms }))).await
    }

    pub(crate) async fn survey(&self, asked: &Asked<'_>) -> Result<Survey, BrowserError> {
        self.read("survey", asked.arguments(json!({}))).await
    }

    /// Closes what is in the way; false if there is nothing.
    pub(crate) async fn dismiss(&self, asked: &Asked<'_>) -> Result<bool, BrowserError> {
        self.read("dismiss", asked.arguments(json!({}))).await
    }

    /// False if something keeps the input box from being typed in.
    pub(crate) async fn focus(&self, asked: &Asked<'_>) -> Result<bool, BrowserError> {
        self.read("focus", asked.arguments(json!({}))).await
    }

    /// Types as a keyboard would; what is selected is replaced.
    pub(crate) async fn type_text(&self, text: &str) -> Result<(), BrowserError> {
        let longer = TYPING * u32::try_from(text.len()).unwrap_or(u32::MAX);
        let longer = longer.min(LONGEST_TYPING);
        self.link.run_longer(&InsertText { text }, longer).await.map(|_| ())
    }

    /// The same by script, for boxes that do not take the first way.
    pub(crate) async fn insert(&self, asked: &Asked<'_>, text: &str) -> Result<bool, BrowserError> {
        self.read("insert", asked.arguments(json!({ "text": text }))).await
    }

    pub(crate) async fn typed(&self, asked: &Asked<'_>, text: &str) -> Result<Typed, BrowserError> {
        self.read("typed", asked.arguments(json!({ "text": text }))).await
    }

    /// Clicks the button that sends. Never tried again: an error may mean that it was clicked.
    pub(crate) async fn send(&self, asked: &Asked<'_>) -> Result<Sending, BrowserError> {
        self.evaluate("send", &asked.arguments(json!({}))).await
    }

    /// Sends with the Enter key, for pages without a button. Never tried again.
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

    pub(crate) async fn answer(&self, asked: &Asked<'_>) -> Result<String, BrowserError> {
        self.read("read", asked.arguments(json!({}))).await
    }

    /// What may be done twice, is, when the page goes elsewhere meanwhile.
    async fn read<T: DeserializeOwned>(
        &self,
        what: &str,
        arguments: Value,
    ) -> Result<T, BrowserError> {
        let mut pauses = PAUSES.iter();
        loop {
            match (self.evaluate(what, &arguments).await, pauses.next()) {
                (Err(error), Some(pause)) if error.is_moved() || error.is_cut_off() => {
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
        if answered.as_ref().is_err_and(|e| e.is_moved() || e.is_cut_off()) {
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

/// By which a page is looked at: its selectors, and the beginning of what was or will be asked.
pub(crate) struct Asked<'a> {
    selectors: &'a Selectors,
    head: &'a str,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(provider: &'a Provider, question: &'a str) -> Self {
        let end = question.char_indices().nth(HEAD).map_or(question.len(), |(at, _)| at);
        Self { selectors: &provider.selectors, head: &question[..end] }
    }

    fn arguments(&self, more: Value) -> Value {
        #[derive(Serialize)]
        struct Arguments<'a> {
            s: &'a Selectors,
            head: &'a str,
            #[serde(flatten)]
            more: Value,
        }
        let arguments = Arguments { s: self.selectors, head: self.head, more };
        serde_json::to_value(arguments).unwrap_or_default()
    }
}
