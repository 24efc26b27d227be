//! Sending a call and reading its stream on, until there is an answer or another way to one.

use std::time::Duration;

use serde_json::{Map, Value, json};
use shikiri_model::host::{News, Outcome, Round, TaskMark, Way};
use tokio::time::Instant;

use super::answers::Answers;
use super::listen::{Ear, Mark};
use super::{Following, Next, Pauses, STOPPING, Stop, lost};
use crate::error::ClientError;

/// Streams in a row that end at once without a word: nothing will come.
const MAX_EMPTY: u32 = 8;
/// One that lasts longer was cut on the way, as proxies do.
const AT_ONCE: Duration = Duration::from_secs(3);
/// A stream that is read on and silent for so long is opened anew: there are servers that play what
/// was missed and then forget whom they play to. Longer each time, up to a bound.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_PATIENCE: Duration = Duration::from_secs(60);
/// What a server can have us wait before its stream is read on. None at all would be a mill.
const SHORTEST_WISH: Duration = Duration::from_millis(50);
const LONGEST_WISH: Duration = Duration::from_secs(60);

impl Following<'_> {
    pub(super) async fn send(&self, round: Round) -> Result<Next, Stop> {
        let mut pauses = Pauses::new();
        loop {
            if self.is_cancelled() {
                return Ok(Next::Over(Outcome::Cancelled));
            }
            let id = self.server.number();
            let met = News::Met {
                protocol: self.server.protocol().to_owned(),
                session: self.server.session().map(str::to_owned),
            };
            self.server.listening().await;
            self.note(vec![met, News::Sending { request_id: id.clone() }]).await?;
            let params = self.params(&round);
            let begun = tokio::select! {
                begun = self.server.begin(&id, "tools/call", params, self.order.schema) => begun,
                // There are servers that say nothing at all before they answer.
                () = self.stop.cancelled() => return self.cancel(&id).await,
            };
            let mut exchange = match begun {
                Ok(exchange) => exchange,
                // It did not get through: sending it again is no repetition.
                Err(error @ (ClientError::Unreachable(_) | ClientError::SessionGone)) => {
                    self.note(vec![News::Unsent]).await?;
                    if !self.server.can_return() || matches!(error, ClientError::SessionGone) {
                        return Err(Stop::Reconnect(error));
                    }
                    tracing::debug!(%error, "the call is sent again");
                    pauses.pause_after(error, &self.stop).await?;
                    continue;
                }
                Err(why) if why.leaves_in_doubt() => return self.after_loss(&round, why),
                Err(error @ ClientError::Unauthorized(_)) => {
                    self.note(vec![News::Unsent]).await?;
                    return Err(error.into());
                }
                Err(error) => return Err(error.into()),
            };
            let mut mark = Mark::default();
            let mut answers = Answers::default();
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
                    pauses.pause_after(error, &self.stop).await?;
                    continue;
                }
                // Without the right key nothing is said about the stream: it may well be there.
                Err(error @ ClientError::Unauthorized(_)) => return Err(error.into()),
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
                pauses.pause(&self.stop).await;
            }
        }
    }

    /// Waits for as long as the server wants us to before its stream is read on. False if it did
    /// not say.
    async fn wait_as_told(&self, mark: &Mark) -> bool {
        let Some(ms) = mark.retry_ms else { return false };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ms).clamp(SHORTEST_WISH, LONGEST_WISH)) => {}
            () = self.stop.cancelled() => {}
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
