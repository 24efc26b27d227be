//! Reads the descriptions of providers: those that are built in, and over them the project's
//! `providers.toml`. It is read again for every question, so that a correction counts at once; what
//! is wrong in it is told with its line or the name of its field.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use url::{Host, Url};

use super::pattern::Pattern;
use super::{Provider, Selectors, Times};
use crate::error::BookError;

const BUILT_IN: &str = include_str!("../../providers.toml");
/// A description is a few hundred bytes.
const MAX_FILE: u64 = 1024 * 1024;
const MAX_ID: usize = 40;
const MAX_SELECTOR: usize = 1_000;
const SECONDS: std::ops::RangeInclusive<f64> = 0.01..=3_600.0;

/// Whether the project's description of pages, with this text, may be followed.
pub type DescriptionCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// All providers of a project.
#[derive(Clone)]
pub(crate) struct Book {
    file: PathBuf,
    check: Option<DescriptionCheck>,
}

/// What a file says of one provider.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Entry {
    name: Option<String>,
    enabled: Option<bool>,
    new_chat: Option<String>,
    conversation: Option<Vec<String>>,
    login: Option<Vec<String>>,
    selectors: Lists,
    seconds: Numbers,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Lists {
    input: Option<Vec<String>>,
    send: Option<Vec<String>>,
    stop: Option<Vec<String>>,
    question: Option<Vec<String>>,
    answer: Option<Vec<String>>,
    answer_text: Option<Vec<String>>,
    done: Option<Vec<String>>,
    login: Option<Vec<String>>,
    gone: Option<Vec<String>>,
    dismiss: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Numbers {
    input: Option<f64>,
    send: Option<f64>,
    confirm: Option<f64>,
    begin: Option<f64>,
    answer: Option<f64>,
    settle: Option<f64>,
}

type Entries = BTreeMap<String, Entry>;

impl Book {
    /// Of the project whose data lies in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { file: folder.join("providers.toml"), check: None }
    }

    /// The file counts only as long as this says so of its text.
    pub(crate) fn with_check(self, check: DescriptionCheck) -> Self {
        Self { check: Some(check), ..self }
    }

    /// The file in which a person corrects what a page has changed.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn all(&self) -> Result<Vec<Provider>, BookError> {
        let wrong = |text: String| BookError { file: self.file.clone(), text };
        let ours = parse(&self.read().map_err(|error| wrong(error.to_string()))?).map_err(wrong)?;
        merged(ours).map_err(wrong)
    }

    /// Those that are built in, whatever the project's file says.
    pub(crate) fn built_in() -> Vec<Provider> {
        merged(Entries::new()).unwrap_or_default()
    }

    pub(crate) fn find(&self, id: &str) -> Result<Option<Provider>, BookError> {
        Ok(self.all()?.into_iter().find(|provider| provider.id == id))
    }

    /// Empty if there is no file.
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
            false => Err(io::Error::other("nobody agreed to it as it is now: run `shikiri trust`")),
        }
    }
}

fn parse(text: &str) -> Result<Entries, String> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        format!("line {line}: {}", error.message())
    })
}

fn merged(mut ours: Entries) -> Result<Vec<Provider>, String> {
    let mut all: Vec<(String, Entry)> = Vec::new();
    for (id, base) in parse(BUILT_IN)? {
        let entry = match ours.remove(&id) {
            Some(over) => over.over(base),
            None => base,
        };
        all.push((id, entry));
    }
    all.extend(ours);
    all.into_iter().map(|(id, entry)| entry.check(&id)).collect()
}

impl Entry {
    fn over(self, base: Self) -> Self {
        Self {
            name: self.name.or(base.name),
            enabled: self.enabled.or(base.enabled),
            new_chat: self.new_chat.or(base.new_chat),
            conversation: self.conversation.or(base.conversation),
            login: self.login.or(base.login),
            selectors: self.selectors.over(base.selectors),
            seconds: self.seconds.over(&base.seconds),
        }
    }

    fn check(self, id: &str) -> Result<Provider, String> {
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
        if id.is_empty() || id.len() > MAX_ID || !id.chars().all(is_word) {
            return Err(format!(
                "{id:?}: a provider is named with 1 to {MAX_ID} of a-z, 0-9, _ and -"
            ));
        }
        let field = |name: &str, why: String| format!("{id}.{name}: {why}");
        let patterns = |name: &str, texts: Vec<String>| -> Result<Vec<Pattern>, String> {
            texts.iter().map(|t| Pattern::parse(t).map_err(|why| field(name, why))).collect()
        };
        let new_chat = self.new_chat.ok_or_else(|| field("new_chat", "is missing".to_owned()))?;
        let conversation = patterns("conversation", self.conversation.unwrap_or_default())?;
        if conversation.is_empty() {
            return Err(field("conversation", "is empty: no chat could be found again".to_owned()));
        }
        Ok(Provider {
            name: self.name.unwrap_or_else(|| id.to_owned()),
            is_enabled: self.enabled.unwrap_or(true),
            new_chat: address(&new_chat).map_err(|why| field("new_chat", why))?,
            conversation,
            login: patterns("login", self.login.unwrap_or_default())?,
            selectors: self.selectors.check(id)?,
            times: self.seconds.check(id)?,
            id: id.to_owned(),
        })
    }
}

