//! One attempt at a plan's task: a call is made, or resumed by its id, and monitored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use shikiri_client::{ClientError, ServerConnection};
use shikiri_model::host::plan::{PlanTaskOutcome, PlanTaskResult};
use shikiri_model::host::{
    CallEvent, CallOutcome, ElicitationForm, FormAnswer, HostCall, HostCallState, HostTransport,
    sanitize_line,
};
use shikiri_model::ids::HostCallId;
use shikiri_model::tool::ToolChange;
use shikiri_runtime::AppError;
use tokio_util::sync::CancellationToken;

use super::plan_execution::PlanObserver;
use super::user_interaction::{CallUpdate, SamplingConsent, UserInteraction};
use super::{CallFollowResult, Host, HostError, NewToolCall};

/// A server that is silent for this long is probed, if another server could do the task.
const SILENCE: Duration = Duration::from_secs(3);
/// Pause before a server that could not be reached is probed again.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// Failed probes in a row after which a server counts as gone.
const MAX_REFUSALS: u32 = 3;
/// The difference allowed between clocks that measure the same time limit.
const TOLERANCE: Duration = Duration::from_millis(100);
/// Timeout for connecting to a server and finding its tool, before a call's own time begins.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_REASON: usize = 500;

/// An attempt at a task.
pub(super) struct PlanTaskAttempt {
    pub(super) task: String,
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) call: HostCallId,
    pub(super) arguments: Map<String, Value>,
    pub(super) time_limit: Duration,
    /// Whether another process made the call.
    pub(super) is_resumed: bool,
    /// Whether another server could do the task.
    pub(super) has_another: bool,
}

impl Host {
    /// Carries out an attempt. An error means that the plan cannot continue.
    pub(super) async fn try_task(
        &self,
        attempt: &PlanTaskAttempt,
        observer: &dyn PlanObserver,
        cancel: &CancellationToken,
    ) -> Result<PlanTaskOutcome, HostError> {
        let monitor = ServerActivityMonitor { observer, has_activity: AtomicBool::new(false) };
        let called = tokio::select! {
            called = self.run_attempt(attempt, &monitor, cancel) => called,
            why = self.wait_until_server_gone(attempt, &monitor) => {
                Err(HostError::Server { server: attempt.server.clone(), error: why })
            }
        };
        match called {
            Ok(CallFollowResult::Ended(call)) => self.outcome(&call.value, cancel).await,
            Ok(CallFollowResult::LetGo { call, why }) => {
                let id = &call.value.id;
                Err(HostError::Call(format!("call {id} of task {}: {why}", attempt.task)))
            }
            // The plan can be resumed, for example after the change was accepted.
            Err(error @ (HostError::App(_) | HostError::Call(_) | HostError::Changed { .. })) => {
                Err(error)
            }
            Err(HostError::Cancelled { .. }) => Ok(PlanTaskOutcome::Cancelled),
            Err(error) => {
                self.disconnect(&attempt.server).await;
                self.give_up(&attempt.call, error, cancel).await
            }
        }
    }

    async fn run_attempt(
        &self,
        attempt: &PlanTaskAttempt,
        observer: &ServerActivityMonitor<'_>,
        cancel: &CancellationToken,
    ) -> Result<CallFollowResult, HostError> {
        if attempt.is_resumed {
            match self.resume_call(&attempt.call, None, observer, cancel).await {
                // The id was stored, but the process ended before it made the call.
                Err(HostError::App(AppError::NotFound { .. })) => {}
                called => return called,
            }
        }
        let new = NewToolCall {
            server: attempt.server.clone(),
            tool: attempt.tool.clone(),
            arguments: attempt.arguments.clone(),
            time_limit: attempt.time_limit,
        };
        let calling = self.call_tool_as(attempt.call.clone(), new, observer, cancel);
        match tokio::time::timeout(attempt.time_limit + CONNECT_TIMEOUT, calling).await {
            // The process that stored the id is alive and made the call first: take it over.
            Ok(Err(HostError::App(AppError::Exists { .. }))) => {
                self.resume_call(&attempt.call, None, observer, cancel).await
            }
            Ok(called) => called,
            Err(_) => {
                let error = ClientError::Slow(attempt.time_limit.as_secs());
                Err(HostError::Server { server: attempt.server.clone(), error })
            }
        }
    }

    /// Waits until the server is gone. Waits for ever if no other server could do the task.
    async fn wait_until_server_gone(
        &self,
        attempt: &PlanTaskAttempt,
        monitor: &ServerActivityMonitor<'_>,
    ) -> ClientError {
        let spec = match self.spec(&attempt.server) {
            Ok(spec) if attempt.has_another && matches!(spec.reach, HostTransport::Http { .. }) => {
                spec
            }
            // The end of a local program is noticed without probing.
            _ => return std::future::pending().await,
        };
        let introduction = self.introduction_to(&attempt.server);
        let mut refusals = 0;
        loop {
            let pause = if refusals == 0 { SILENCE } else { SECOND_LOOK };
            tokio::time::sleep(pause).await;
            if monitor.has_activity.swap(false, Ordering::Relaxed) {
                refusals = 0;
                continue;
            }
            match ServerConnection::connect(spec, &introduction, &self.next_prefix()).await {
                Err(error @ ClientError::Unreachable(_)) => {
                    refusals += 1;
                    if refusals >= MAX_REFUSALS {
                        return error;
                    }
                }
                Ok(server) => {
                    refusals = 0;
                    server.close(true).await;
                }
                // Any other error shows that a server answers.
                Err(_) => refusals = 0,
            }
        }
    }

