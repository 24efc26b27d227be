//! Descriptions of providers: selectors of their pages, addresses of their chats, time limits. No code
//! knows a site by name.

mod provider_file;
mod url_pattern;

use std::time::Duration;

pub(crate) use provider_file::ProviderCatalog;
pub use provider_file::{DescriptionCheck, provider_file_schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;
use url_pattern::UrlPattern;

/// The checked description of one provider.
#[derive(Clone, Debug)]
pub(crate) struct ProviderSpec {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) is_enabled: bool,
    pub(crate) new_chat: Url,
    conversation: Vec<UrlPattern>,
    login: Vec<UrlPattern>,
    pub(crate) selectors: PageSelectors,
    pub(crate) times: PageTimeouts,
}

/// CSS selectors; of each list the first one that matches is used, of `question` and `answer` all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PageSelectors {
    /// The input box.
    pub(crate) input: Vec<String>,
    /// The send button. If empty, the Enter key sends.
    pub(crate) send: Vec<String>,
    /// Present while an answer is being written.
    pub(crate) stop: Vec<String>,
    /// Each message of the user.
    pub(crate) question: Vec<String>,
    /// Each message of the provider.
    pub(crate) answer: Vec<String>,
    /// The parts of an answer that are its text. If empty, all of it.
    pub(crate) answer_text: Vec<String>,
    /// Present below a question once its answer is complete.
    pub(crate) done: Vec<String>,
    /// Present if no user is logged in.
    pub(crate) login: Vec<String>,
    /// Present if the chat was deleted.
    pub(crate) gone: Vec<String>,
    /// Buttons that close dialogs.
    pub(crate) dismiss: Vec<String>,
}

/// Time limits of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageTimeouts {
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
    /// How long the text must stay the same if nothing marks it as complete.
    pub(crate) settle: Duration,
}

impl ProviderSpec {
    /// The address of the conversation that a page shows, without its query; `None` if the page shows
    /// no conversation of this provider.
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

    /// The provider as lanes report it.
    pub(crate) fn to_lane_provider(&self) -> shikiri_lanes::ProviderInfo {
        shikiri_lanes::ProviderInfo {
            id: self.id.clone(),
            name: self.name.clone(),
            is_enabled: self.is_enabled,
        }
    }
}

/// An address without query, fragment and final slash; `None` if it is no web address or holds a
/// password.
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

    fn built_in(id: &str) -> ProviderSpec {
        ProviderCatalog::new(Path::new("/nowhere")).find(id).unwrap().unwrap()
    }

    #[test]
    fn only_addresses_of_conversations_are_kept() {
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