/// Where a question may be typed: a secure address, or one on this machine.
fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{text:?} is no address: {error}"))?;
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_here => Ok(url),
        _ => Err(format!("{text:?} does not begin with https://")),
    }
}

impl Lists {
    fn over(self, base: Self) -> Self {
        Self {
            input: self.input.or(base.input),
            send: self.send.or(base.send),
            stop: self.stop.or(base.stop),
            question: self.question.or(base.question),
            answer: self.answer.or(base.answer),
            answer_text: self.answer_text.or(base.answer_text),
            done: self.done.or(base.done),
            login: self.login.or(base.login),
            gone: self.gone.or(base.gone),
            dismiss: self.dismiss.or(base.dismiss),
        }
    }

    fn check(self, id: &str) -> Result<Selectors, String> {
        let list = |name: &str, list: Option<Vec<String>>, is_needed: bool| {
            let list = list.unwrap_or_default();
            let is_bad = |s: &String| s.trim().is_empty() || s.len() > MAX_SELECTOR;
            if is_needed && list.is_empty() {
                return Err(format!("{id}.selectors.{name}: is empty"));
            }
            match list.iter().position(is_bad) {
                Some(at) => Err(format!(
                    "{id}.selectors.{name}: the selector at place {} is empty or longer than \
                     {MAX_SELECTOR} characters",
                    at + 1
                )),
                None => Ok(list),
            }
        };
        Ok(Selectors {
            input: list("input", self.input, true)?,
            send: list("send", self.send, false)?,
            stop: list("stop", self.stop, true)?,
            question: list("question", self.question, true)?,
            answer: list("answer", self.answer, true)?,
            answer_text: list("answer_text", self.answer_text, false)?,
            done: list("done", self.done, false)?,
            login: list("login", self.login, false)?,
            gone: list("gone", self.gone, false)?,
            dismiss: list("dismiss", self.dismiss, false)?,
        })
    }
}

impl Numbers {
    fn over(self, base: &Self) -> Self {
        Self {
            input: self.input.or(base.input),
            send: self.send.or(base.send),
            confirm: self.confirm.or(base.confirm),
            begin: self.begin.or(base.begin),
            answer: self.answer.or(base.answer),
            settle: self.settle.or(base.settle),
        }
    }

    fn check(&self, id: &str) -> Result<Times, String> {
        let usual = Times::default();
        let time = |name: &str, seconds: Option<f64>, usual: Duration| match seconds {
            None => Ok(usual),
            Some(seconds) if SECONDS.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
            Some(seconds) => Err(format!(
                "{id}.seconds.{name}: {seconds} is not between {} and {}",
                SECONDS.start(),
                SECONDS.end()
            )),
        };
        Ok(Times {
            input: time("input", self.input, usual.input)?,
            send: time("send", self.send, usual.send)?,
            confirm: time("confirm", self.confirm, usual.confirm)?,
            begin: time("begin", self.begin, usual.begin)?,
            answer: time("answer", self.answer, usual.answer)?,
            settle: time("settle", self.settle, usual.settle)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<Vec<Provider>, String> {
        merged(parse(text)?)
    }

    #[test]
    fn the_two_providers_are_described() {
        let all = Book::built_in();
        let names: Vec<_> = all.iter().map(|p| (p.id.as_str(), p.name.as_str())).collect();
        assert_eq!(names, [("chatgpt", "ChatGPT"), ("gemini", "Gemini")]);
        assert!(all.iter().all(|provider| provider.is_enabled));
    }

    #[test]
    fn a_correction_replaces_its_field_and_nothing_else() {
        let plain = &Book::built_in()[0];
        let text = "[chatgpt.selectors]\nsend = [\"#go\"]\n[chatgpt.seconds]\nanswer = 2.5";
        let corrected = &with(text).unwrap()[0];
        assert_eq!(corrected.selectors.send, ["#go"]);
        assert_eq!(corrected.times.answer, Duration::from_millis(2_500));
        assert_eq!(corrected.selectors.input, plain.selectors.input);
        assert_eq!(corrected.new_chat, plain.new_chat);
        assert!(!with("[gemini]\nenabled = false").unwrap()[1].is_enabled);
    }

    #[test]
    fn a_file_that_is_not_accepted_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("providers.toml"), "[gemini]\nenabled = false").unwrap();
        let book = |accepts: bool| Book::new(folder.path()).with_check(Arc::new(move |_| accepts));
        assert!(!book(true).find("gemini").unwrap().unwrap().is_enabled);
        let told = book(false).find("gemini").unwrap_err().to_string();
        assert!(told.contains("shikiri trust"), "{told}");
    }

    #[test]
    fn a_page_of_ones_own_is_a_provider() {
        let text = r##"
            [mine]
            new_chat = "http://127.0.0.1:8080/"
            conversation = ["http://127.0.0.1:8080/c/*"]
            selectors = { input = ["#in"], stop = ["#stop"], question = [".q"], answer = [".a"] }
        "##;
        let all = with(text).unwrap();
        assert_eq!(all[2].id, "mine");
        assert_eq!(all[2].name, "mine");
        assert_eq!(all[2].times, Times::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
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
            let told = with(&text).unwrap_err();
            assert!(told.starts_with(expected), "{text}\n→ {told}");
        }
    }
}
