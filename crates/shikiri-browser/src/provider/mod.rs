//! Providers as data: what their pages look like, where their chats are, how long to wait. Nothing
//! here knows a site by name.

mod file;
mod pattern;

use std::time::Duration;

pub(crate) use file::Book;
pub use file::DescriptionCheck;
use pattern::Pattern;
use serde::Serialize;
use url::Url;

/// How one provider's pages are used.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) is_enabled: bool,
    pub(crate) new_chat: Url,
    conversation: Vec<Pattern>,
    login: Vec<Pattern>,
    pub(crate) selectors: Selectors,
    pub(crate) times: Times,
}

/// CSS selectors; of each list the first one that matches is used, of `question` and `answer` all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Selectors {
    /// The box in which a question is typed.
    pub(crate) input: Vec<String>,
    /// The button that sends it. None: the Enter key does.
    pub(crate) send: Vec<String>,
    /// Is there while an answer is written.
    pub(crate) stop: Vec<String>,
    /// Each message of ours.
    pub(crate) question: Vec<String>,
    /// Each message of the provider.
    pub(crate) answer: Vec<String>,
    /// The parts of an answer that are its text. None: all of it.
    pub(crate) answer_text: Vec<String>,
    /// Stands below a question once its answer is complete.
    pub(crate) done: Vec<String>,
    /// Is there if nobody is logged in.
    pub(crate) login: Vec<String>,
    /// Is there if the chat was deleted.
    pub(crate) gone: Vec<String>,
    /// Buttons that close what may be in the way.
    pub(crate) dismiss: Vec<String>,
}

/// How long is waited for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// The input box, and the messages of a chat that is opened again.
    pub(crate) input: Duration,
    /// A button that sends, once the question is typed.
    pub(crate) send: Duration,
    /// A sign that the question was taken.
    pub(crate) confirm: Duration,
    /// The beginning of the answer, while nothing shows that one is written.
    pub(crate) begin: Duration,
    /// The whole answer.
    pub(crate) answer: Duration,
    /// The text has to stay the same for so long, if nothing marks it as complete.
    pub(crate) settle: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            input: Duration::from_secs(30),
            send: Duration::from_secs(20),
            confirm: Duration::from_secs(15),
            begin: Duration::from_secs(30),
            answer: Duration::from_secs(480),
            settle: Duration::from_millis(1_200),
        }
    }
}

impl Provider {
    /// The address of the conversation that a page shows, without what may follow it; None if the
    /// page is something else, or somewhere else.
    pub(crate) fn conversation(&self, address: &str) -> Option<String> {
        let plain = plain(address)?;
        self.conversation.iter().any(|pattern| pattern.matches(&plain)).then_some(plain)
    }

    pub(crate) fn is_login(&self, address: &str) -> bool {
        plain(address).is_some_and(|plain| self.login.iter().any(|p| p.matches(&plain)))
    }

    /// Whether a page is the provider's own, so that a question may be typed there.
    pub(crate) fn is_home(&self, address: &str) -> bool {
        Url::parse(address).is_ok_and(|url| url.origin() == self.new_chat.origin())
    }

    /// As the contract of lanes shows it.
    pub(crate) fn shown(&self) -> shikiri_app::lane::Provider {
        shikiri_app::lane::Provider {
            id: self.id.clone(),
            name: self.name.clone(),
            is_enabled: self.is_enabled,
        }
    }
}

/// Without query, fragment and a last slash; None for what is no web address, or carries a password.
fn plain(address: &str) -> Option<String> {
    let mut url = Url::parse(address).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https");
    if !is_web || !url.username().is_empty() || url.password().is_some() {
        return None;
    }
    url.set_query(None);
    url.set_fragment(None);
    let text = String::from(url);
    Some(text.strip_suffix('/').map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn built_in(id: &str) -> Provider {
        Book::new(Path::new("/nowhere")).find(id).unwrap().unwrap()
    }

    #[test]
    fn only_conversations_are_addresses_to_keep() {
        let chatgpt = built_in("chatgpt");
        let kept = "https://chatgpt.com/c/68f1-ab_C9";
        for same in [kept, "https://chatgpt.com/c/68f1-ab_C9/?model=x#end"] {
            assert_eq!(chatgpt.conversation(same).as_deref(), Some(kept), "{same}");
        }
        for other in [
            "https://chatgpt.com/",
            "https://chatgpt.com/c/",
            "https://chatgpt.com/c/WEB:12",
            "https://chatgpt.com/c/a/b",
            "https://chatgpt.com/c/..",
            "https://chatgpt.com.evil.example/c/abc",
            "https://evil@chatgpt.com/c/abc",
            "http://chatgpt.com/c/abc",
            "https://chatgpt.com:444/c/abc",
            "https://auth.openai.com/log-in",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "about:blank",
            "",
        ] {
            assert_eq!(chatgpt.conversation(other), None, "{other}");
        }
        let gemini = built_in("gemini");
        assert!(gemini.conversation("https://gemini.google.com/app/1a2b3c").is_some());
        assert!(gemini.conversation("https://gemini.google.com/u/1/app/1a2b3c").is_some());
        assert_eq!(gemini.conversation("https://gemini.google.com/app"), None);
        assert!(gemini.is_login("https://accounts.google.com/v3/signin/identifier?continue=x"));
        assert!(!gemini.is_login("https://gemini.google.com/app"));
        assert!(gemini.is_home("https://gemini.google.com/gem/x"));
        assert!(!gemini.is_home("https://gemini.google.com.evil.example/app"));
    }
}
