//! Follows a call from sending it to its end, or from where another process left it.
//!
//! ```text
//!          ┌────────── the next round ─────────┐
//! Send ────┴─ stream cut ─→ Stream ─→ answer   │
//!   ├─ became a task ─────→ Task ───→ answer   │
//!   ├─ became a run ──────→ Run ────→ answer   │
//!   └─ asks for input ──────────────→ answers ─┘
//! ```

mod follow_run;
mod follow_task;
mod input_requests;
mod pending_answers;
mod send_call;
mod stream_listener;

use std::time::Duration;

use serde_json::{Map, Value};
use shikiri_model::host::{CallEvent, CallOutcome, InputRound, ResumeMethod, ResumePoint};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::pending_answers::PendingAnswers;
use crate::call_handler::{CallHandler, CallOwnershipLost};
use crate::error::ClientError;
use crate::server::ServerConnection;

/// Pauses between two attempts grow from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The longest wait for an unreachable server. The call can be resumed later.
const MAX_AWAY: Duration = Duration::from_secs(40);
/// Timeout of a short request. It is repeated after that.
const SHORT_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server may take to acknowledge a cancellation.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The tool call to make.
pub struct ClientToolCall<'a> {
    pub tool: &'a str,
    /// The schema of the arguments, if it is known.
    pub schema: Option<&'a Value>,
    pub arguments: &'a Map<String, Value>,
    /// Whether sending it twice is harmless.
    pub repeatable: bool,
    /// The same key each time this call is sent, so that servers can recognise a repetition.
    pub key: &'a str,
    /// The point from which to resume it.
    pub bookmark: &'a ResumePoint,
    /// When the call fails without an answer.
    pub deadline: Instant,
    pub cancel: &'a CancellationToken,
}

/// How following a call ended.
#[derive(Debug)]
pub enum FollowOutcome {
    /// The call is over, and its handler has recorded the outcome.
    Over(CallOutcome),
    /// The call continues, but no longer in this process.
    LetGo(CallOwnershipLost),
    /// The connection is unusable. The call can be resumed over another one from its bookmark.
    Reconnect(ClientError),
    /// The server cannot be reached for now. The call can be resumed later.
    Away(ClientError),
}

/// What follows after one step.
enum FollowStep {
    Continue(ResumeMethod),
    Over(CallOutcome),
}

/// Why a step failed.
enum FollowError {
    LetGo(CallOwnershipLost),
    Failed(ClientError),
    Reconnect(ClientError),
    Away(ClientError),
}

impl From<CallOwnershipLost> for FollowError {
    fn from(let_go: CallOwnershipLost) -> Self {
        Self::LetGo(let_go)
    }
}

impl From<ClientError> for FollowError {
    fn from(error: ClientError) -> Self {
        match error {
            // The call can still be resumed with valid credentials.
            ClientError::Unauthorized(_) => Self::Away(error),
            other => Self::Failed(other),
        }
    }
}

/// One call that is being followed.
struct CallFollower<'a> {
    server: &'a ServerConnection,
    tool_call: &'a ClientToolCall<'a>,
    handler: &'a dyn CallHandler,
    /// Cancelled when the caller gives up or the deadline passes.
    stop: CancellationToken,
}

/// Follows a call to its end. May be dropped at any time: the recorded events allow resuming it.
pub async fn follow_call(
    server: &ServerConnection,
    tool_call: &ClientToolCall<'_>,
    handler: &dyn CallHandler,
) -> FollowOutcome {
    let stop = tool_call.cancel.child_token();
    let follower = CallFollower { server, tool_call, handler, stop: stop.clone() };
    let mut running = std::pin::pin!(follower.run_to_end());
    let outcome = tokio::select! {
        outcome = &mut running => outcome,
        () = tokio::time::sleep_until(tool_call.deadline) => {
            // Cancel the call at the server, as if the caller had given up.
            stop.cancel();
            outcome_after_deadline(tokio::time::timeout(2 * STOP_TIMEOUT, &mut running).await.ok())
        }
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(FollowError::LetGo(let_go)) => return FollowOutcome::LetGo(let_go),
        Err(FollowError::Reconnect(why)) => return FollowOutcome::Reconnect(why),
        Err(FollowError::Away(why)) => return FollowOutcome::Away(why),
        Err(FollowError::Failed(error)) => CallOutcome::Failed { reason: error.to_string() },
    };
    match handler.record_events(vec![CallEvent::Ended(outcome.clone())]).await {
        Ok(()) => FollowOutcome::Over(outcome),
        Err(let_go) => FollowOutcome::LetGo(let_go),
    }
}

