//! Arguments of the run tools, read strictly: an unknown one is most likely a misspelt one.

use rmcp::model::JsonObject;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shikiri_app::AppError;
use shikiri_model::ids::RunId;

pub(super) fn read<T: DeserializeOwned>(arguments: &JsonObject) -> Result<T, AppError> {
    serde_json::from_value(Value::Object(arguments.clone()))
        .map_err(|error| AppError::invalid("arguments", error.to_string()))
}

/// An id of a form that no run has is the id of no run.
pub(super) fn run_id(text: &str) -> Result<RunId, AppError> {
    text.parse().map_err(|_| AppError::not_found("run", text))
}