    /// Ends a call that is no longer followed, and returns the outcome for its task.
    async fn give_up(
        &self,
        id: &HostCallId,
        why: HostError,
        cancel: &CancellationToken,
    ) -> Result<PlanTaskOutcome, HostError> {
        let reason = why.to_string();
        let stored = match self.call(id).await {
            Ok(stored) => stored,
            Err(AppError::NotFound { .. }) => {
                return Ok(PlanTaskOutcome::ServerFailed { reason, sent: false });
            }
            Err(error) => return Err(error.into()),
        };
        if !stored.value.is_open() {
            return self.outcome(&stored.value, cancel).await;
        }
        let sent = stored.value.bookmark.request_id.is_some();
        let lost = [CallEvent::Ended(CallOutcome::Lost { reason: reason.clone() })];
        if self.persist_call_events(&stored, &lost).await?.is_none() {
            return Err(HostError::Call(format!("another process has taken call {id} up")));
        }
        Ok(match why {
            HostError::Server { error: ClientError::Slow(_), .. } => {
                PlanTaskOutcome::TimedOut { reason }
            }
            _ => PlanTaskOutcome::ServerFailed { reason, sent },
        })
    }

    async fn outcome(
        &self,
        call: &HostCall,
        cancel: &CancellationToken,
    ) -> Result<PlanTaskOutcome, HostError> {
        let reason_text = || {
            let reason = call.reason.as_deref().unwrap_or("it gave no reason");
            format!("{}: {}", call.server, sanitize_line(reason))
        };
        let failed = |reason: String| PlanTaskOutcome::ToolFailed { reason };
        Ok(match call.state {
            HostCallState::Completed => {
                let read = PlanTaskResult::read(call.result.as_ref().unwrap_or(&Map::new()));
                match read {
                    Ok(result) if call.is_tool_error() => {
                        failed(format!("{}: {}", call.server, short(&result.text)))
                    }
                    Ok(result) => PlanTaskOutcome::Answered(result),
                    Err(reason) => failed(format!("{}: {reason}", call.server)),
                }
            }
            HostCallState::Failed => {
                let now = self.runtime.store().now().await.map_err(AppError::from)?;
                match call.deadline <= now + TOLERANCE {
                    true => PlanTaskOutcome::TimedOut { reason: reason_text() },
                    false => PlanTaskOutcome::ServerFailed { reason: reason_text(), sent: true },
                }
            }
            HostCallState::Cancelled if cancel.is_cancelled() => PlanTaskOutcome::Cancelled,
            HostCallState::Cancelled => failed(format!("{}: it was cancelled there", call.server)),
            HostCallState::Lost => {
                PlanTaskOutcome::ServerFailed { reason: reason_text(), sent: true }
            }
            HostCallState::Open => {
                return Err(HostError::Call(format!("call {} has not ended", call.id)));
            }
        })
    }
}

/// A tool's error text on one line.
fn short(text: &str) -> String {
    let line = sanitize_line(text);
    if line.is_empty() {
        return "the tool reports an error".to_owned();
    }
    line.chars().take(MAX_REASON).collect()
}

/// Forwards to the observer, and remembers whether the server was active.
struct ServerActivityMonitor<'a> {
    observer: &'a dyn PlanObserver,
    has_activity: AtomicBool,
}

#[async_trait]
impl UserInteraction for ServerActivityMonitor<'_> {
    fn show(&self, call: &HostCall, shown: &CallUpdate) {
        self.has_activity.store(true, Ordering::Relaxed);
        self.observer.show(call, shown);
    }

    fn tell_changes(&self, server: &str, changes: &[ToolChange]) {
        self.observer.tell_changes(server, changes);
    }

    async fn accepts_change(&self, server: &str, change: &ToolChange) -> bool {
        self.observer.accepts_change(server, change).await
    }

    async fn ask(&self, call: &HostCall, form: &ElicitationForm) -> FormAnswer {
        self.observer.ask(call, form).await
    }

    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> FormAnswer {
        self.observer.visit(call, message, url).await
    }

    async fn may_ask_model(&self, call: &HostCall, model: &str, prompt: &str) -> SamplingConsent {
        self.observer.may_ask_model(call, model, prompt).await
    }

    async fn sample(&self, call: &HostCall, params: &Value) -> Result<Value, String> {
        self.observer.sample(call, params).await
    }
}
