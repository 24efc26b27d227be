//! Reads the descriptions of providers: the built-in ones, merged with the project's
//! `providers.toml`. The file is read again for every question, so that a correction takes effect at
//! once. An error names the line or the field.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::map::Entry;
use toml::{Table, Value};
use url::Url;

use super::url_pattern::{UrlPattern, UrlPatternError};
use super::{PageSelectors, PageTimeouts, ProviderSpec};
use crate::error::ProviderFileError;
use crate::loopback_host::is_loopback;

const BUILT_IN: &str = include_str!("../../providers.toml");
/// A description is a few hundred bytes.
const MAX_FILE: u64 = 1024 * 1024;
const MAX_ID: usize = 40;
const MAX_SELECTOR: usize = 1_000;
const SECONDS: std::ops::RangeInclusive<f64> = 0.01..=3_600.0;

/// Decides whether a project's `providers.toml` with this text may be used.
pub type DescriptionCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// All providers of a project.
#[derive(Clone)]
pub(crate) struct ProviderCatalog {
    file: PathBuf,
    check: Option<DescriptionCheck>,
}

/// A mistake in a description: its line or field, and what is wrong there.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {reason}")]
struct ProviderEntryError {
    place: String,
    reason: String,
}

/// One provider in a file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ProviderFileEntry {
    /// What people call it.
    name: Option<String>,
    /// If false, it is not asked.
    enabled: Option<bool>,
    /// The address of a new chat.
    new_chat: Option<String>,
    /// Patterns of the addresses of chats, with `*` for a part.
    conversation: Vec<String>,
    /// Patterns of the addresses of login pages.
    login: Vec<String>,
    selectors: PageSelectors,
    seconds: TimeoutSeconds,
}

/// The JSON Schema of `providers.toml`.
pub fn provider_file_schema() -> schemars::Schema {
    schemars::schema_for!(ProviderFileEntries)
}

type ProviderFileEntries = BTreeMap<String, ProviderFileEntry>;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
/// Time limits of a question, in seconds.
struct TimeoutSeconds {
    input: f64,
    send: f64,
    confirm: f64,
    begin: f64,
    answer: f64,
    settle: f64,
}

impl Default for TimeoutSeconds {
    fn default() -> Self {
        Self { input: 30.0, send: 20.0, confirm: 15.0, begin: 30.0, answer: 480.0, settle: 1.2 }
    }
}

impl ProviderCatalog {
    /// The catalog of the project whose data lies in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { file: folder.join("providers.toml"), check: None }
    }

    /// Uses the file only while this check accepts its text.
    pub(crate) fn with_check(self, check: DescriptionCheck) -> Self {
        Self { check: Some(check), ..self }
    }

    /// The file in which a user corrects a description.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn all(&self) -> Result<Vec<ProviderSpec>, ProviderFileError> {
        let wrong = |text: String| ProviderFileError { file: self.file.clone(), text };
        let text = self.read().map_err(|error| wrong(error.to_string()))?;
        read_providers(&text).map_err(|error| wrong(error.to_string()))
    }

    /// The built-in providers, without the project's file.
    pub(crate) fn built_in() -> Vec<ProviderSpec> {
        read_providers("").unwrap_or_default()
    }

    pub(crate) fn find(&self, id: &str) -> Result<Option<ProviderSpec>, ProviderFileError> {
        Ok(self.all()?.into_iter().find(|provider| provider.id == id))
    }

    /// The text of the file; empty if there is none.
    fn read(&self) -> io::Result<String> {
        let file = match std::fs::File::open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            Err(error) => return Err(error),
        };
        let mut text = String::new();
        file.take(MAX_FILE + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_FILE {
            return Err(io::Error::other("is larger than 1 MiB"));
        }
        match self.check.as_ref().is_none_or(|accepts| accepts(&text)) {
            true => Ok(text),
            false => Err(io::Error::other("it is not trusted as it is now: run `shikiri trust`")),
        }
    }
}

/// The built-in providers, corrected by this text, and then those that it adds.
fn read_providers(text: &str) -> Result<Vec<ProviderSpec>, ProviderEntryError> {
    // Checked before merging, because only the text has lines.
    parse::<ProviderFileEntries>(text)?;
    let built_in: Table = parse(BUILT_IN)?;
    let mut all = built_in.clone();
    merge(&mut all, parse(text)?);
    let entries: ProviderFileEntries =
        Value::Table(all).try_into().map_err(|error| syntax_error("", &error))?;
    let (corrected, added): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|(id, _)| built_in.contains_key(id));
    corrected.into_iter().chain(added).map(|(id, entry)| entry.check(&id)).collect()
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, ProviderEntryError> {
    toml::from_str(text).map_err(|error| syntax_error(text, &error))
}

