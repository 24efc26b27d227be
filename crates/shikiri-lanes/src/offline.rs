//! Page drivers without a browser: one that always fails, and a stand-in for trials and tests.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use shikiri_model::lane::{AskTimings, SendStatus};

use super::page_driver::{
    AskError, AskErrorCause, AskStage, LaneKey, PageAnswer, PageDriver, PageQuestion, ProviderInfo,
    SendGate,
};

/// For a program without a browser.
pub struct NoBrowser;

const KNOWN: [(&str, &str); 2] = [("chatgpt", "ChatGPT"), ("gemini", "Gemini")];

fn known_providers() -> Vec<ProviderInfo> {
    let provider = |(id, name): (&str, &str)| ProviderInfo {
        id: id.to_owned(),
        name: name.to_owned(),
        is_enabled: true,
    };
    KNOWN.into_iter().map(provider).collect()
}

#[async_trait]
impl PageDriver for NoBrowser {
    fn providers(&self) -> Vec<ProviderInfo> {
        known_providers()
    }

    async fn ask(&self, _: &PageQuestion, _: &dyn SendGate) -> Result<PageAnswer, AskError> {
        let why = "this program has none; to try lanes without one, set SHIKIRI_PAGES=offline";
        Err(AskError::unsent(AskErrorCause::BrowserUnavailable(why.to_owned())))
    }

    async fn close(&self, _: &LaneKey, _: &BTreeMap<String, String>) {}
}

/// Answers every question itself, without a browser or a provider, and says so.
///
/// A line `#offline key=value …` in a question steers it: `delay_ms=N` before it answers, `chars=N`
/// for a long answer, `hang=1` never to answer, `gone=1` for a chat that was deleted, and
/// `error=login|browser|changed|timeout|broken` for each way of failing (`sent=1`: after it was
/// sent).
#[derive(Default)]
pub struct OfflinePages {
    /// A file that gets a line for each question sent, so that tests can count.
    sent_to: Option<PathBuf>,
}

impl OfflinePages {
    pub fn new(sent_to: Option<PathBuf>) -> Self {
        Self { sent_to }
    }

    fn send(&self, question: &PageQuestion, chat: &str) {
        let Some(path) = &self.sent_to else { return };
        let line = serde_json::json!({
            "lane": question.lane.lane,
            "provider": question.provider,
            "chat": chat,
            "question": question.text,
        });
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        // One write, because several processes share the file.
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        if let Err(error) = written {
            tracing::warn!(%error, "{} cannot be written", path.display());
        }
    }
}

#[async_trait]
impl PageDriver for OfflinePages {
    fn providers(&self) -> Vec<ProviderInfo> {
        known_providers()
    }

    async fn ask(
        &self,
        question: &PageQuestion,
        gate: &dyn SendGate,
    ) -> Result<PageAnswer, AskError> {
        let started = Instant::now();
        let wishes = OfflineDirectives::read(&question.text);
        gate.report_stage(AskStage::Connecting);
        if !KNOWN.iter().any(|(id, _)| *id == question.provider) {
            return Err(AskError::unsent(AskErrorCause::UnknownProvider(
                question.provider.clone(),
            )));
        }
        let failure = wishes.failure(&question.provider);
        if let Some(cause) = failure.clone().filter(|_| !wishes.is_sent) {
            return Err(AskError::unsent(cause));
        }
        if wishes.is_gone && question.url.is_some() {
            return Err(AskError::unsent(AskErrorCause::ThreadGone));
        }
        let url = question.url.clone().unwrap_or_else(|| new_chat(question));
        gate.report_stage(AskStage::Typing);
        let given_up = || AskError::unsent(AskErrorCause::GivenUp);
        gate.before_send().await.map_err(|_| given_up())?;
        self.send(question, &url);
        gate.report_stage(AskStage::Sending);
        let waited = Instant::now();
        if wishes.hangs {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(wishes.delay).await;
        let tab = Some(format!("offline-{}-{}", question.lane.lane, question.provider));
        if let Some(cause) = failure {
            return Err(AskError { cause, sent: SendStatus::Yes, url: Some(url), tab });
        }
        let answer = wishes.answer(question, &url);
        gate.report_stage(AskStage::Answering { characters: answer.chars().count() });
        let ms = |since: Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let timings = AskTimings {
            wait_response_ms: ms(waited),
            total_ms: ms(started),
            ..AskTimings::default()
        };
        Ok(PageAnswer { answer, url: Some(url), tab, timings })
    }

    async fn close(&self, _: &LaneKey, _: &BTreeMap<String, String>) {}
}

/// An address that cannot be mistaken for a provider's.
fn new_chat(question: &PageQuestion) -> String {
    let mut random = [0; 8];
    // Without randomness two chats of one lane might share an address; nothing else depends on it.
    let _ = getrandom::fill(&mut random);
    let chat = u64::from_be_bytes(random);
    format!("http://offline.invalid/{}/c/{chat:016x}", question.provider)
}

#[derive(Default)]
struct OfflineDirectives {
    delay: Duration,
    characters: usize,
    hangs: bool,
    is_gone: bool,
    is_sent: bool,
    error: Option<String>,
}

impl OfflineDirectives {
    fn read(question: &str) -> Self {
        let mut wishes = Self::default();
        let lines = question.lines().filter_map(|line| line.trim().strip_prefix("#offline "));
        for (key, value) in lines.flat_map(str::split_whitespace).filter_map(|w| w.split_once('='))
        {
            let number = value.parse::<u64>().unwrap_or(0);
            match key {
                "delay_ms" => wishes.delay = Duration::from_millis(number.min(600_000)),
                "chars" => wishes.characters = usize::try_from(number).unwrap_or(0).min(10_000_000),
                "hang" => wishes.hangs = number > 0,
                "gone" => wishes.is_gone = number > 0,
                "sent" => wishes.is_sent = number > 0,
                "error" => wishes.error = Some(value.to_owned()),
                _ => {}
            }
        }
        wishes
    }

    fn failure(&self, provider: &str) -> Option<AskErrorCause> {
        let provider = provider.to_owned();
        Some(match self.error.as_deref()? {
            "login" => AskErrorCause::LoginRequired { provider },
            "browser" => AskErrorCause::BrowserUnavailable("as the question wished".to_owned()),
            "changed" => AskErrorCause::PageChanged {
                provider,
                selector: "#prompt".to_owned(),
                file: "providers.toml".to_owned(),
            },
            "timeout" => AskErrorCause::AnswerTimeout,
            _ => AskErrorCause::Broken("the tab is gone, as the question wished".to_owned()),
        })
    }

    fn answer(&self, question: &PageQuestion, url: &str) -> String {
        let PageQuestion { lane, provider, text, .. } = question;
        let mut answer = format!(
            "This is the offline page driver: no browser was used and {provider} was not asked.\n\
             lane: {}\nchat: {url}\nquestion: {text}",
            lane.lane
        );
        let missing = self.characters.saturating_sub(answer.chars().count());
        answer.extend(std::iter::repeat_n('あ', missing));
        answer
    }
}
