//! A call that became a task. The task is polled until it ends.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};
use shikiri_model::host::{
    CallEvent, CallLogLine, CallOutcome, CallProgress, RemoteTaskRef, sanitize_line,
};
use tokio::time::Instant;

use super::input_requests::answered as news_of;
use super::{CallFollower, FollowError, FollowStep, RetryBackoff, STOP_TIMEOUT, lost};
use crate::error::ClientError;
use crate::rpc_messages::ServerRpcError;

/// The polling interval, and bounds on the one that the server requests.
const POLL: Duration = Duration::from_secs(1);
const SHORTEST_POLL: Duration = Duration::from_millis(50);
const LONGEST_POLL: Duration = Duration::from_secs(60);

impl CallFollower<'_> {
    pub(super) async fn follow_task(&self, task: RemoteTaskRef) -> Result<FollowStep, FollowError> {
        let mut answered = BTreeSet::new();
        let mut said = String::new();
        let mut pauses = RetryBackoff::new();
        let mut stopping: Option<Instant> = None;
        loop {
            if self.is_cancelled() && stopping.is_none() {
                let params = json!({ "taskId": task.id });
                let _ = tokio::time::timeout(
                    STOP_TIMEOUT,
                    self.server.send_request("tasks/cancel", params),
                )
                .await;
                stopping = Some(Instant::now() + STOP_TIMEOUT);
            }
            if stopping.is_some_and(|until| Instant::now() >= until) {
                return Ok(FollowStep::Over(CallOutcome::Cancelled));
            }
            let looking = self.send_short_request("tasks/get", json!({ "taskId": task.id }));
            let seen = tokio::select! {
                seen = looking => seen,
                () = self.stop.cancelled(), if stopping.is_none() => continue,
                () = until(stopping) => continue,
            };
            let seen = match seen {
                Ok(seen) => seen,
                Err(error @ ClientError::Rpc(_)) => return Ok(lost(&error)),
                Err(error) => {
                    self.retry_after_error(error, &mut pauses).await?;
                    continue;
                }
            };
            pauses.reset();
            if seen.get("taskId").is_some_and(|id| id.as_str() != Some(&task.id)) {
                let said = "asked for a task, it speaks of another";
                return Err(ClientError::Garbled(said.to_owned()).into());
            }
            self.tell_status(&seen, &mut said).await?;
            if let Some(outcome) = outcome(&seen) {
                return Ok(FollowStep::Over(outcome?));
            }
            if self.answer_task(&task, &seen, &mut answered).await? {
                continue;
            }
            let requested = seen.get("pollIntervalMs").and_then(Value::as_u64).or(task.poll_ms);
            let poll =
                requested.map_or(POLL, Duration::from_millis).clamp(SHORTEST_POLL, LONGEST_POLL);
            tokio::select! {
                () = tokio::time::sleep(poll) => {}
                () = self.stop.cancelled(), if stopping.is_none() => {}
            }
        }
    }

    /// Records the task's status. A task has no progress field, only a status message.
    async fn tell_status(&self, seen: &Value, said: &mut String) -> Result<(), FollowError> {
        let message = seen.get("statusMessage").and_then(Value::as_str).map(sanitize_line);
        // Our own servers report progress beside it.
        let reported = &seen["_meta"]["shikiri/progress"];
        if let Some(progress) = reported["progress"].as_f64() {
            let total = reported["total"].as_f64();
            return self
                .record_events(vec![CallEvent::Progress(CallProgress { progress, total, message })])
                .await;
        }
        match message {
            Some(message) if !message.is_empty() && message != *said => {
                said.clone_from(&message);
                let line = CallLogLine { level: "info".to_owned(), text: message };
                self.record_events(vec![CallEvent::Log(line)]).await
            }
            _ => Ok(()),
        }
    }

    /// Answers the task's open questions. False if there were none. A key is answered once.
    async fn answer_task(
        &self,
        task: &RemoteTaskRef,
        seen: &Value,
        answered: &mut BTreeSet<String>,
    ) -> Result<bool, FollowError> {
        let Some(requests) = seen.get("inputRequests").and_then(Value::as_object) else {
            return Ok(false);
        };
        let open: Map<_, _> = requests
            .iter()
            .filter(|(key, _)| !answered.contains(*key))
            .map(|(key, request)| (key.clone(), request.clone()))
            .collect();
        if open.is_empty() {
            return Ok(false);
        }
        let responses = self.answer_inputs(&open).await?;
        if responses.is_empty() {
            return Ok(false);
        }
        let params = json!({ "taskId": task.id, "inputResponses": &responses });
        match self.send_short_request("tasks/update", params).await {
            Ok(_) => {
                self.record_events(news_of(&responses)).await?;
                answered.extend(open.into_iter().map(|(key, _)| key));
            }
            // The next poll returns the question again.
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }
}

/// Waits until that time, or for ever.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The outcome of a task that has ended.
fn outcome(seen: &Value) -> Option<Result<CallOutcome, FollowError>> {
    match seen.get("status").and_then(Value::as_str) {
        Some("completed") => Some(match seen.get("result") {
            Some(Value::Object(result)) => Ok(CallOutcome::Answered(result.clone())),
            _ => Err(ClientError::Garbled("a task that ended without a result".to_owned()).into()),
        }),
        Some("failed") => {
            let error = ServerRpcError::parse(seen.get("error").unwrap_or(&Value::Null));
            Some(Err(ClientError::Rpc(error).into()))
        }
        Some("cancelled") => Some(Ok(CallOutcome::Cancelled)),
        Some("working" | "input_required") => None,
        _ => Some(Err(ClientError::Garbled("a task of no known status".to_owned()).into())),
    }
}
