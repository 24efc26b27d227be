//! A call that became a task: it is asked for until it is over.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};
use shikiri_model::host::{LogLine, News, Outcome, Progress, TaskMark, clean_line};
use tokio::time::Instant;

use super::inputs::answered as news_of;
use super::{Following, Next, Pauses, STOPPING, Stop, lost};
use crate::error::ClientError;
use crate::wire::RpcError;

/// The server's wish within reason.
const POLL: Duration = Duration::from_secs(1);
const SHORTEST_POLL: Duration = Duration::from_millis(50);
const LONGEST_POLL: Duration = Duration::from_secs(60);

impl Following<'_> {
    pub(super) async fn follow_task(&self, task: TaskMark) -> Result<Next, Stop> {
        let mut answered = BTreeSet::new();
        let mut said = String::new();
        let mut pauses = Pauses::new();
        let mut stopping: Option<Instant> = None;
        loop {
            if self.is_cancelled() && stopping.is_none() {
                let params = json!({ "taskId": task.id });
                let _ =
                    tokio::time::timeout(STOPPING, self.server.ask("tasks/cancel", params)).await;
                stopping = Some(Instant::now() + STOPPING);
            }
            if stopping.is_some_and(|until| Instant::now() >= until) {
                return Ok(Next::Over(Outcome::Cancelled));
            }
            let looking = self.look("tasks/get", json!({ "taskId": task.id }));
            let seen = tokio::select! {
                seen = looking => seen,
                () = self.stop.cancelled(), if stopping.is_none() => continue,
                () = until(stopping) => continue,
            };
            let seen = match seen {
                Ok(seen) => seen,
                Err(error @ ClientError::Rpc(_)) => return Ok(lost(&error)),
                Err(error) => {
                    self.wait_out(error, &mut pauses).await?;
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
                return Ok(Next::Over(outcome?));
            }
            if self.answer_task(&task, &seen, &mut answered).await? {
                continue;
            }
            let wish = seen.get("pollIntervalMs").and_then(Value::as_u64).or(task.poll_ms);
            let poll = wish.map_or(POLL, Duration::from_millis).clamp(SHORTEST_POLL, LONGEST_POLL);
            tokio::select! {
                () = tokio::time::sleep(poll) => {}
                () = self.stop.cancelled(), if stopping.is_none() => {}
            }
        }
    }

    /// A task has no progress of its own, only words about its status.
    async fn tell_status(&self, seen: &Value, said: &mut String) -> Result<(), Stop> {
        let message = seen.get("statusMessage").and_then(Value::as_str).map(clean_line);
        // What our own servers say beside it.
        let told = &seen["_meta"]["shikiri/progress"];
        if let Some(progress) = told["progress"].as_f64() {
            let total = told["total"].as_f64();
            return self.note(vec![News::Progress(Progress { progress, total, message })]).await;
        }
        match message {
            Some(message) if !message.is_empty() && message != *said => {
                said.clone_from(&message);
                let line = LogLine { level: "info".to_owned(), text: message };
                self.note(vec![News::Log(line)]).await
            }
            _ => Ok(()),
        }
    }

    /// Whether there was something to answer. A key is answered once.
    async fn answer_task(
        &self,
        task: &TaskMark,
        seen: &Value,
        answered: &mut BTreeSet<String>,
    ) -> Result<bool, Stop> {
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
        match self.look("tasks/update", params).await {
            Ok(_) => {
                self.note(news_of(&responses)).await?;
                answered.extend(open.into_iter().map(|(key, _)| key));
            }
            // It is asked again with the next look.
            Err(error) if error.is_passing() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }
}

/// Comes at that time, or never.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// How a task ended, once it has.
fn outcome(seen: &Value) -> Option<Result<Outcome, Stop>> {
    match seen.get("status").and_then(Value::as_str) {
        Some("completed") => Some(match seen.get("result") {
            Some(Value::Object(result)) => Ok(Outcome::Answered(result.clone())),
            _ => Err(ClientError::Garbled("a task that ended without a result".to_owned()).into()),
        }),
        Some("failed") => {
            let error = RpcError::parse(seen.get("error").unwrap_or(&Value::Null));
            Some(Err(ClientError::Rpc(error).into()))
        }
        Some("cancelled") => Some(Ok(Outcome::Cancelled)),
        Some("working" | "input_required") => None,
        _ => Some(Err(ClientError::Garbled("a task of no known status".to_owned()).into())),
    }
}
