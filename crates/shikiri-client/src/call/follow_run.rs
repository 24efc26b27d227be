//! A call that became a run of a Shikiri server. The run is awaited by its id, in any era.

use serde_json::{Map, Value, json};
use shikiri_model::host::{CallEvent, CallOutcome, CallProgress, CallQuestion, sanitize_line};

use super::{CallFollower, FollowError, FollowStep, RetryBackoff, STOP_TIMEOUT, lost};
use crate::error::ClientError;

/// The code of a server that takes no answer to this question from a tool.
const PERSON_REQUIRED: &str = "person_required";
/// The duration of one `run_wait`.
const WAIT_SECONDS: u64 = 20;

impl CallFollower<'_> {
    /// The id of the run that an answer hands over, if there is one to wait for.
    pub(super) fn parse_run_handover(&self, result: &Map<String, Value>) -> Option<String> {
        let content = result.get("structuredContent")?;
        let is_going_on =
            matches!(content.get("status")?.as_str()?, "queued" | "running" | "waiting");
        let run = content.get("run_id")?.as_str()?;
        // `run_status` and similar tools have the same fields, but are complete answers.
        let is_handover = content.get("next_step").is_some();
        (is_going_on && is_handover).then(|| run.to_owned())
    }

    pub(super) async fn follow_run(&self, run: &str) -> Result<FollowStep, FollowError> {
        let mut pauses = RetryBackoff::new();
        loop {
            if self.is_cancelled() {
                let stop = self.tool("run_cancel", json!({ "run_id": run }));
                let _ = tokio::time::timeout(STOP_TIMEOUT, stop).await;
                return Ok(FollowStep::Over(CallOutcome::Cancelled));
            }
            let wait = json!({ "run_id": run, "max_seconds": WAIT_SECONDS });
            let seen = tokio::select! {
                seen = self.tool("run_wait", wait) => seen,
                () = self.stop.cancelled() => continue,
            };
            let seen = match seen {
                Ok(seen) => seen,
                // The server does not know the run, or has no runs at all.
                Err(error @ (ClientError::Rpc(_) | ClientError::Garbled(_))) => {
                    return Ok(lost(&error));
                }
                Err(error) => {
                    self.retry_after_error(error, &mut pauses).await?;
                    continue;
                }
            };
            pauses.reset();
            self.tell_progress(&seen).await?;
            if let Some(outcome) = outcome(&seen) {
                return Ok(FollowStep::Over(outcome));
            }
            self.answer_run(run, &seen).await?;
        }
    }

    /// Calls a short tool, and returns its structured answer.
    async fn tool(&self, name: &str, arguments: Value) -> Result<Value, ClientError> {
        let params = json!({ "name": name, "arguments": arguments });
        let mut result = self.send_short_request("tools/call", params).await?;
        if result.get("isError") == Some(&Value::Bool(true)) {
            let said = result["content"][0]["text"].as_str().unwrap_or("it failed");
            let said = format!("{name}: {}", sanitize_line(said));
            let told = result.get("structuredContent");
            return Err(match told.and_then(|told| told["error"]["code"].as_str()) {
                Some(PERSON_REQUIRED) => ClientError::PersonRequired(said),
                _ => ClientError::Garbled(said),
            });
        }
        Ok(result.get_mut("structuredContent").map(Value::take).unwrap_or_default())
    }

    async fn tell_progress(&self, seen: &Value) -> Result<(), FollowError> {
        let Some(progress) = seen.get("progress").and_then(Value::as_f64) else { return Ok(()) };
        let progress = CallProgress {
            progress,
            total: seen.get("total").and_then(Value::as_f64),
            message: seen.get("message").and_then(Value::as_str).map(sanitize_line),
        };
        self.record_events(vec![CallEvent::Progress(progress)]).await
    }

    async fn answer_run(&self, run: &str, seen: &Value) -> Result<(), FollowError> {
        let Some(questions) = seen.get("questions").and_then(Value::as_array) else {
            return Ok(());
        };
        for question in questions {
            let Some(id) = question.get("question_id").and_then(Value::as_str) else { continue };
            let Some(question) = as_request(id, question) else { continue };
            self.record_events(vec![CallEvent::Asked(question.clone())]).await?;
            let answer = tokio::select! {
                answer = self.answer_question(&question) => answer,
                () = self.stop.cancelled() => return Ok(()),
            };
            let answer = match answer {
                Some(Ok(answer)) => answer,
                _ => json!({ "action": "decline" }),
            };
            let arguments = json!({ "run_id": run, "question_id": id, "answer": answer });
            match self.tool("run_answer", arguments).await {
                Ok(_) => {}
                Err(error) if error.is_transient() => return Ok(()),
                // It is not asked again and again. The call is kept, to come back for its end.
                Err(error @ ClientError::PersonRequired(_)) => {
                    return Err(FollowError::Away(error));
                }
                // It was answered elsewhere or has expired: the run continues either way.
                Err(error) => tracing::debug!(%error, "a question could not be answered"),
            }
            self.record_events(vec![CallEvent::Answered { key: id.to_owned() }]).await?;
        }
        Ok(())
    }
}

/// A run's question as a request of the protocol.
fn as_request(id: &str, question: &Value) -> Option<CallQuestion> {
    let message = question.get("message").cloned().unwrap_or_default();
    let schema = question.get("schema").cloned().unwrap_or_default();
    let (method, params) = match question.get("kind")?.as_str()? {
        "human" => ("elicitation/create", json!({ "message": message, "requestedSchema": schema })),
        "model" => (
            "sampling/createMessage",
            json!({ "messages": schema["messages"], "maxTokens": schema["max_tokens"] }),
        ),
        _ => return None,
    };
    Some(CallQuestion { key: id.to_owned(), method: method.to_owned(), params })
}

fn outcome(seen: &Value) -> Option<CallOutcome> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match seen.get("status").and_then(Value::as_str)? {
        "completed" => {
            let result = seen.get("result").cloned().unwrap_or_default();
            let content = json!([{ "type": "text", "text": text(&result) }]);
            let mut answer = Map::from_iter([
                ("content".to_owned(), content),
                ("isError".to_owned(), Value::Bool(false)),
            ]);
            if result.is_object() {
                answer.insert("structuredContent".to_owned(), result);
            }
            Some(CallOutcome::Answered(answer))
        }
        "failed" => {
            let said = seen.get("error").map(text).unwrap_or_default();
            let content = json!([{ "type": "text", "text": said }]);
            Some(CallOutcome::Answered(Map::from_iter([
                ("content".to_owned(), content),
                ("isError".to_owned(), Value::Bool(true)),
            ])))
        }
        "cancelled" => Some(CallOutcome::Cancelled),
        _ => None,
    }
}
