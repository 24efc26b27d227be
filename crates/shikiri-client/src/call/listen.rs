//! Hearing a call out: what comes on its stream is kept, and what it asks is answered meanwhile.

use std::collections::VecDeque;

use serde_json::Value;
use shikiri_model::host::{LogLine, News, Progress, Question, clean, clean_line};

use super::answers::{Answers, question_key};
use super::{Following, Stop};
use crate::error::ClientError;
use crate::exchange::{Exchange, Heard};
use crate::wire::Message;

/// What one look may bring, to be kept in one go.
const BATCH: usize = 64;
/// What a server may ask at the same time. As many again are told that it is too much; beyond that,
/// it is not answered at all.
const MAX_QUESTIONS: usize = 16;
/// A question is kept with the call, so it has a bound.
const MAX_QUESTION: usize = 256 * 1024;
/// The longest cursor that fits into a header everywhere.
const MAX_CURSOR: usize = 4 * 1024;
/// Characters of one line of a log.
const MAX_LOG: usize = 64 * 1024;

/// How listening to an exchange ended.
pub(super) enum Ear {
    Answer(Value),
    Error(ClientError),
    /// Nothing more comes on this stream.
    Cut(ClientError),
    Cancelled,
}

/// What was learnt of the stream while listening.
#[derive(Default)]
pub(super) struct Mark {
    pub(super) cursor: Option<String>,
    pub(super) retry_ms: Option<u64>,
    /// Messages, of whatever kind.
    pub(super) heard: u64,
}

/// What was heard in one go.
#[derive(Default)]
struct Batch {
    news: Vec<News>,
    questions: Vec<(Value, Question)>,
    /// Requests that are too much, and are told so.
    excess: Vec<Value>,
}

impl Following<'_> {
    /// Hears an exchange out. Questions are answered meanwhile, each in its own time.
    pub(super) async fn listen<'a>(
        &'a self,
        id: &str,
        exchange: &mut Exchange,
        mark: &mut Mark,
        answers: &mut Answers<'a>,
    ) -> Result<Ear, Stop> {
        loop {
            let first = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(Ear::Cancelled),
                Some(answered) = answers.next(self), if !answers.is_empty() => {
                    self.note(vec![answered]).await?;
                    continue;
                }
                heard = exchange.next() => heard,
            };
            let mut batch = Batch::default();
            let mut end = None;
            // Whatever is there already is kept in one go.
            let mut heard = VecDeque::from([first]);
            while let Some(one) = heard.pop_front() {
                end = match one {
                    Ok(one) => self.take(id, one, mark, &mut batch, answers.len()),
                    // What cannot be understood now will not be the next time.
                    Err(why @ ClientError::Garbled(_)) => Some(Ear::Error(why)),
                    Err(why) => Some(Ear::Cut(why)),
                };
                if end.is_some() || batch.news.len() >= BATCH || batch.excess.len() >= BATCH {
                    break;
                }
                if let Some(more) = now_or_never(exchange.next()) {
                    heard.push_back(more);
                }
            }
            if matches!(end, Some(Ear::Answer(_) | Ear::Error(_))) {
                // What the call ended with may well follow from them.
                batch.news.extend(answers.on_their_way());
            }
            self.note(batch.news).await?;
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

    /// What one thing that was heard means.
    fn take(
        &self,
        id: &str,
        heard: Heard,
        mark: &mut Mark,
        batch: &mut Batch,
        being_answered: usize,
    ) -> Option<Ear> {
        mark.heard += u64::from(heard.message.is_some());
        if heard.retry_ms.is_some() {
            mark.retry_ms = heard.retry_ms;
        }
        let mut end = None;
        match heard.message {
            Some(Message::Answer { id: of, outcome }) if of == id => {
                end = Some(match outcome {
                    Ok(result) => Ear::Answer(result),
                    Err(error) => Ear::Error(ClientError::Rpc(error)),
                });
            }
            Some(Message::Notice { method, params }) => {
                batch.news.extend(notice(&method, &params));
            }
            Some(Message::Request { id: request, method, params }) => {
                let many = being_answered + batch.questions.len();
                let question = Question { key: question_key(&request), method, params };
                let is_short = question.params.to_string().len() <= MAX_QUESTION;
                if many < MAX_QUESTIONS && is_short {
                    batch.news.push(News::Asked(question.clone()));
                    batch.questions.push((request, question));
                } else {
                    batch.excess.push(request);
                }
            }
            _ => {}
        }
        // Kept with what it stands behind, never before it: the answer is kept with the end of the
        // call, and whoever is killed before that must find it again.
        if let Some(cursor) = heard.cursor.filter(|cursor| end.is_none() && is_sendable(cursor)) {
            batch.news.push(News::Passed { cursor: cursor.clone() });
            mark.cursor = Some(cursor);
        }
        end
    }
}

/// Whether a stream can be read on from there: it goes out as a header.
fn is_sendable(cursor: &str) -> bool {
    cursor.len() <= MAX_CURSOR && !cursor.chars().any(char::is_control)
}

/// What a server tells by the way.
fn notice(method: &str, params: &Value) -> Option<News> {
    match method {
        "notifications/progress" => Some(News::Progress(Progress {
            progress: params.get("progress")?.as_f64()?,
            total: params.get("total").and_then(Value::as_f64),
            message: params.get("message").and_then(Value::as_str).map(clean_line),
        })),
        "notifications/message" => {
            let level = params.get("level").and_then(Value::as_str).unwrap_or("info");
            let text = match params.get("data")? {
                Value::String(text) => cut(clean(text)),
                other => cut(clean(&other.to_string())),
            };
            Some(News::Log(LogLine { level: clean_line(level), text }))
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

/// What is there without waiting.
fn now_or_never<T>(future: impl Future<Output = T>) -> Option<T> {
    futures_util::FutureExt::now_or_never(future)
}
