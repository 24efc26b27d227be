//! Sending a call and hearing what comes of it, on its own stream or on one that is read on.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Map, Value, json};
use shikiri_model::host::{
    LogLine, News, Outcome, Progress, Question, Round, TaskMark, Way, clean, clean_line,
};

use super::{Following, Next, Pauses, STOPPING, Stop, lost};
use tokio::time::Instant;

use crate::error::ClientError;
use crate::exchange::{Exchange, Heard};
use crate::wire::Message;

/// Streams in a row that end at once without a word: nothing will come.
const MAX_EMPTY: u32 = 8;
/// One that lasts longer was cut on the way, as proxies do.
const AT_ONCE: Duration = Duration::from_secs(3);
/// What one look may bring, to be kept in one go.
const BATCH: usize = 64;
/// A stream that is read on and silent for so long is opened anew: there are servers that play what
/// was missed and then forget whom they play to. Longer each time, up to a bound.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_PATIENCE: Duration = Duration::from_secs(60);
/// What a server can have us wait before its stream is read on. None at all would be a mill.
const SHORTEST_WISH: Duration = Duration::from_millis(50);
const LONGEST_WISH: Duration = Duration::from_secs(60);
/// What a server may ask at the same time. As many again are told that it is too much; beyond that,
/// it is not answered at all.
const MAX_QUESTIONS: usize = 16;
/// A question is kept with the call, so it has a bound.
const MAX_QUESTION: usize = 256 * 1024;
/// The longest cursor that fits into a header everywhere.
const MAX_CURSOR: usize = 4 * 1024;

/// How listening to an exchange ended.
enum Ear {
    Answer(Value),
    Error(ClientError),
    /// Nothing more comes on this stream.
    Cut(ClientError),
    Cancelled,
}

/// What was learnt of the stream while listening.
#[derive(Default)]
struct Mark {
    cursor: Option<String>,
    retry_ms: Option<u64>,
    /// Messages, of whatever kind.
    heard: u64,
}

/// What was heard in one go.
#[derive(Default)]
struct Batch {
    news: Vec<News>,
    questions: Vec<(Value, Question)>,
    /// Requests that are too much, and are told so.
    excess: Vec<Value>,
}

/// Answers that are being found, each in its own time. They outlive the stream on which they were
/// asked for.
pub(super) type Answers<'a> = FuturesUnordered<BoxFuture<'a, Option<News>>>;

