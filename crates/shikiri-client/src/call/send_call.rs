//! Sends a call and resumes its stream, until there is an answer, a task or a run.

use std::time::Duration;

use serde_json::{Map, Value, json};
use shikiri_model::host::{CallEvent, CallOutcome, InputRound, RemoteTaskRef, ResumeMethod};
use tokio::time::Instant;

use super::pending_answers::PendingAnswers;
use super::stream_listener::{ListenOutcome, StreamPosition};
use super::{CallFollower, FollowError, FollowStep, RetryBackoff, STOP_TIMEOUT, lost};
use crate::error::ClientError;

/// Streams in a row that end at once without a message. Then no answer is expected any more.
const MAX_EMPTY: u32 = 8;
/// A stream that lasts longer was cut by a proxy, for example.
const AT_ONCE: Duration = Duration::from_secs(3);
/// A resumed stream that is silent for this long is opened again: some servers replay missed events
/// and then send nothing more on the stream. The time grows up to a bound.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bounds on the delay that a server may request before its stream is resumed. No delay at all
/// would be a busy loop.
const SHORTEST_RETRY_DELAY: Duration = Duration::from_millis(50);
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(60);

impl CallFollower<'_> {
    pub(super) async fn send(&self, round: InputRound) -> Result<FollowStep, FollowError> {
        let mut pauses = RetryBackoff::new();
        loop {
            if self.is_cancelled() {
                return Ok(FollowStep::Over(CallOutcome::Cancelled));
            }
            let id = self.server.next_request_id();
            let connected = CallEvent::Met {
                protocol: self.server.protocol().to_owned(),
                session: self.server.session().map(str::to_owned),
            };
            self.server.listening().await;
            self.record_events(vec![connected, CallEvent::Sending { request_id: id.clone() }])
                .await?;
            let (params, schema) = (self.params(&round), self.tool_call.schema);
            let begun = tokio::select! {
                begun = self.server.begin(&id, "tools/call", params, schema) => begun,
                // Some servers send nothing at all before they answer.
                () = self.stop.cancelled() => return self.cancel(&id).await,
            };
            let mut exchange = match begun {
                Ok(exchange) => exchange,
                // The request did not reach the server, so sending it again is not a repetition.
                Err(error @ (ClientError::Unreachable(_) | ClientError::SessionGone)) => {
                    self.record_events(vec![CallEvent::Unsent]).await?;
                    if !self.server.can_reconnect() || matches!(error, ClientError::SessionGone) {
                        return Err(FollowError::Reconnect(error));
                    }
                    tracing::debug!(%error, "the call is sent again");
                    pauses.pause_after(error, &self.stop).await?;
                    continue;
                }
                Err(why) if why.is_outcome_unknown() => return self.recover_from_loss(&round, why),
                Err(error @ ClientError::Unauthorized(_)) => {
                    self.record_events(vec![CallEvent::Unsent]).await?;
                    return Err(error.into());
                }
                Err(error) => return Err(error.into()),
            };
            let mut position = StreamPosition::default();
            let mut answers = PendingAnswers::default();
            let listened = self.listen(&id, &mut exchange, &mut position, &mut answers).await?;
            drop(exchange);
            return match listened {
                ListenOutcome::Answer(result) => self.read_answer(result, &round).await,
                ListenOutcome::Error(error) => Err(error.into()),
                ListenOutcome::Cancelled => self.cancel(&id).await,
                ListenOutcome::Cut(why) => match position.cursor.take() {
                    // Open questions stay open while the stream is resumed.
                    Some(cursor) => {
                        self.wait_requested_delay(&position).await;
                        self.resume_stream(&id, cursor, answers).await
                    }
                    None => self.recover_from_loss(&round, why),
                },
            };
        }
    }

    /// Resumes a call's stream, as often as necessary.
    pub(super) async fn resume_stream<'a>(
        &'a self,
        id: &str,
        mut cursor: String,
        mut answers: PendingAnswers<'a>,
    ) -> Result<FollowStep, FollowError> {
        let mut pauses = RetryBackoff::new();
        let mut silence_timeout = SILENCE_TIMEOUT;
        let mut empty = 0;
        loop {
            if self.is_cancelled() {
                return self.cancel(id).await;
            }
            let mut exchange = match self.server.reopen(id, &cursor).await {
                Ok(exchange) => exchange.with_silence_timeout(silence_timeout),
                Err(error) if error.is_transient() => {
                    pauses.pause_after(error, &self.stop).await?;
                    continue;
                }
                // Without valid credentials nothing is known about the stream: it may still exist.
                Err(error @ ClientError::Unauthorized(_)) => return Err(error.into()),
                Err(error) => return self.lost_cursor(error).await,
            };
            pauses.found();
            let opened = Instant::now();
            let mut position = StreamPosition::default();
            let why = match self.listen(id, &mut exchange, &mut position, &mut answers).await? {
                ListenOutcome::Answer(result) => {
                    return self.read_answer(result, &InputRound::default()).await;
                }
                ListenOutcome::Error(error) => return Err(error.into()),
                ListenOutcome::Cancelled => return self.cancel(id).await,
                ListenOutcome::Cut(why) => why,
            };
            let moved = position.cursor.take().filter(|moved| *moved != cursor);
            if position.message_count > 0 {
                empty = 0;
                silence_timeout = SILENCE_TIMEOUT;
                pauses.reset();
            } else if matches!(why, ClientError::Slow(_)) {
                silence_timeout = (silence_timeout * 2).min(LONGEST_SILENCE_TIMEOUT);
            } else if moved.is_none() && opened.elapsed() < AT_ONCE {
                empty += 1;
            }
            if empty >= MAX_EMPTY {
                let said = "it ends the call's stream again and again without an answer";
                return Err(ClientError::Garbled(said.to_owned()).into());
            }
            cursor = moved.unwrap_or(cursor);
            if !self.wait_requested_delay(&position).await {
                pauses.pause(&self.stop).await;
            }
        }
    }

    /// Waits for the delay that the server requested before its stream is resumed. False if it
    /// requested none.
    async fn wait_requested_delay(&self, position: &StreamPosition) -> bool {
        let Some(ms) = position.retry_ms else { return false };
        let delay = Duration::from_millis(ms).clamp(SHORTEST_RETRY_DELAY, LONGEST_RETRY_DELAY);
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.stop.cancelled() => {}
        }
        true
    }

    /// Handles a stream that the server no longer knows.
    async fn lost_cursor(&self, why: ClientError) -> Result<FollowStep, FollowError> {
        self.record_events(vec![CallEvent::CursorLost]).await?;
        // A server that forgot the session may have forgotten the call. Sent again, it would be a
        // new one, even at a server that recognises repeated calls.
        if matches!(why, ClientError::SessionGone) {
            return Ok(lost(&why));
        }
        self.recover_from_loss(&InputRound::default(), why)
    }

    fn params(&self, round: &InputRound) -> Value {
        let mut params = json!({
            "name": self.tool_call.tool,
            "arguments": self.tool_call.arguments,
            "_meta": { "shikiri/call": self.tool_call.key },
        });
        if !round.responses.is_empty() {
            params["inputResponses"] = Value::Object(round.responses.clone());
        }
        if let Some(state) = &round.state {
            params["requestState"] = json!(state);
        }
        params
    }

    /// The next step after the server's answer to the call.
    async fn read_answer(
        &self,
        result: Value,
        round: &InputRound,
    ) -> Result<FollowStep, FollowError> {
        let Value::Object(result) = result else {
            return Err(ClientError::Garbled("a result that is no object".to_owned()).into());
        };
        match result.get("resultType").and_then(Value::as_str) {
            Some("task") => {
                let task = task_ref(&result)?;
                self.record_events(vec![CallEvent::Task(task.clone())]).await?;
                Ok(FollowStep::Continue(ResumeMethod::Task(task)))
            }
            Some("input_required") => self.next_round(&result, round).await,
            _ => match self.parse_run_handover(&result) {
                Some(run) => {
                    self.record_events(vec![CallEvent::Run { run_id: run.clone() }]).await?;
                    Ok(FollowStep::Continue(ResumeMethod::Run(run)))
                }
                None => Ok(FollowStep::Over(CallOutcome::Answered(result))),
            },
        }
    }

    /// Cancels the call at the server.
    pub(super) async fn cancel(&self, id: &str) -> Result<FollowStep, FollowError> {
        let params = json!({ "requestId": id, "reason": "the caller gave up" });
        // In the newer era over HTTP, closing the stream cancels the call.
        if self.server.takes_cancellations() {
            let notifying = self.server.notify("notifications/cancelled", params);
            let _ = tokio::time::timeout(STOP_TIMEOUT, notifying).await;
        }
        Ok(FollowStep::Over(CallOutcome::Cancelled))
    }
}

fn task_ref(result: &Map<String, Value>) -> Result<RemoteTaskRef, FollowError> {
    let id = result.get("taskId").and_then(Value::as_str);
    let id = id.ok_or_else(|| ClientError::Garbled("a task without an id".to_owned()))?;
    Ok(RemoteTaskRef {
        id: id.to_owned(),
        poll_ms: result.get("pollIntervalMs").and_then(Value::as_u64),
    })
}
