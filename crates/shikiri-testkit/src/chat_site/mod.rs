//! Chat pages on loopback that behave like the real ones: rooms with configurable manners, chats
//! with addresses, streamed answers. The site records every question that reaches it, so that a
//! test can count.

mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a test waits for an expected change.
const PATIENCE: Duration = Duration::from_secs(60);

/// Characters that must never reach a terminal.
const CONTROLS: &str = " \u{1b}[31mred\u{7} \u{1b}]0;title\u{7}\u{202e}turned\u{9b}2J";

/// Stops when dropped.
#[derive(Debug)]
pub struct ChatSite {
    shared: Arc<Shared>,
    origin: String,
    serving: JoinHandle<()>,
}

/// The events on the site.
#[derive(Clone, Debug, Default)]
pub struct SiteLog {
    /// Every question that arrived, in order.
    pub sends: Vec<Arrived>,
    /// Questions and answers by chat.
    pub chats: BTreeMap<String, Vec<(String, String)>>,
    /// The page's own time from the click to the last letter, by question.
    pub own_ms: BTreeMap<String, f64>,
    deleted: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    pub room: String,
    pub chat: String,
    pub text: String,
}

#[derive(Debug)]
struct Shared {
    manners: Mutex<BTreeMap<String, Value>>,
    log: Mutex<SiteLog>,
    /// Rises with every change of the log.
    changes: watch::Sender<u64>,
    /// Answers to questions with the word `hold` continue once this is true.
    released: watch::Sender<bool>,
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, SiteLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The behaviour of a room; None if there is no such room.
    fn manner(&self, room: &str) -> Option<Value> {
        self.manners.lock().unwrap_or_else(PoisonError::into_inner).get(room).cloned()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

impl ChatSite {
    /// Starts with these rooms and their manners: see `page.html`.
    pub async fn start<'a>(rooms: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let origin = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared {
            manners: Mutex::new(rooms.into_iter().map(|(n, m)| (n.to_owned(), m)).collect()),
            log: Mutex::default(),
            changes: watch::Sender::default(),
            released: watch::Sender::default(),
        });
        let app = server::router(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("the site is served");
        });
        Self { shared, origin, serving }
    }

    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The rooms' descriptions for `providers.toml`, each a provider with the room's name. A real
    /// provider without a room here is disabled.
    pub fn providers(&self) -> String {
        let manners = self.shared.manners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut text = String::new();
        for real in ["chatgpt", "gemini"].into_iter().filter(|real| !manners.contains_key(*real)) {
            writeln!(text, "[{real}]\nenabled = false").expect("a string takes everything");
        }
        for (room, manner) in &manners {
            let base = format!("{}/{room}", self.origin);
            let send = if manner["editor"] == "enter" { "" } else { "\"#send\"" };
            let done = if manner["marked"] == true { "\".copy\"" } else { "" };
            write!(
                text,
                "[{room}]\nnew_chat = \"{base}/\"\nconversation = [\"{base}/c/*\"]\n\
                 login = [\"{base}/login\"]\n\
                 [{room}.selectors]\ninput = [\"#ask\"]\nsend = [{send}]\nstop = [\"#stop\"]\n\
                 question = [\".q\"]\nanswer = [\".a\"]\nanswer_text = [\".text\"]\n\
                 done = [{done}]\nlogin = [\"#login\"]\ngone = [\"#gone\"]\n\
                 dismiss = [\"#dialog .close\"]\n\
                 [{room}.seconds]\ninput = 20\nsettle = 0.4\n"
            )
            .expect("a string takes everything");
        }
        text
    }

    /// Changes the manner of a room's pages from now on. Open pages stay as they are.
    pub fn change(&self, room: &str, manner: Value) {
        let mut manners = self.shared.manners.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(manners.insert(room.to_owned(), manner).is_some(), "there is no room {room}");
    }

    /// The log so far.
    pub fn log(&self) -> SiteLog {
        self.shared.log().clone()
    }

    /// The number of times that a question arrived.
    pub fn count(&self, text: &str) -> usize {
        self.shared.log().sends.iter().filter(|send| send.text.trim() == text.trim()).count()
    }

    /// Waits until the log meets a condition.
    pub async fn until(&self, what: &str, is_so: impl Fn(&SiteLog) -> bool) {
        let mut changes = self.shared.changes.subscribe();
        let waiting = changes.wait_for(|_| is_so(&self.shared.log()));
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "{what} did not happen: {:?}", self.log());
    }

    /// Lets held answers continue.
    pub fn release(&self) {
        self.shared.released.send_replace(true);
    }

    /// Deletes the chat at an address.
    pub fn delete(&self, url: &str) {
        let chat = url.rsplit('/').next().unwrap_or_default().to_owned();
        self.shared.log().deleted.insert(chat);
    }

    /// The site's answer to a question. With `words=N` it has N words; with the word `controls` it
    /// has characters that control a terminal or reverse text.
    pub fn answer_to(question: &str) -> String {
        let wanted = question.split_whitespace().find_map(|w| w.strip_prefix("words="));
        let count: usize = wanted.and_then(|n| n.parse().ok()).unwrap_or(12);
        let mut text = format!("You asked: {}\n答え:", question.trim());
        for number in 1..=count {
            write!(text, " word{number}").expect("a string takes everything");
        }
        if question.split_whitespace().any(|word| word == "controls") {
            text.push_str(CONTROLS);
        }
        text
    }
}

impl Drop for ChatSite {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
