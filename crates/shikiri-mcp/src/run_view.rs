//! A run in the protocol's words: its status, its result, the link to it.

use serde_json::{Map, Value, json};
use shikiri_model::ids::RunId;
use shikiri_model::run::Run;
use shikiri_runtime::run::RunView;

use crate::rpc_error::RpcError;

pub(crate) const RUN_PREFIX: &str = "shikiri://runs/";

pub(crate) fn run_uri(run: &RunId) -> String {
    format!("{RUN_PREFIX}{run}")
}

/// The answer of `run_status`.
pub(crate) fn status(view: &RunView) -> Value {
    let run = &view.run;
    let note = view.progress.as_ref();
    let noted = |name: &str| note.and_then(|note| note.get(name)).cloned().unwrap_or_default();
    let mut status = json!({
        "run_id": run.id,
        "agent": run.agent,
        "status": run.status,
        "progress": noted("progress"),
        "total": noted("total"),
        "message": noted("message"),
        "questions": questions(run),
    });
    if let Some(result) = &run.result {
        status["result"] = result.clone();
    }
    if let Some(error) = &run.error {
        status["error"] = json!(error);
    }
    status
}

fn questions(run: &Run) -> Vec<Value> {
    let listed = run.questions.iter().map(|question| {
        json!({
            "question_id": question.id,
            "kind": question.kind,
            "message": question.message,
            "schema": question.schema,
            "expires_at": question.expires_at,
        })
    });
    listed.collect()
}

/// A tool's answer: text for people, data for programs, and the link to the run.
pub(crate) fn status_result(view: &RunView) -> Value {
    let status = status(view);
    json!({
        "content": [text(&status.to_string()), link(&view.run.id, &view.run.agent)],
        "structuredContent": status,
        "isError": false,
    })
}

/// The answer of a call whose run goes on without it.
pub(crate) fn handover_result(view: &RunView) -> Value {
    let run = &view.run;
    let message = format!(
        "The run {} goes on ({}), whether or not this client stays connected. Wait for it with run_wait, or look at it with run_status.",
        run.id,
        run.status.as_str()
    );
    let mut status = status(view);
    // Some clients show their model this alone.
    status["next_step"] = json!(message);
    json!({
        "content": [text(&message), link(&run.id, &run.agent)],
        "structuredContent": status,
        "isError": false,
    })
}

/// How a run ended, from the last event of its stream.
pub(crate) enum RunEnding {
    Result(Value),
    Error { code: String, message: String },
}

impl RunEnding {
    /// None if this is not the last event of a run.
    pub(crate) fn read(kind: &str, data: &str) -> Option<Self> {
        let mut data: Map<String, Value> = match kind {
            "result" | "error" => serde_json::from_str(data).unwrap_or_default(),
            _ => return None,
        };
        let text = |value: Option<Value>| match value {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        Some(match kind {
            "result" => Self::Result(data.remove("result").unwrap_or_default()),
            _ => Self::Error {
                code: text(data.remove("code")),
                message: text(data.remove("message")),
            },
        })
    }

    pub(crate) fn of(run: &Run) -> Option<Self> {
        match (&run.result, &run.error) {
            (Some(result), _) => Some(Self::Result(result.clone())),
            (None, Some(error)) => {
                Some(Self::Error { code: error.code.clone(), message: error.message.clone() })
            }
            (None, None) => None,
        }
    }

    /// A tool's answer. An agent that gave up is a tool that failed, which a model may mend; a
    /// fault of ours is an error of the protocol.
    pub(crate) fn tool_result(self, run: &RunId, agent: &str) -> Result<Value, RpcError> {
        match self {
            Self::Result(Value::String(said)) => {
                Ok(json!({ "content": [text(&said), link(run, agent)], "isError": false }))
            }
            Self::Result(value) => {
                let said = text(&value.to_string());
                let value = if value.is_object() { value } else { json!({ "result": value }) };
                Ok(json!({
                    "content": [said, link(run, agent)],
                    "structuredContent": value,
                    "isError": false,
                }))
            }
            Self::Error { code, message } if is_ours(&code) => {
                Err(RpcError::internal(message).with(json!({ "code": code, "run_id": run })))
            }
            Self::Error { code, message } => {
                let mut result = tool_error(&code, &message);
                if let Some(content) = result["content"].as_array_mut() {
                    content.push(link(run, agent));
                }
                Ok(result)
            }
        }
    }
}

fn is_ours(code: &str) -> bool {
    matches!(code, "INTERNAL_ERROR" | "INTERRUPTED" | "JOURNAL_MISMATCH")
}

/// A refusal or failure that the calling model should see.
pub fn tool_error(code: &str, message: &str) -> Value {
    json!({
        "content": [text(message)],
        "structuredContent": { "error": { "code": code, "message": message } },
        "isError": true,
    })
}

/// A tool's answer with nothing to add: the same for people and for programs.
pub(crate) fn structured_answer(value: Value) -> Value {
    json!({ "content": [text(&value.to_string())], "structuredContent": value, "isError": false })
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn link(run: &RunId, agent: &str) -> Value {
    json!({
        "type": "resource_link",
        "uri": run_uri(run),
        "name": run,
        "title": format!("Run of {agent}"),
        "description": "Status, progress, questions and result of the run",
        "mimeType": "application/json",
    })
}
