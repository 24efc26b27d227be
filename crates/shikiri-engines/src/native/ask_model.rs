//! Sends one request to the model within the limits: retries it, streams the answer, and stores it
//! when it is complete.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_executions::execution::EngineError;
use shikiri_model::execution::{EngineMessage, TokenSpender, TokenUsage};
use shikiri_model::native::{
    MAX_DEPTH, ModelReply, ReservationId, SpendGrant, ThreadEnding, ThreadId, TurnEntry,
};
use shikiri_model::run::WarningCode;
use uuid::Uuid;

use super::turn_driver::NativeTurnDriver;
use crate::messages::{
    AssembledMessage, ModelApiError, ModelMessageStream, ModelStreamUpdate, PreparedModelCall,
    StreamingRequest,
};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// A request is given up if the API asks to wait longer than this.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// A request that the limits allow.
struct GrantedRequest {
    reservation: ReservationId,
    grant: SpendGrant,
    asked: PreparedModelCall,
}

/// The result of one attempt.
enum ModelAttempt {
    Whole(Box<AssembledMessage>),
    /// It failed after this text was sent to readers.
    Cut(ModelApiError, String),
    /// It failed before any text was sent.
    Nothing(ModelApiError),
}

impl NativeTurnDriver {
    /// Asks until there is an answer and stores it. Returns an ending if there will be none.
    pub(super) async fn ask(
        &self,
        thread: &ThreadId,
        model: &str,
    ) -> Result<Option<ThreadEnding>, EngineError> {
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
                ModelAttempt::Whole(whole) => {
                    let reply = self.reply(*whole, capped);
                    self.persist_entry(TurnEntry::Reply { thread: thread.clone(), reply }).await?;
                    return Ok(None);
                }
                ModelAttempt::Cut(failure, text) => {
                    let text = self.redactor().text(&text);
                    self.persist_entry(TurnEntry::Cut { thread: thread.clone(), text }).await?;
                    return Ok((!failure.is_retryable()).then(|| ending(&failure)));
                }
                ModelAttempt::Nothing(failure) => {
                    tries += 1;
                    if !self.may_retry(&failure, tries) {
                        return Ok(Some(ending(&failure)));
                    }
                    self.pause(&failure, tries).await;
                }
            }
        }
    }

    /// Reserves the request's budget and prepares it.
    fn grant(&self, thread: &ThreadId, model: &str) -> Result<GrantedRequest, ThreadEnding> {
        let mut turn = self.turn();
        let system = match thread {
            None => &self.system,
            Some(_) => &self.system_of_subagents,
        };
        let tools = self.offered.definitions(turn.depth(thread) < MAX_DEPTH);
        let base = system.len() + tools.iter().map(|tool| tool.to_string().len()).sum::<usize>();
        let reserved = turn.reserve(thread, model, base as u64, self.setting.max_output);
        let (reservation, grant) = reserved.map_err(ThreadEnding::Limit)?;
        let asked = self.client.prepare(&StreamingRequest {
            model,
            max_tokens: grant.max_output,
            system,
            tools,
            messages: turn.thread(thread).map_or(&[], |thread| thread.messages()),
            thinking: self.setting.thinking,
            agent: thread.as_deref(),
        });
        let asked = asked.map_err(|failure| ending(&failure))?;
        Ok(GrantedRequest { reservation, grant, asked })
    }

    async fn attempt(&self, thread: &ThreadId, asked: PreparedModelCall) -> ModelAttempt {
        let mut stream = match self.client.stream(asked).await {
            Ok(stream) => stream,
            Err(failure) => return ModelAttempt::Nothing(failure),
        };
        let mut begun = None;
        let mut text = String::new();
        loop {
            match stream.next().await {
                Ok(ModelStreamUpdate::Done(whole)) => {
                    self.answer_is_over();
                    return ModelAttempt::Whole(Box::new(whole));
                }
                Ok(update) => self.handle_update(thread, update, &mut begun, &mut text).await,
                Err(failure) => {
                    if let Some(model) = begun {
                        self.report_lost_reply(thread, &model, &stream, &failure).await;
                    }
                    return match text.is_empty() {
                        true => ModelAttempt::Nothing(failure),
                        false => ModelAttempt::Cut(failure, text),
                    };
                }
            }
        }
    }

    /// Sends the main thread's text before the answer is complete.
    async fn handle_update(
        &self,
        thread: &ThreadId,
        update: ModelStreamUpdate,
        begun: &mut Option<String>,
        text: &mut String,
    ) {
        match update {
            ModelStreamUpdate::Started { id, model, usage } => {
                *begun = Some(model.clone());
                self.answer_begins();
                self.spent(thread, id, model, usage).await;
            }
            ModelStreamUpdate::Text(piece) if thread.is_none() => {
                text.push_str(&piece);
                self.tell(EngineMessage::TextDelta { text: piece }).await;
            }
            ModelStreamUpdate::Thought(text) if thread.is_none() => {
                self.tell(EngineMessage::Thinking { text, parent: None }).await;
            }
            ModelStreamUpdate::Text(_)
            | ModelStreamUpdate::Thought(_)
            | ModelStreamUpdate::Done(_) => {}
        }
    }

    async fn spent(&self, thread: &ThreadId, request: String, model: String, usage: TokenUsage) {
        let who = thread.clone().map_or(TokenSpender::Main, TokenSpender::Subagent);
        self.tell(EngineMessage::Spent { who, request, model, usage }).await;
    }

    /// Counts the known usage of an answer that was cut off.
    async fn report_lost_reply(
        &self,
        thread: &ThreadId,
        model: &str,
        stream: &ModelMessageStream,
        failure: &ModelApiError,
    ) {
        self.answer_is_over();
        self.turn().spend(thread, model, &stream.usage());
        let text = format!("{failure}; the output of that reply is not known");
        self.warn(WarningCode::UsageIncomplete, text).await;
    }

    fn reply(
        &self,
        whole: AssembledMessage,
        capped: Option<shikiri_model::native::LimitKind>,
    ) -> ModelReply {
        let AssembledMessage { id, model, mut content, stop_reason, usage } = whole;
        let redactor = self.redactor();
        for block in &mut content {
            for field in ["text", "input"] {
                if let Some(value) = block.get_mut(field) {
                    redactor.clean_value(value);
                }
            }
        }
        ModelReply { id, model, content, stop_reason, usage, capped }
    }

    fn may_retry(&self, failure: &ModelApiError, tries: u32) -> bool {
        failure.is_retryable()
            && tries <= self.setting.max_retries
            && failure.retry_after().is_none_or(|wait| wait <= LONGEST_RETRY_AFTER)
    }

    /// Waits with exponential backoff and jitter, or as long as the API says.
    async fn pause(&self, failure: &ModelApiError, tries: u32) {
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

fn ending(failure: &ModelApiError) -> ThreadEnding {
    let text = failure.to_string();
    ThreadEnding::Stopped(match failure.is_context_full() {
        true => format!("{}: {text}", shikiri_model::native::CONTEXT_FULL),
        false => text,
    })
}
