//! One question to the model: sent within the limits, tried again where that is worth it, told
//! while the answer comes, and kept when all of it is there.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_app::execution::EngineError;
use shikiri_model::execution::{EngineMessage, Spender, Usage};
use shikiri_model::native::{Ending, Entry, Grant, MAX_DEPTH, Reply, Reservation, ThreadId};
use uuid::Uuid;

use super::drive::Driver;
use crate::messages::{Ask, Failure, News, Prepared, Streaming, Whole};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// An API that wants to be left alone for longer than this is given up.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// A request that may be sent.
struct Granted {
    reservation: Reservation,
    grant: Grant,
    asked: Prepared,
}

/// What became of one attempt.
enum Attempt {
    Whole(Box<Whole>),
    /// It failed after this text was told.
    Cut(Failure, String),
    /// It failed, and readers have seen nothing of it.
    Nothing(Failure),
}

impl Driver {
    /// Asks until there is an answer, which is kept. An ending if there will be none.
    pub(super) async fn ask(
        &self,
        thread: &ThreadId,
        model: &str,
    ) -> Result<Option<Ending>, EngineError> {
        let mut tries = 0;
        loop {
            let granted = match self.grant(thread, model) {
                Ok(granted) => granted,
                Err(ending) => return Ok(Some(ending)),
            };
            let (reservation, capped) = (granted.reservation, granted.grant.capped);
            let attempt = self.attempt(thread, granted.asked).await;
            self.turn().release(reservation);
            match attempt {
                Attempt::Whole(whole) => {
                    let reply = self.reply(*whole, capped);
                    self.keep(Entry::Reply { thread: thread.clone(), reply }).await?;
                    return Ok(None);
                }
                Attempt::Cut(failure, text) => {
                    let text = self.redactor().text(&text);
                    self.keep(Entry::Cut { thread: thread.clone(), text }).await?;
                    return Ok((!failure.is_worth_a_retry()).then(|| ending(&failure)));
                }
                Attempt::Nothing(failure) => {
                    tries += 1;
                    if !self.may_retry(&failure, tries) {
                        return Ok(Some(ending(&failure)));
                    }
                    self.pause(&failure, tries).await;
                }
            }
        }
    }

    /// Sets aside what the request may use, and writes it.
    fn grant(&self, thread: &ThreadId, model: &str) -> Result<Granted, Ending> {
        let mut turn = self.turn();
        let system = match thread {
            None => &self.system,
            Some(_) => &self.system_of_subagents,
        };
        let tools = self.offered.definitions(turn.depth(thread) < MAX_DEPTH);
        let base = system.len() + tools.iter().map(|tool| tool.to_string().len()).sum::<usize>();
        let reserved = turn.reserve(thread, model, base as u64, self.setting.max_output);
        let (reservation, grant) = reserved.map_err(Ending::Limit)?;
        let asked = self.client.prepare(&Ask {
            model,
            max_tokens: grant.max_output,
            system,
            tools,
            messages: turn.thread(thread).map_or(&[], |thread| thread.messages()),
            thinking: self.setting.thinking,
            agent: thread.as_deref(),
        });
        let asked = asked.map_err(|failure| ending(&failure))?;
        Ok(Granted { reservation, grant, asked })
    }

    async fn attempt(&self, thread: &ThreadId, asked: Prepared) -> Attempt {
        let mut stream = match self.client.stream(asked).await {
            Ok(stream) => stream,
            Err(failure) => return Attempt::Nothing(failure),
        };
        let mut begun = None;
        let mut text = String::new();
        loop {
            match stream.next().await {
                Ok(News::Done(whole)) => {
                    self.answer_is_over();
                    return Attempt::Whole(Box::new(whole));
                }
                Ok(news) => self.hear(thread, news, &mut begun, &mut text).await,
                Err(failure) => {
                    if let Some(model) = begun {
                        self.lost(thread, &model, &stream, &failure).await;
                    }
                    return match text.is_empty() {
                        true => Attempt::Nothing(failure),
                        false => Attempt::Cut(failure, text),
                    };
                }
            }
        }
    }

    /// Tells what can be told before the answer is whole: the main thread's words.
    async fn hear(
        &self,
        thread: &ThreadId,
        news: News,
        begun: &mut Option<String>,
        text: &mut String,
    ) {
        match news {
            News::Started { id, model, usage } => {
                *begun = Some(model.clone());
                self.answer_begins();
                self.spent(thread, id, model, usage).await;
            }
            News::Text(piece) if thread.is_none() => {
                text.push_str(&piece);
                self.tell(EngineMessage::TextDelta { text: piece }).await;
            }
            News::Thought(text) if thread.is_none() => {
                self.tell(EngineMessage::Thinking { text, parent: None }).await;
            }
            News::Text(_) | News::Thought(_) | News::Done(_) => {}
        }
    }

    async fn spent(&self, thread: &ThreadId, request: String, model: String, usage: Usage) {
        let who = thread.clone().map_or(Spender::Main, Spender::Subagent);
        self.tell(EngineMessage::Spent { who, request, model, usage }).await;
    }

    /// An answer that had begun has been paid for, as far as that is known.
    async fn lost(&self, thread: &ThreadId, model: &str, stream: &Streaming, failure: &Failure) {
        self.answer_is_over();
        self.turn().spend(thread, model, &stream.usage());
        let text = format!("{failure}; the output of that reply is not known");
        self.warn("USAGE_INCOMPLETE", text).await;
    }

    fn reply(&self, whole: Whole, capped: Option<shikiri_model::native::Limit>) -> Reply {
        let Whole { id, model, mut content, stop_reason, usage } = whole;
        let redactor = self.redactor();
        for block in &mut content {
            for field in ["text", "input"] {
                if let Some(value) = block.get_mut(field) {
                    redactor.clean_value(value);
                }
            }
        }
        Reply { id, model, content, stop_reason, usage, capped }
    }

    fn may_retry(&self, failure: &Failure, tries: u32) -> bool {
        failure.is_worth_a_retry()
            && tries <= self.setting.max_retries
            && failure.retry_after().is_none_or(|wait| wait <= LONGEST_RETRY_AFTER)
    }

    /// Longer each time, unless the API says how long; and never for all at the same moment.
    async fn pause(&self, failure: &Failure, tries: u32) {
        let usual = FIRST_PAUSE.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_PAUSE);
        let chance = u32::from(Uuid::now_v7().as_bytes()[15]);
        let pause = failure.retry_after().unwrap_or(usual) + usual * chance / 1_024;
        let content = json!({
            "attempt": tries,
            "max_retries": self.setting.max_retries,
            "retry_delay_ms": u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "error": failure.to_string(),
        });
        self.tell(note("api_retry", content)).await;
        tokio::time::sleep(pause).await;
    }
}

fn note(subtype: &str, content: Value) -> EngineMessage {
    EngineMessage::Note { subtype: subtype.to_owned(), content }
}

fn ending(failure: &Failure) -> Ending {
    let text = failure.to_string();
    Ending::Stopped(match failure.is_context_full() {
        true => format!("{}: {text}", shikiri_model::native::CONTEXT_FULL),
        false => text,
    })
}
