//! Sending a call and hearing what comes of it, on its own stream or on one that is read on.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Map, Value, json};
use shikiri_model::host::{
    LogLine, News, Outcome, Progress, Question, Round, TaskMark, Way, clean, clean_line,
};

use super::{Following, Next, Pauses, STOPPING, Stop};
use crate::error::ClientError;
use crate::exchange::{Exchange, Heard};
use crate::wire::{Message, key};

/// Streams in a row that end without a word: nothing will come.
const MAX_EMPTY: u32 = 20;
/// What one look may bring, to be kept in one go.
const BATCH: usize = 64;
/// The longest that a server can have us wait before its stream is read on.
const LONGEST_WISH: Duration = Duration::from_secs(60);
/// What a server may ask at the same time.
const MAX_QUESTIONS: usize = 16;

/// How listening to an exchange ended.
enum Ear {
    Answer(Value),
    Error(ClientError),
    /// Nothing more comes on this stream.
    Cut(ClientError),
    /// Nothing came for as long as was waited.
    Quiet,
    Cancelled,
}

/// What was learnt of the stream while listening.
#[derive(Default)]
struct Mark {
    cursor: Option<String>,
    retry_ms: Option<u64>,
    heard: u64,
}

impl Following<'_> {
    pub(super) async fn send(&self, round: Round) -> Result<Next, Stop> {
        let mut pauses = Pauses::new();
        loop {
            let id = self.server.number();
            let met = News::Met {
                protocol: self.server.protocol().to_owned(),
                session: self.server.session().map(str::to_owned),
            };
            self.server.listening().await;
            self.note(vec![met, News::Sending { request_id: id.clone() }]).await?;
            let begun =
                self.server.begin(&id, "tools/call", self.params(&round), self.order.schema).await;
            let mut exchange = match begun {
                Ok(exchange) => exchange,
                // It did not get through: sending it again is no repetition.
                Err(error @ (ClientError::Unreachable(_) | ClientError::SessionGone)) => {
                    self.note(vec![News::Unsent]).await?;
                    if !self.server.can_return() || matches!(error, ClientError::SessionGone) {
                        return Err(Stop::Reconnect(error));
                    }
                    tracing::debug!(%error, "the call is sent again");
                    pauses.pause().await;
                    continue;
                }
                Err(why @ ClientError::Cut(_)) => return self.after_loss(&round, why),
                Err(error) => return Err(error.into()),
            };
            let mut mark = Mark::default();
            let ear = self.listen(&id, &mut exchange, &mut mark, Vec::new(), PATIENCE).await?;
            drop(exchange);
            return match ear {
                Ear::Answer(result) => self.read_answer(result, &round).await,
                Ear::Error(error) => Err(error.into()),
                Ear::Cancelled => self.cancel(&id).await,
                Ear::Cut(why) => match mark.cursor.take() {
                    Some(cursor) => {
                        self.wait_as_told(&mark).await;
                        Ok(Next::Way(Way::Stream {
                            session: self.server.session().map(str::to_owned),
                            request_id: id,
                            cursor,
                        }))
                    }
                    None => self.after_loss(&round, why),
                },
            };
        }
    }

    /// Reads a call's stream on, as often as it takes.
    pub(super) async fn read_on(
        &self,
        id: &str,
        mut cursor: String,
        mut waiting: Vec<Question>,
    ) -> Result<Next, Stop> {
        let mut pauses = Pauses::new();
        let mut empty = 0;
        loop {
            if self.is_cancelled() {
                return self.cancel(id).await;
            }
            let mut mark = Mark::default();
            let ear = match self.server.reopen(id, &cursor).await {
                Ok(mut exchange) => {
                    let asked = std::mem::take(&mut waiting);
                    self.listen(id, &mut exchange, &mut mark, asked).await?
                }
                Err(error) if error.is_passing() => Ear::Cut(error),
                Err(error) => return self.lost_cursor(error).await,
            };
            match ear {
                Ear::Answer(result) => return self.read_answer(result, &Round::default()).await,
                Ear::Error(error) => return Err(error.into()),
                Ear::Cancelled => return self.cancel(id).await,
                Ear::Cut(why) if mark.heard == 0 => {
                    if matches!(why, ClientError::Cut(_)) {
                        empty += 1;
                    }
                    if empty >= MAX_EMPTY {
                        let said = "it ends the call's stream again and again without an answer";
                        return Err(ClientError::Garbled(said.to_owned()).into());
                    }
                }
                Ear::Cut(_) => {
                    empty = 0;
                    pauses.reset();
                }
            }
            if let Some(moved) = mark.cursor.take() {
                cursor = moved;
            }
            if !self.wait_as_told(&mark).await {
                pauses.pause().await;
            }
        }
    }

    /// Waits for as long as the server wants us to before its stream is read on. False if it did
    /// not say.
    async fn wait_as_told(&self, mark: &Mark) -> bool {
        let Some(ms) = mark.retry_ms else { return false };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ms).min(LONGEST_WISH)) => {}
            () = self.order.cancel.cancelled() => {}
        }
        true
    }

    /// The server does not know the stream any more.
    async fn lost_cursor(&self, why: ClientError) -> Result<Next, Stop> {
        self.note(vec![News::CursorLost]).await?;
        self.after_loss(&Round::default(), why)
    }

    fn params(&self, round: &Round) -> Value {
        let mut params = json!({
            "name": self.order.tool,
            "arguments": self.order.arguments,
            "_meta": { "shikiri/call": self.order.key },
        });
        if !round.responses.is_empty() {
            params["inputResponses"] = Value::Object(round.responses.clone());
        }
        if let Some(state) = &round.state {
            params["requestState"] = json!(state);
        }
        params
    }

    /// Hears an exchange out. Questions are answered meanwhile, each in its own time.
    async fn listen(
        &self,
        id: &str,
        exchange: &mut Exchange,
        mark: &mut Mark,
        waiting: Vec<Question>,
    ) -> Result<Ear, Stop> {
        let mut answers = FuturesUnordered::new();
        for question in waiting {
            answers.push(self.answer_question(json!(question.key), question));
        }
        loop {
            let first = tokio::select! {
                biased;
                () = self.order.cancel.cancelled() => return Ok(Ear::Cancelled),
                Some(answered) = answers.next(), if !answers.is_empty() => {
                    let answered: Result<News, Stop> = answered;
                    self.note(vec![answered?]).await?;
                    continue;
                }
                heard = exchange.next() => heard,
            };
            let mut news = Vec::new();
            let mut questions = Vec::new();
            let mut end = None;
            // Whatever is there already is kept in one go.
            let mut heard = VecDeque::from([first]);
            while let Some(one) = heard.pop_front() {
                end = match one {
                    Ok(one) => self.take(id, one, mark, &mut news, &mut questions),
                    Err(why) => Some(Ear::Cut(why)),
                };
                if end.is_some() || news.len() >= BATCH {
                    break;
                }
                if let Some(more) = now_or_never(exchange.next()) {
                    heard.push_back(more);
                }
            }
            self.note(news).await?;
            for (request, question) in questions {
                if answers.len() >= MAX_QUESTIONS {
                    let _ = self.server.fail(&request, "too many questions at once").await;
                    continue;
                }
                answers.push(self.answer_question(request, question));
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
        news: &mut Vec<News>,
        questions: &mut Vec<(Value, Question)>,
    ) -> Option<Ear> {
        mark.heard += 1;
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
            Some(Message::Notice { method, params }) => news.extend(notice(&method, &params)),
            Some(Message::Request { id: request, method, params }) => {
                if let Some(key) = key(&request) {
                    let question = Question { key, method, params };
                    news.push(News::Asked(question.clone()));
                    questions.push((request, question));
                }
            }
            _ => {}
        }
        // Kept with what it stands behind, never before it.
        if let Some(cursor) = heard.cursor {
            news.push(News::Passed { cursor: cursor.clone() });
            mark.cursor = Some(cursor);
        }
        end
    }

    /// Answers a request of the server on its own line.
    async fn answer_question(&self, request: Value, question: Question) -> Result<News, Stop> {
        let outcome = self.answer_to(&question).await;
        let sent = match outcome {
            Some(outcome) => self.server.answer(&request, outcome).await,
            None => self.server.decline(&request, &question.method).await,
        };
        if let Err(error) = sent {
            // The question stays open in the bookmark; the stream will show what became of it.
            tracing::debug!(%error, "an answer did not get through");
        }
        Ok(News::Answered { key: question.key })
    }

    /// What the server's answer to the call leads to.
    async fn read_answer(&self, result: Value, round: &Round) -> Result<Next, Stop> {
        let Value::Object(result) = result else {
            return Err(ClientError::Garbled("a result that is no object".to_owned()).into());
        };
        match result.get("resultType").and_then(Value::as_str) {
            Some("task") => {
                let task = task_mark(&result)?;
                self.note(vec![News::Task(task.clone())]).await?;
                Ok(Next::Way(Way::Task(task)))
            }
            Some("input_required") => self.next_round(&result, round).await,
            _ => match self.run_of(&result) {
                Some(run) => {
                    self.note(vec![News::Run { run_id: run.clone() }]).await?;
                    Ok(Next::Way(Way::Run(run)))
                }
                None => Ok(Next::Over(Outcome::Answered(result))),
            },
        }
    }

    /// Says that nobody waits any more, and lets the server take note.
    pub(super) async fn cancel(&self, id: &str) -> Result<Next, Stop> {
        let params = json!({ "requestId": id, "reason": "the caller gave up" });
        // In the newer era over HTTP, leaving the stream says it.
        if self.server.takes_cancellations() {
            let telling = self.server.notify("notifications/cancelled", params);
            let _ = tokio::time::timeout(STOPPING, telling).await;
        }
        Ok(Next::Over(Outcome::Cancelled))
    }
}

fn task_mark(result: &Map<String, Value>) -> Result<TaskMark, Stop> {
    let id = result.get("taskId").and_then(Value::as_str);
    let id = id.ok_or_else(|| ClientError::Garbled("a task without an id".to_owned()))?;
    Ok(TaskMark {
        id: id.to_owned(),
        poll_ms: result.get("pollIntervalMs").and_then(Value::as_u64),
    })
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
                Value::String(text) => clean(text),
                other => clean(&other.to_string()),
            };
            Some(News::Log(LogLine { level: clean_line(level), text }))
        }
        _ => None,
    }
}

/// What is there without waiting.
fn now_or_never<T>(future: impl Future<Output = T>) -> Option<T> {
    futures_util::FutureExt::now_or_never(future)
}