fn syntax_error(text: &str, error: &toml::de::Error) -> ProviderEntryError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = 1 + before.matches('\n').count();
    ProviderEntryError { place: format!("line {line}"), reason: error.message().to_owned() }
}

/// Replaces values of `base`. Tables in both are merged.
fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match base.entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(value)),
            Entry::Occupied(mut entry) => match (entry.get_mut(), value) {
                (Value::Table(base), Value::Table(over)) => merge(base, over),
                (old, new) => *old = new,
            },
        }
    }
}

impl ProviderFileEntry {
    fn check(self, id: &str) -> Result<ProviderSpec, ProviderEntryError> {
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
        if id.is_empty() || id.len() > MAX_ID || !id.chars().all(is_word) {
            return Err(ProviderEntryError {
                place: format!("{id:?}"),
                reason: format!("a provider is named with 1 to {MAX_ID} of a-z, 0-9, _ and -"),
            });
        }
        let wrong = |name: &str, reason: String| ProviderEntryError {
            place: format!("{id}.{name}"),
            reason,
        };
        let patterns = |name: &str, texts: Vec<String>| {
            let patterns = texts.iter().map(|text| UrlPattern::parse(text));
            let patterns: Result<Vec<_>, UrlPatternError> = patterns.collect();
            patterns.map_err(|error| wrong(name, error.to_string()))
        };
        let new_chat = self.new_chat.ok_or_else(|| wrong("new_chat", "is missing".to_owned()))?;
        let conversation = patterns("conversation", self.conversation)?;
        if conversation.is_empty() {
            return Err(wrong("conversation", "is empty: no chat could be found again".to_owned()));
        }
        self.selectors.check(id)?;
        Ok(ProviderSpec {
            name: self.name.unwrap_or_else(|| id.to_owned()),
            is_enabled: self.enabled.unwrap_or(true),
            new_chat: check_address(&new_chat).map_err(|reason| wrong("new_chat", reason))?,
            conversation,
            login: patterns("login", self.login)?,
            selectors: self.selectors,
            times: self.seconds.check(id)?,
            id: id.to_owned(),
        })
    }
}

/// The address of a chat: with https, or on this machine.
fn check_address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{text:?} is no address: {error}"))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if url.host().is_some_and(is_loopback) => Ok(url),
        _ => Err(format!("{text:?} does not begin with https://")),
    }
}

impl PageSelectors {
    fn check(&self, id: &str) -> Result<(), ProviderEntryError> {
        let lists = [
            ("input", &self.input, true),
            ("send", &self.send, false),
            ("stop", &self.stop, true),
            ("question", &self.question, true),
            ("answer", &self.answer, true),
            ("answer_text", &self.answer_text, false),
            ("done", &self.done, false),
            ("login", &self.login, false),
            ("gone", &self.gone, false),
            ("dismiss", &self.dismiss, false),
        ];
        for (name, list, is_needed) in lists {
            let is_bad = |s: &String| s.trim().is_empty() || s.len() > MAX_SELECTOR;
            let reason = match list.iter().position(is_bad) {
                Some(at) => format!(
                    "the selector at place {} is empty or longer than {MAX_SELECTOR} characters",
                    at + 1
                ),
                None if is_needed && list.is_empty() => "is empty".to_owned(),
                None => continue,
            };
            return Err(ProviderEntryError { place: format!("{id}.selectors.{name}"), reason });
        }
        Ok(())
    }
}

