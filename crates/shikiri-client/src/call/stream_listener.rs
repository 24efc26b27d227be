//! Reads a call's stream: records its events, and answers its questions meanwhile.

use std::collections::VecDeque;

use serde_json::Value;
use shikiri_model::host::{
    CallEvent, CallLogLine, CallProgress, CallQuestion, sanitize_line, sanitize_text,
};

use super::pending_answers::{PendingAnswers, question_key};
use super::{CallFollower, FollowError};
use crate::error::ClientError;
use crate::exchange::{ExchangeItem, RequestExchange};
use crate::rpc_messages::ServerMessage;

/// Events to record in one batch.
const BATCH: usize = 64;
/// Simultaneous questions of a server. As many again are refused; further ones are not answered at
/// all.
const MAX_QUESTIONS: usize = 16;
/// The largest question. It is stored with the call, so it is bounded.
const MAX_QUESTION: usize = 256 * 1024;
/// The longest cursor that fits into a header everywhere.
const MAX_CURSOR: usize = 4 * 1024;
/// Characters of one log line.
const MAX_LOG: usize = 64 * 1024;

/// How listening to an exchange ended.
pub(super) enum ListenOutcome {
    Answer(Value),
    Error(ClientError),
    /// Nothing more comes on this stream.
    Cut(ClientError),
    Cancelled,
}

/// The position in the stream after listening.
#[derive(Default)]
pub(super) struct StreamPosition {
    pub(super) cursor: Option<String>,
    pub(super) retry_ms: Option<u64>,
    /// The number of messages, of any kind.
    pub(super) message_count: u64,
}

/// What was received in one batch.
#[derive(Default)]
struct ReceivedBatch {
    events: Vec<CallEvent>,
    questions: Vec<(Value, CallQuestion)>,
    /// Requests over the limit, which are refused.
    excess: Vec<Value>,
}

impl CallFollower<'_> {
    /// Reads an exchange to its end. Questions are answered meanwhile, independently of each other.
    pub(super) async fn listen<'a>(
        &'a self,
        id: &str,
        exchange: &mut RequestExchange,
        position: &mut StreamPosition,
        answers: &mut PendingAnswers<'a>,
    ) -> Result<ListenOutcome, FollowError> {
        loop {
            let first = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(ListenOutcome::Cancelled),
                Some(answered) = answers.next(self), if !answers.is_empty() => {
                    self.record_events(vec![answered]).await?;
                    continue;
                }
                received = exchange.next() => received,
            };
            let mut batch = ReceivedBatch::default();
            let mut end = None;
            // Everything that has already arrived is recorded in one batch.
            let mut received = VecDeque::from([first]);
            while let Some(one) = received.pop_front() {
                end = match one {
                    Ok(one) => self.handle_item(id, one, position, &mut batch, answers.len()),
                    // A message that cannot be read now cannot be read the next time either.
                    Err(why @ ClientError::Garbled(_)) => Some(ListenOutcome::Error(why)),
                    Err(why) => Some(ListenOutcome::Cut(why)),
                };
                if end.is_some() || batch.events.len() >= BATCH || batch.excess.len() >= BATCH {
                    break;
                }
                if let Some(more) = now_or_never(exchange.next()) {
                    received.push_back(more);
                }
            }
            if matches!(end, Some(ListenOutcome::Answer(_) | ListenOutcome::Error(_))) {
                // The end of the call may follow from these answers.
                batch.events.extend(answers.in_flight());
            }
            self.record_events(batch.events).await?;
            for (request, question) in batch.questions {
                answers.find(self, request, question);
            }
            for request in batch.excess {
                if answers.len() < 2 * MAX_QUESTIONS {
                    answers.refuse(self, request);
                }
            }
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Handles one item of the exchange.
    fn handle_item(
        &self,
        id: &str,
        item: ExchangeItem,
        position: &mut StreamPosition,
        batch: &mut ReceivedBatch,
        being_answered: usize,
    ) -> Option<ListenOutcome> {
        position.message_count += u64::from(item.message.is_some());
        if item.retry_ms.is_some() {
            position.retry_ms = item.retry_ms;
        }
        let mut end = None;
        match item.message {
            Some(ServerMessage::Answer { id: of, outcome }) if of == id => {
                end = Some(match outcome {
                    Ok(result) => ListenOutcome::Answer(result),
                    Err(error) => ListenOutcome::Error(ClientError::Rpc(error)),
                });
            }
            Some(ServerMessage::Notice { method, params }) => {
                batch.events.extend(notice(&method, &params));
            }
            Some(ServerMessage::Request { id: request, method, params }) => {
                let many = being_answered + batch.questions.len();
                let question = CallQuestion { key: question_key(&request), method, params };
                let is_short = question.params.to_string().len() <= MAX_QUESTION;
                if many < MAX_QUESTIONS && is_short {
                    batch.events.push(CallEvent::Asked(question.clone()));
                    batch.questions.push((request, question));
                } else {
                    batch.excess.push(request);
                }
            }
            _ => {}
        }
        // The cursor is recorded together with its event, never before it. The answer is recorded
        // with the end of the call; a process killed before that must be able to read it again.
        if let Some(cursor) = item.cursor.filter(|cursor| end.is_none() && is_sendable(cursor)) {
            batch.events.push(CallEvent::Passed { cursor: cursor.clone() });
            position.cursor = Some(cursor);
        }
        end
    }
}

/// Whether a stream can be resumed from this cursor, which is sent as a header.
fn is_sendable(cursor: &str) -> bool {
    cursor.len() <= MAX_CURSOR && !cursor.chars().any(char::is_control)
}

/// The event for a notification of the server.
fn notice(method: &str, params: &Value) -> Option<CallEvent> {
    match method {
        "notifications/progress" => Some(CallEvent::Progress(CallProgress {
            progress: params.get("progress")?.as_f64()?,
            total: params.get("total").and_then(Value::as_f64),
            message: params.get("message").and_then(Value::as_str).map(sanitize_line),
        })),
        "notifications/message" => {
            let level = params.get("level").and_then(Value::as_str).unwrap_or("info");
            let text = match params.get("data")? {
                Value::String(text) => cut(sanitize_text(text)),
                other => cut(sanitize_text(&other.to_string())),
            };
            Some(CallEvent::Log(CallLogLine { level: sanitize_line(level), text }))
        }
        _ => None,
    }
}

fn cut(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(MAX_LOG) {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// The result of a future, if it is ready now.
fn now_or_never<T>(future: impl Future<Output = T>) -> Option<T> {
    futures_util::FutureExt::now_or_never(future)
}
