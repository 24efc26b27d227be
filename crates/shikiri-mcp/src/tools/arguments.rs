//! Arguments of the run tools, read strictly: an unknown one is most likely a misspelt one.

use rmcp::model::JsonObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shikiri_model::ids::RunId;
use shikiri_runtime::AppError;

pub(super) fn read<T: DeserializeOwned>(arguments: &JsonObject) -> Result<T, AppError> {
    serde_json::from_value(Value::Object(arguments.clone()))
        .map_err(|error| AppError::invalid("arguments", error.to_string()))
}

/// An id of a form that no run has is the id of no run.
pub(super) fn run_id(text: &str) -> Result<RunId, AppError> {
    text.parse().map_err(|_| AppError::not_found("run", text))
}

/// The argument of a tool that is about one run and takes nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunIdArgument {
    run_id: String,
}

pub(super) fn run_id_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "run_id": { "type": "string" } },
        "required": ["run_id"],
        "additionalProperties": false,
    })
}

pub(super) fn read_run_id(arguments: &JsonObject) -> Result<RunId, AppError> {
    let RunIdArgument { run_id: text } = read(arguments)?;
    run_id(&text)
}
