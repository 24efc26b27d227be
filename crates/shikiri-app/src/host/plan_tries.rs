//! One try of a plan's task: a call that is made, or taken up by its id, and watched.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use shikiri_client::{ClientError, Server};
use shikiri_model::host::plan::{TaskOutcome, TaskResult};
use shikiri_model::host::{Answer, CallState, Form, HostCall, News, Outcome, Reach, clean_line};
use shikiri_model::ids::HostCallId;
use shikiri_model::tool::ToolChange;
use tokio_util::sync::CancellationToken;

use super::audience::{Audience, Consent, Shown};
use super::plans::PlanAudience;
use super::{Called, Host, HostError, NewCall};
use crate::error::AppError;

/// A server that says nothing for so long is looked at, where another could do its work.
const SILENCE: Duration = Duration::from_secs(3);
/// Between two looks at a server that refused the first.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// Refusals in a row after which a server is taken for gone.
const MAX_REFUSALS: u32 = 3;
/// Clocks that measure one time limit may differ by so much.
const TOLERANCE: Duration = Duration::from_millis(100);
/// Meeting a server and finding its tool, before a call's own time begins.
const MEETING: Duration = Duration::from_secs(60);
const MAX_REASON: usize = 500;

/// What is to be tried.
pub(super) struct Try {
    pub(super) task: String,
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) call: HostCallId,
    pub(super) arguments: Map<String, Value>,
    pub(super) time_limit: Duration,
    /// Another process made the call.
    pub(super) taken_up: bool,
    /// Another server could be asked instead.
    pub(super) has_another: bool,
}

impl Host {
    /// Sees a try through. An error means that the plan cannot be followed any longer.
    pub(super) async fn try_task(
        &self,
        order: &Try,
        audience: &dyn PlanAudience,
        cancel: &CancellationToken,
    ) -> Result<TaskOutcome, HostError> {
        let watched = Watched { audience, heard: AtomicBool::new(false) };
        let called = tokio::select! {
            called = self.make(order, &watched, cancel) => called,
            why = self.until_gone(order, &watched) => {
                Err(HostError::Server { server: order.server.clone(), error: why })
            }
        };
        match called {
            Ok(Called::Ended(call)) => self.outcome(&call.value, cancel).await,
            Ok(Called::LetGo { call, why }) => {
                let id = &call.value.id;
                Err(HostError::Call(format!("call {id} of task {}: {why}", order.task)))
            }
            // Whoever runs the plan again after the change was accepted goes on with it.
            Err(error @ (HostError::App(_) | HostError::Call(_) | HostError::Changed { .. })) => {
                Err(error)
            }
            Err(HostError::Cancelled { .. }) => Ok(TaskOutcome::Cancelled),
            Err(error) => {
                self.disconnect(&order.server).await;
                self.give_up(&order.call, error, cancel).await
            }
        }
    }

    async fn make(
        &self,
        order: &Try,
        audience: &Watched<'_>,
        cancel: &CancellationToken,
    ) -> Result<Called, HostError> {
        if order.taken_up {
            match self.resume_call(&order.call, None, audience, cancel).await {
                // It was noted down, and the process died before it made the call.
                Err(HostError::App(AppError::NotFound { .. })) => {}
                called => return called,
            }
        }
        let new = NewCall {
            server: order.server.clone(),
            tool: order.tool.clone(),
            arguments: order.arguments.clone(),
            time_limit: order.time_limit,
        };
        let calling = self.call_tool_as(order.call.clone(), new, audience, cancel);
        match tokio::time::timeout(order.time_limit + MEETING, calling).await {
            // The process that noted it down lives and was first: it will find the call taken.
            Ok(Err(HostError::App(AppError::Exists { .. }))) => {
                self.resume_call(&order.call, None, audience, cancel).await
            }
            Ok(called) => called,
            Err(_) => {
                let error = ClientError::Slow(order.time_limit.as_secs());
                Err(HostError::Server { server: order.server.clone(), error })
            }
        }
    }

    /// Waits until nobody is there any more. For ever, if that would change nothing.
    async fn until_gone(&self, order: &Try, watched: &Watched<'_>) -> ClientError {
        let spec = match self.spec(&order.server) {
            Ok(spec) if order.has_another && matches!(spec.reach, Reach::Http { .. }) => spec,
            // A program of ours that ends is noticed by itself.
            _ => return std::future::pending().await,
        };
        let introduction = self.introduction_to(&order.server);
        let mut refusals = 0;
        loop {
            let pause = if refusals == 0 { SILENCE } else { SECOND_LOOK };
            tokio::time::sleep(pause).await;
            if watched.heard.swap(false, Ordering::Relaxed) {
                refusals = 0;
                continue;
            }
            match Server::connect(spec, &introduction, &self.next_prefix()).await {
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
                // Somebody is there, whatever they say.
                Err(_) => refusals = 0,
            }
        }
    }