/// The outcome of a call that was stopped at its deadline.
fn outcome_after_deadline(
    ended: Option<Result<CallOutcome, FollowError>>,
) -> Result<CallOutcome, FollowError> {
    match ended {
        // The answer crossed the cancellation.
        Some(Ok(answered @ CallOutcome::Answered(_))) => Ok(answered),
        Some(Err(let_go @ FollowError::LetGo(_))) => Err(let_go),
        _ => Ok(CallOutcome::Failed { reason: "it had no answer by its time limit".to_owned() }),
    }
}

impl CallFollower<'_> {
    async fn run_to_end(&self) -> Result<CallOutcome, FollowError> {
        let mut method = self.tool_call.bookmark.resume_method(self.tool_call.repeatable);
        // Questions that were still open in the other process.
        let mut waiting: Vec<_> = self.tool_call.bookmark.questions.values().cloned().collect();
        loop {
            let next = match method {
                ResumeMethod::Send(round) => self.send(round.unwrap_or_default()).await?,
                ResumeMethod::Stream { request_id, cursor, .. } => {
                    let answers = PendingAnswers::resume(self, std::mem::take(&mut waiting));
                    self.resume_stream(&request_id, cursor, answers).await?
                }
                ResumeMethod::Task(task) => self.follow_task(task).await?,
                ResumeMethod::Run(run) => self.follow_run(&run).await?,
                ResumeMethod::Lost(reason) => {
                    FollowStep::Over(CallOutcome::Lost { reason: reason.to_owned() })
                }
            };
            method = match next {
                FollowStep::Continue(method) => method,
                FollowStep::Over(outcome) => return Ok(outcome),
            };
        }
    }

    async fn record_events(&self, events: Vec<CallEvent>) -> Result<(), FollowError> {
        if events.is_empty() {
            return Ok(());
        }
        Ok(self.handler.record_events(events).await?)
    }

    /// The next step after a stream broke that cannot be resumed.
    fn recover_from_loss(
        &self,
        round: &InputRound,
        why: ClientError,
    ) -> Result<FollowStep, FollowError> {
        if self.tool_call.repeatable || round.state.is_some() {
            return Err(FollowError::Reconnect(why));
        }
        Ok(lost(&why))
    }

    /// Handles a failed poll of a task or run. Pauses if the server may come back on this
    /// connection. On another connection, the task or run still has the same id.
    async fn retry_after_error(
        &self,
        error: ClientError,
        pauses: &mut RetryBackoff,
    ) -> Result<(), FollowError> {
        match error {
            error if error.is_transient() && self.server.can_reconnect() => {
                pauses.pause_after(error, &self.stop).await
            }
            error @ ClientError::SessionGone => Err(FollowError::Reconnect(error)),
            error if error.is_transient() => Err(FollowError::Reconnect(error)),
            error => Err(error.into()),
        }
    }

    /// A short request about the call.
    async fn send_short_request(&self, method: &str, params: Value) -> Result<Value, ClientError> {
        let asked =
            tokio::time::timeout(SHORT_REQUEST_TIMEOUT, self.server.send_request(method, params))
                .await;
        asked.unwrap_or(Err(ClientError::Slow(SHORT_REQUEST_TIMEOUT.as_secs())))
    }

    fn is_cancelled(&self) -> bool {
        self.stop.is_cancelled()
    }
}

/// The call is lost: it cannot be resumed.
fn lost(why: &ClientError) -> FollowStep {
    let reason = format!("{why}; whether the tool did its work is not known");
    FollowStep::Over(CallOutcome::Lost { reason })
}

/// Pauses that grow up to a bound.
struct RetryBackoff {
    next: Duration,
    /// Since when the server has been unreachable.
    away_since: Option<Instant>,
}

impl RetryBackoff {
    fn new() -> Self {
        Self { next: FIRST_PAUSE, away_since: None }
    }

    async fn pause(&mut self, stop: &CancellationToken) {
        if stop.is_cancelled() {
            // After a cancellation, only the server's acknowledgement is awaited.
            return tokio::time::sleep(FIRST_PAUSE).await;
        }
        tokio::select! {
            () = tokio::time::sleep(self.next) => {}
            () = stop.cancelled() => {}
        }
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }

    /// Pauses for an unreachable server, up to a bound.
    async fn pause_after(
        &mut self,
        error: ClientError,
        stop: &CancellationToken,
    ) -> Result<(), FollowError> {
        match self.away_since {
            None => self.away_since = Some(Instant::now()),
            Some(since) if since.elapsed() > MAX_AWAY => return Err(FollowError::Away(error)),
            Some(_) => {}
        }
        self.pause(stop).await;
        Ok(())
    }

    /// The server is reachable again.
    fn found(&mut self) {
        self.away_since = None;
    }

    /// The server has sent something.
    fn reset(&mut self) {
        *self = Self::new();
    }
}
