//! A call that became a run of a Shikiri server: it is waited for by its id, in any era.

use serde_json::{Map, Value, json};
use shikiri_model::host::{News, Outcome, Progress, Question, clean_line};

use super::{Following, Next, Pauses, STOPPING, Stop, lost};
use crate::error::ClientError;

/// How long one look may take.
const WAIT_SECONDS: u64 = 20;

impl Following<'_> {
    /// The run that an answer hands over, if the server has what it takes to wait for it.
    pub(super) fn run_of(&self, result: &Map<String, Value>) -> Option<String> {
        let content = result.get("structuredContent")?;
        let is_going_on =
            matches!(content.get("status")?.as_str()?, "queued" | "running" | "waiting");
        let run = content.get("run_id")?.as_str()?;
        // `run_status` and the like answer with the same words, and are meant to end there.
        let is_handover = content.get("next_step").is_some();
        (is_going_on && is_handover).then(|| run.to_owned())
    }

    pub(super) async fn follow_run(&self, run: &str) -> Result<Next, Stop> {
        let mut pauses = Pauses::new();
        loop {
            if self.is_cancelled() {
                let stop = self.tool("run_cancel", json!({ "run_id": run }));
                let _ = tokio::time::timeout(STOPPING, stop).await;
                return Ok(Next::Over(Outcome::Cancelled));
            }
            let wait = json!({ "run_id": run, "max_seconds": WAIT_SECONDS });
            let seen = tokio::select! {
                seen = self.tool("run_wait", wait) => seen,
                () = self.stop.cancelled() => continue,
            };
            let seen = match seen {
                Ok(seen) => seen,
                // It does not know the run, or is no server that has runs.
                Err(error @ (ClientError::Rpc(_) | ClientError::Garbled(_))) => {
                    return Ok(lost(&error));
                }
                Err(error) => {
                    self.wait_out(error, &mut pauses).await?;
                    continue;
                }
            };
            pauses.reset();
            self.tell_progress(&seen).await?;
            if let Some(outcome) = outcome(&seen) {
                return Ok(Next::Over(outcome));
            }
            self.answer_run(run, &seen).await?;
        }
    }

    /// A short tool's structured answer.
    async fn tool(&self, name: &str, arguments: Value) -> Result<Value, ClientError> {
        let params = json!({ "name": name, "arguments": arguments });
        let mut result = self.look("tools/call", params).await?;
        if result.get("isError") == Some(&Value::Bool(true)) {
            let said = result["content"][0]["text"].as_str().unwrap_or("it failed");
            return Err(ClientError::Garbled(format!("{name}: {}", clean_line(said))));
        }
        Ok(result.get_mut("structuredContent").map(Value::take).unwrap_or_default())
    }

    async fn tell_progress(&self, seen: &Value) -> Result<(), Stop> {
        let Some(progress) = seen.get("progress").and_then(Value::as_f64) else { return Ok(()) };
        let progress = Progress {
            progress,
            total: seen.get("total").and_then(Value::as_f64),
            message: seen.get("message").and_then(Value::as_str).map(clean_line),
        };
        self.note(vec![News::Progress(progress)]).await
    }

    async fn answer_run(&self, run: &str, seen: &Value) -> Result<(), Stop> {
        let Some(questions) = seen.get("questions").and_then(Value::as_array) else {
            return Ok(());
        };
        for question in questions {
            let Some(id) = question.get("question_id").and_then(Value::as_str) else { continue };
            let Some(question) = as_request(id, question) else { continue };
            self.note(vec![News::Asked(question.clone())]).await?;
            let answer = tokio::select! {
                answer = self.answer_to(&question) => answer,
                () = self.stop.cancelled() => return Ok(()),
            };
            let answer = match answer {
                Some(Ok(answer)) => answer,
                _ => json!({ "action": "decline" }),
            };
            let arguments = json!({ "run_id": run, "question_id": id, "answer": answer });
            match self.tool("run_answer", arguments).await {
                Ok(_) => {}
                Err(error) if error.is_passing() => return Ok(()),
                // Somebody else answered, or its time was over: the run goes on either way.
                Err(error) => tracing::debug!(%error, "a question could not be answered"),
            }
            self.note(vec![News::Answered { key: id.to_owned() }]).await?;
        }
        Ok(())
    }
}

/// A run's question in the protocol's words.
fn as_request(id: &str, question: &Value) -> Option<Question> {
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
    Some(Question { key: id.to_owned(), method: method.to_owned(), params })
}

fn outcome(seen: &Value) -> Option<Outcome> {
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
            Some(Outcome::Answered(answer))
        }
        "failed" => {
            let said = seen.get("error").map(text).unwrap_or_default();
            let content = json!([{ "type": "text", "text": said }]);
            Some(Outcome::Answered(Map::from_iter([
                ("content".to_owned(), content),
                ("isError".to_owned(), Value::Bool(true)),
            ])))
        }
        "cancelled" => Some(Outcome::Cancelled),
        _ => None,
    }
}