impl Following<'_> {
    /// Takes up questions that were asked before.
    pub(super) fn answers_to(&self, questions: Vec<Question>) -> Answers<'_> {
        let answer =
            |question: Question| self.answer_question(request_id(&question.key), question).boxed();
        questions.into_iter().map(answer).collect()
    }

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
                    pauses.pause_after(error).await?;
                    continue;
                }
                Err(why @ ClientError::Cut(_)) => return self.after_loss(&round, why),
                Err(error) => return Err(error.into()),
            };
            let mut mark = Mark::default();
            let mut answers = Answers::new();
            let ear = self.listen(&id, &mut exchange, &mut mark, &mut answers).await?;
            drop(exchange);
            return match ear {
                Ear::Answer(result) => self.read_answer(result, &round).await,
                Ear::Error(error) => Err(error.into()),
                Ear::Cancelled => self.cancel(&id).await,
                Ear::Cut(why) => match mark.cursor.take() {
                    // Whoever is being asked something is not disturbed by it.
                    Some(cursor) => {
                        self.wait_as_told(&mark).await;
                        self.read_on(&id, cursor, answers).await
                    }
                    None => self.after_loss(&round, why),
                },
            };
        }
    }

    /// Reads a call's stream on, as often as it takes.
    pub(super) async fn read_on<'a>(
        &'a self,
        id: &str,
        mut cursor: String,
        mut answers: Answers<'a>,
    ) -> Result<Next, Stop> {
        let mut pauses = Pauses::new();
        let mut patience = PATIENCE;
        let mut empty = 0;
        loop {
            if self.is_cancelled() {
                return self.cancel(id).await;
            }
            let mut exchange = match self.server.reopen(id, &cursor).await {
                Ok(exchange) => exchange.with_patience(patience),
                Err(error) if error.is_passing() => {
                    pauses.pause_after(error).await?;
                    continue;
                }
                Err(error) => return self.lost_cursor(error).await,
            };
            pauses.found();
            let opened = Instant::now();
            let mut mark = Mark::default();
            let why = match self.listen(id, &mut exchange, &mut mark, &mut answers).await? {
                Ear::Answer(result) => return self.read_answer(result, &Round::default()).await,
                Ear::Error(error) => return Err(error.into()),
                Ear::Cancelled => return self.cancel(id).await,
                Ear::Cut(why) => why,
            };
            let moved = mark.cursor.take().filter(|moved| *moved != cursor);
            if mark.heard > 0 {
                empty = 0;
                patience = PATIENCE;
                pauses.reset();
            } else if matches!(why, ClientError::Slow(_)) {
                patience = (patience * 2).min(LONGEST_PATIENCE);
            } else if moved.is_none() && opened.elapsed() < AT_ONCE {
                empty += 1;
            }
            if empty >= MAX_EMPTY {
                let said = "it ends the call's stream again and again without an answer";
                return Err(ClientError::Garbled(said.to_owned()).into());
            }
            cursor = moved.unwrap_or(cursor);
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
            () = tokio::time::sleep(Duration::from_millis(ms).clamp(SHORTEST_WISH, LONGEST_WISH)) => {}
            () = self.order.cancel.cancelled() => {}
        }
        true
    }

    /// The server does not know the stream any more.
    async fn lost_cursor(&self, why: ClientError) -> Result<Next, Stop> {
        self.note(vec![News::CursorLost]).await?;
        // Whoever has forgotten the session may have forgotten the call: sent again, it would be a
        // new one, also at a server that tells calls apart.
        if matches!(why, ClientError::SessionGone) {
            return Ok(lost(&why));
        }
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
    async fn listen<'a>(
        &'a self,
        id: &str,
        exchange: &mut Exchange,
        mark: &mut Mark,
        answers: &mut Answers<'a>,
    ) -> Result<Ear, Stop> {
        loop {
            let first = tokio::select! {
                biased;
                () = self.order.cancel.cancelled() => return Ok(Ear::Cancelled),
                Some(answered) = answers.next(), if !answers.is_empty() => {
                    self.note(answered.into_iter().collect()).await?;
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
            self.note(batch.news).await?;
            for (request, question) in batch.questions {
                answers.push(self.answer_question(request, question).boxed());
            }
            for request in batch.excess {
                if answers.len() < 2 * MAX_QUESTIONS {
                    answers.push(self.refuse(request).boxed());
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

    /// Answers a request of the server on its own line.
    async fn answer_question(&self, request: Value, question: Question) -> Option<News> {
        let outcome = self.answer_to(&question).await;
        let mut pauses = Pauses::new();
        loop {
            let sent = match outcome.clone() {
                Some(outcome) => self.server.answer(&request, outcome).await,
                None => self.server.decline(&request, &question.method).await,
            };
            match sent {
                // The server waits for it, and nobody else will tell it.
                Err(error) if error.is_passing() && self.server.can_return() => {
                    tracing::debug!(%error, "an answer did not get through");
                    pauses.pause().await;
                }
                Err(error) => {
                    // Somebody else answered it, or its time was over: the stream shows what follows.
                    tracing::debug!(%error, "an answer was not taken");
                    return Some(News::Answered { key: question.key });
                }
                Ok(()) => return Some(News::Answered { key: question.key }),
            }
        }
    }

    async fn refuse(&self, request: Value) -> Option<News> {
        let _ = self.server.fail(&request, "too many questions at once, or too long a one").await;
        None
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

/// A request's id as the key of its question. What is no number stays as it is, unless it looks like
/// one: the answer must go back under the very same id.
fn question_key(request: &Value) -> String {
    match request {
        Value::String(text) if *request == request_id(text) => text.clone(),
        other => other.to_string(),
    }
}

fn request_id(key: &str) -> Value {
    match serde_json::from_str(key) {
        Ok(id @ (Value::Number(_) | Value::String(_))) => id,
        _ => json!(key),
    }
}

/// Whether a stream can be read on from there: it goes out as a header.
fn is_sendable(cursor: &str) -> bool {
    cursor.len() <= MAX_CURSOR && !cursor.chars().any(char::is_control)
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