impl TimeoutSeconds {
    fn check(&self, id: &str) -> Result<PageTimeouts, ProviderEntryError> {
        let time = |name: &str, seconds: f64| match SECONDS.contains(&seconds) {
            true => Ok(Duration::from_secs_f64(seconds)),
            false => Err(ProviderEntryError {
                place: format!("{id}.seconds.{name}"),
                reason: format!(
                    "{seconds} is not between {} and {}",
                    SECONDS.start(),
                    SECONDS.end()
                ),
            }),
        };
        Ok(PageTimeouts {
            input: time("input", self.input)?,
            send: time("send", self.send)?,
            confirm: time("confirm", self.confirm)?,
            begin: time("begin", self.begin)?,
            answer: time("answer", self.answer)?,
            settle: time("settle", self.settle)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_providers_are_described() {
        let all = ProviderCatalog::built_in();
        let names: Vec<_> = all.iter().map(|p| (p.id.as_str(), p.name.as_str())).collect();
        assert_eq!(names, [("chatgpt", "ChatGPT"), ("gemini", "Gemini")]);
        assert!(all.iter().all(|provider| provider.is_enabled));
    }

    #[test]
    fn a_correction_replaces_its_field_and_nothing_else() {
        let plain = &ProviderCatalog::built_in()[0];
        let text = "[chatgpt.selectors]\nsend = [\"#go\"]\n[chatgpt.seconds]\nanswer = 2.5";
        let corrected = &read_providers(text).unwrap()[0];
        assert_eq!(corrected.selectors.send, ["#go"]);
        assert_eq!(corrected.times.answer, Duration::from_millis(2_500));
        assert_eq!(corrected.selectors.input, plain.selectors.input);
        assert_eq!(corrected.new_chat, plain.new_chat);
        assert!(!read_providers("[gemini]\nenabled = false").unwrap()[1].is_enabled);
    }

    #[test]
    fn a_file_that_is_not_accepted_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("providers.toml"), "[gemini]\nenabled = false").unwrap();
        let catalog = |accepts: bool| {
            ProviderCatalog::new(folder.path()).with_check(Arc::new(move |_| accepts))
        };
        assert!(!catalog(true).find("gemini").unwrap().unwrap().is_enabled);
        let error = catalog(false).find("gemini").unwrap_err().to_string();
        assert!(error.contains("shikiri trust"), "{error}");
    }

    #[test]
    fn a_file_adds_a_provider() {
        let text = r##"
            [mine]
            new_chat = "http://127.0.0.1:8080/"
            conversation = ["http://127.0.0.1:8080/c/*"]
            selectors = { input = ["#in"], stop = ["#stop"], question = [".q"], answer = [".a"] }
        "##;
        let all = read_providers(text).unwrap();
        assert_eq!(all[2].id, "mine");
        assert_eq!(all[2].name, "mine");
        assert_eq!(all[2].times, TimeoutSeconds::default().check("").unwrap());
    }

    #[test]
    fn an_error_names_the_line_or_the_field() {
        let mine = |fields: &str| {
            format!(
                "[mine]\nnew_chat = \"https://a.example/\"\nconversation = [\"https://a.example/*\"]\n\
                 [mine.selectors]\ninput = [\"i\"]\nstop = [\"s\"]\nquestion = [\"q\"]\n{fields}"
            )
        };
        let cases = [
            ("[chatgpt]\nnmae = \"x\"".to_owned(), "line 2: unknown field `nmae`"),
            ("[chatgpt.selectors]\ninput = \"#x\"".to_owned(), "line 2: invalid type"),
            ("[chatgpt".to_owned(), "line 1: "),
            ("[chatgpt.selectors]\ninput = []".to_owned(), "chatgpt.selectors.input: is empty"),
            (
                "[gemini.selectors]\nstop = [\"a\", \" \"]".to_owned(),
                "gemini.selectors.stop: the selector at place 2",
            ),
            ("[gemini.seconds]\ninput = -1".to_owned(), "gemini.seconds.input: -1 is not between"),
            ("[gemini.seconds]\nanswer = nan".to_owned(), "gemini.seconds.answer: NaN is not"),
            (
                "[gemini]\nnew_chat = \"file:///x\"".to_owned(),
                "gemini.new_chat: \"file:///x\" does not",
            ),
            ("[gemini]\nnew_chat = \"http://a.example\"".to_owned(), "gemini.new_chat: "),
            ("[gemini]\nlogin = [\"**\"]".to_owned(), "gemini.login: \"**\" does not begin"),
            ("[gemini]\nconversation = []".to_owned(), "gemini.conversation: is empty"),
            ("[Mine]".to_owned(), "\"Mine\": a provider is named"),
            ("[mine]".to_owned(), "mine.new_chat: is missing"),
            (mine(""), "mine.selectors.answer: is empty"),
        ];
        for (text, expected) in cases {
            let error = read_providers(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}\n→ {error}");
        }
    }
}