    /// Ends a call that is followed no longer, and says what that means for its task.
    async fn give_up(
        &self,
        id: &HostCallId,
        why: HostError,
        cancel: &CancellationToken,
    ) -> Result<TaskOutcome, HostError> {
        let reason = why.to_string();
        let stored = match self.call(id).await {
            Ok(stored) => stored,
            Err(AppError::NotFound { .. }) => {
                return Ok(TaskOutcome::ServerFailed { reason, sent: false });
            }
            Err(error) => return Err(error.into()),
        };
        if !stored.value.is_open() {
            return self.outcome(&stored.value, cancel).await;
        }
        let sent = stored.value.bookmark.request_id.is_some();
        let lost = [News::Ended(Outcome::Lost { reason: reason.clone() })];
        if self.keep(&stored, &lost).await?.is_none() {
            return Err(HostError::Call(format!("another process has taken call {id} up")));
        }
        Ok(match why {
            HostError::Server { error: ClientError::Slow(_), .. } => {
                TaskOutcome::TimedOut { reason }
            }
            _ => TaskOutcome::ServerFailed { reason, sent },
        })
    }

    async fn outcome(
        &self,
        call: &HostCall,
        cancel: &CancellationToken,
    ) -> Result<TaskOutcome, HostError> {
        let told = || {
            let reason = call.reason.as_deref().unwrap_or("it gave no reason");
            format!("{}: {}", call.server, clean_line(reason))
        };
        let failed = |reason: String| TaskOutcome::ToolFailed { reason };
        Ok(match call.state {
            CallState::Completed => {
                let read = TaskResult::read(call.result.as_ref().unwrap_or(&Map::new()));
                match read {
                    Ok(result) if call.is_tool_error() => {
                        failed(format!("{}: {}", call.server, short(&result.text)))
                    }
                    Ok(result) => TaskOutcome::Answered(result),
                    Err(reason) => failed(format!("{}: {reason}", call.server)),
                }
            }
            CallState::Failed => {
                let now = self.app.store.now().await.map_err(AppError::from)?;
                match call.deadline <= now + TOLERANCE {
                    true => TaskOutcome::TimedOut { reason: told() },
                    false => TaskOutcome::ServerFailed { reason: told(), sent: true },
                }
            }
            CallState::Cancelled if cancel.is_cancelled() => TaskOutcome::Cancelled,
            CallState::Cancelled => failed(format!("{}: it was cancelled there", call.server)),
            CallState::Lost => TaskOutcome::ServerFailed { reason: told(), sent: true },
            CallState::Open => {
                return Err(HostError::Call(format!("call {} has not ended", call.id)));
            }
        })
    }
}

/// What a tool says of its failure, on one line.
fn short(text: &str) -> String {
    let line = clean_line(text);
    if line.is_empty() {
        return "the tool reports an error".to_owned();
    }
    line.chars().take(MAX_REASON).collect()
}

/// An audience that remembers whether anything was heard.
struct Watched<'a> {
    audience: &'a dyn PlanAudience,
    heard: AtomicBool,
}

#[async_trait]
impl Audience for Watched<'_> {
    fn show(&self, call: &HostCall, shown: &Shown) {
        self.heard.store(true, Ordering::Relaxed);
        self.audience.show(call, shown);
    }

    fn tell_changes(&self, server: &str, changes: &[ToolChange]) {
        self.audience.tell_changes(server, changes);
    }

    async fn accepts_change(&self, server: &str, change: &ToolChange) -> bool {
        self.audience.accepts_change(server, change).await
    }

    async fn ask(&self, call: &HostCall, form: &Form) -> Answer {
        self.audience.ask(call, form).await
    }

    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> Answer {
        self.audience.visit(call, message, url).await
    }

    async fn may_ask_model(&self, call: &HostCall, model: &str, prompt: &str) -> Consent {
        self.audience.may_ask_model(call, model, prompt).await
    }

    async fn sample(&self, call: &HostCall, params: &Value) -> Result<Value, String> {
        self.audience.sample(call, params).await
    }
}
